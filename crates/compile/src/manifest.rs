//! Reads manifests: text to typed objects.
//!
//! [`yaml`] parses text into trees that remember their lines, [`kind`] decides which of them are objects that Heddle
//! reads, [`decode`] reads those into the structs of [`core`], [`gateway`], [`policy`], [`smi`] and [`local`]. Each
//! object is read alone: `compile` checks it against the others.

use std::path::Path;
use std::rc::Rc;

use heddle_model::report::{Origin, Problem, Severity};
use heddle_model::{Name, Namespace};

use crate::findings::{Findings, Key};

pub(crate) mod core;
mod decode;
pub(crate) mod gateway;
pub(crate) mod kind;
mod lab;
pub(crate) mod local;
pub(crate) mod node;
pub(crate) mod policy;
mod registered;
pub(crate) mod smi;
pub(crate) mod suggest;
mod unused;
mod yaml;

#[cfg(test)]
mod tests;

pub(crate) use kind::Kind;
pub(crate) use registered::{Keyed, SERVICE_LABEL, read_registered};

use decode::{Fault, decode_body, decode_metadata};
use kind::{Verdict, judge};
use node::{FieldPath, Node, Value};

/// The namespace of objects without one.
const DEFAULT_NAMESPACE: &str = "default";

/// An object as it was written, with its place.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) written: Written,
    pub(crate) kind: Kind,
    pub(crate) namespace: Namespace,
    pub(crate) name: Name,
    pub(crate) metadata: core::Metadata,
    pub(crate) body: Body,
}

impl Object {
    /// The service account that a workload names, as a separate object.
    pub(crate) fn account(&self) -> Option<Object> {
        let Body::LocalWorkload(body) = &self.body else {
            return None;
        };
        let name = body.spec.service_account_name.as_deref()?;
        Some(Object {
            written: self.written.clone(),
            kind: Kind::ServiceAccount,
            namespace: self.namespace.clone(),
            name: Name::parse(name).ok()?,
            metadata: core::Metadata::default(),
            body: Body::ServiceAccount,
        })
    }
}

/// The kind-specific part of an object.
#[derive(Debug)]
pub(crate) enum Body {
    Service(core::Service),
    ServiceAccount,
    Namespace,
    LocalWorkload(Box<local::LocalWorkload>),
    EndpointSlice(core::EndpointSlice),
    HttpRoute(gateway::HttpRoute),
    ReferenceGrant(gateway::ReferenceGrant),
    AuthorizationPolicy(policy::AuthorizationPolicy),
    TrafficTarget(smi::TrafficTarget),
    HttpRouteGroup(smi::HttpRouteGroup),
    TcpRoute(smi::TcpRoute),
}

/// An object's source: enough to report a problem with any field of it.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// File or registry key, without a line.
    pub(crate) origin: Origin,
    pub(crate) label: String,
    pub(crate) key: Key,
    tree: Rc<Node>,
}

impl Written {
    /// The place at which the object begins.
    pub(crate) fn begins(&self) -> Origin {
        self.origin.at(self.tree.line)
    }

    /// The place of the field at `path`.
    pub(crate) fn origin_of(&self, path: &FieldPath) -> Origin {
        self.origin.at(self.tree.line_of(path))
    }

    /// The fields of the `spec` that have no value.
    pub(crate) fn blank_fields(&self) -> Vec<FieldPath> {
        let mut found = Vec::new();
        if let Some(spec) = self.tree.get("spec") {
            spec.blank_fields(&FieldPath::of("spec"), &mut found);
        }
        found
    }

    /// A problem with the field at `path`.
    pub(crate) fn problem(
        &self,
        severity: Severity,
        path: &FieldPath,
        reason: String,
        remedy: String,
    ) -> Problem {
        Problem {
            severity,
            origin: self.origin_of(path),
            object: Some(self.label.clone()),
            field: path.to_string(),
            reason,
            remedy,
            cause: None,
        }
    }
}

/// Reads every object in a file: returns the valid ones, and reports the faults of the others. `values_left` is how
/// many more values the folder may have.
pub(crate) fn read(
    file: &Path,
    bytes: &[u8],
    values_left: &mut usize,
    findings: &mut Findings,
) -> Vec<Object> {
    let mut reader = Reader {
        file: Origin::file(file),
        objects: Vec::new(),
        findings,
    };
    match yaml::parse(bytes, values_left) {
        Ok(documents) => {
            reader.findings.documents += documents.len();
            for document in documents {
                reader.document(document);
            }
        }
        Err(error) => reader.unreadable(Problem {
            severity: Severity::Error,
            origin: match error.line {
                Some(line) => Origin::file(file).at(line),
                None => Origin::file(file),
            },
            object: None,
            field: String::new(),
            reason: error.reason,
            remedy: error.remedy,
            cause: None,
        }),
    }
    reader.objects
}

struct Reader<'r> {
    file: Origin,
    objects: Vec<Object>,
    findings: &'r mut Findings,
}

impl Reader<'_> {
    fn document(&mut self, document: Node) {
        match type_of(&document) {
            Ok((_, kind)) if kind.ends_with("List") && document.get("items").is_some() => {
                let item_kind = kind.trim_end_matches("List").to_owned();
                self.list(document, &item_kind);
            }
            _ => self.object(document),
        }
    }

    /// Reads `kind: List`, as `kubectl get -o yaml` prints it, or a list of one kind.
    fn list(&mut self, list: Node, item_kind: &str) {
        let api_version = list
            .get("apiVersion")
            .and_then(Node::text)
            .unwrap_or("")
            .to_owned();
        let line = list.line;
        let Value::Mapping(entries) = list.value else {
            return;
        };
        for entry in entries {
            match (entry.key.as_str(), entry.value.value) {
                ("items", Value::Sequence(items)) => {
                    for item in items {
                        self.item(item, &api_version, item_kind);
                    }
                }
                ("items", Value::Null) | ("apiVersion" | "kind" | "metadata", _) => {}
                ("items", _) => {
                    self.refuse(entry.line, "items", "a List's items are a list", "");
                }
                (key, _) => {
                    let remedy = suggest::nearest(key, ["items"])
                        .map_or(String::new(), |meant| format!("did you mean {meant}?"));
                    self.refuse(entry.line.max(line), key, "unknown field", &remedy);
                }
            }
        }
    }

    /// Reads an item of a list. In a typed list it may leave out `apiVersion` and `kind`.
    fn item(&mut self, mut item: Node, api_version: &str, kind: &str) {
        if !kind.is_empty() && item.get("kind").is_none() && item.get("apiVersion").is_none() {
            let line = item.line;
            if let Value::Mapping(entries) = &mut item.value {
                for (key, value) in [("apiVersion", api_version), ("kind", kind)] {
                    let value = Node {
                        line,
                        value: Value::Text(value.to_owned()),
                    };
                    entries.push(node::MappingEntry {
                        key: key.to_owned(),
                        line,
                        value,
                    });
                }
            }
        }
        self.object(item);
    }

    fn object(&mut self, tree: Node) {
        if let Some(warning) = lab::left_aside(&self.file, &tree) {
            return self.findings.push(warning);
        }
        let (api_version, kind) = match type_of(&tree) {
            Ok((api_version, kind)) => (api_version.to_owned(), kind.to_owned()),
            Err((reason, remedy)) => {
                self.findings.refused.unknown = true;
                return self.refuse(tree.line, "", reason, remedy);
            }
        };
        let kind = match judge(&api_version, &kind) {
            Verdict::Read(kind) => kind,
            Verdict::Skip(name) => {
                *self.findings.report.skipped.entry(name).or_default() += 1;
                return;
            }
            Verdict::Unenforced {
                name,
                group,
                remedy,
            } => {
                *self.findings.report.skipped.entry(name).or_default() += 1;
                return self.findings.push(Problem {
                    severity: Severity::Warning,
                    origin: self.file.at(tree.line_of(&FieldPath::of("kind"))),
                    object: Some(label_of(&kind, true, &tree)),
                    field: String::new(),
                    reason: format!("it is a policy of {group} and is not enforced"),
                    remedy,
                    cause: None,
                });
            }
            Verdict::Refuse {
                meant,
                field,
                reason,
                remedy,
            } => {
                self.findings.refused.insert(&key(meant, &tree));
                let line = tree.line_of(&FieldPath::of(field));
                return self.refuse(line, field, &reason, &remedy);
            }
        };
        self.findings.report.objects += 1;
        let written = Written {
            origin: self.file.clone(),
            label: label(kind, &tree),
            key: key(kind, &tree),
            tree: Rc::new(tree),
        };
        match read_object(kind, &written) {
            Ok(object) => self.objects.push(object),
            Err(faults) => {
                self.findings.refused.insert(&written.key);
                for fault in faults {
                    self.findings.push(Problem {
                        severity: Severity::Error,
                        origin: self.file.at(fault.line),
                        object: Some(written.label.clone()),
                        field: fault.path.to_string(),
                        reason: fault.reason,
                        remedy: fault.remedy,
                        cause: None,
                    });
                }
            }
        }
    }

    /// A document that cannot be parsed may contain any object.
    fn unreadable(&mut self, problem: Problem) {
        self.findings.refused.unknown = true;
        self.findings.push(problem);
    }

    fn refuse(&mut self, line: u32, field: &str, reason: &str, remedy: &str) {
        self.findings.push(Problem {
            severity: Severity::Error,
            origin: self.file.at(line),
            object: None,
            field: field.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
            cause: None,
        });
    }
}

/// An object's `apiVersion` and `kind`, or why the document is not an object.
fn type_of(tree: &Node) -> Result<(&str, &str), (&'static str, &'static str)> {
    if !matches!(tree.value, Value::Mapping(_)) {
        return Err((
            "this is no Kubernetes object",
            "keep other files out of this folder",
        ));
    }
    let text = |key| {
        tree.get(key)
            .and_then(Node::text)
            .filter(|text| !text.is_empty())
    };
    match (text("apiVersion"), text("kind")) {
        (Some(api_version), Some(kind)) => Ok((api_version, kind)),
        (None, Some(_)) => Err(("this object has no apiVersion", "add apiVersion")),
        (Some(_), None) => Err(("this object has no kind", "add kind")),
        (None, None) => Err((
            "this is no Kubernetes object: it has neither apiVersion nor kind",
            "add them, or keep other files out of this folder",
        )),
    }
}

/// An object's name, as far as it is known before the object is read.
fn key(kind: Kind, tree: &Node) -> Key {
    let field = |key| {
        tree.get("metadata")
            .and_then(|m| m.get(key))
            .and_then(Node::text)
            .filter(|text| !text.is_empty())
    };
    Key {
        kind,
        namespace: field("namespace").unwrap_or(DEFAULT_NAMESPACE).to_owned(),
        name: field("name").map(str::to_owned),
    }
}

/// `Kind namespace/name`, as far as it is known before the object is read.
fn label(kind: Kind, tree: &Node) -> String {
    label_of(kind.as_str(), kind.is_namespaced(), tree)
}

fn label_of(kind: &str, is_namespaced: bool, tree: &Node) -> String {
    let field = |key| {
        tree.get("metadata")
            .and_then(|m| m.get(key))
            .and_then(Node::text)
    };
    match (field("name"), is_namespaced) {
        (Some(name), true) => {
            format!(
                "{kind} {}/{name}",
                field("namespace").unwrap_or(DEFAULT_NAMESPACE)
            )
        }
        (Some(name), false) => format!("{kind} {name}"),
        (None, _) => kind.to_owned(),
    }
}

fn read_object(kind: Kind, written: &Written) -> Result<Object, Vec<Fault>> {
    let tree = &written.tree;
    let metadata: Result<core::Metadata, _> = decode_metadata(tree);
    let body = match kind {
        Kind::Service => decode_body(tree).map(Body::Service),
        Kind::ServiceAccount => {
            decode_body(tree).map(|core::ServiceAccount {}| Body::ServiceAccount)
        }
        Kind::Namespace => decode_body(tree).map(|core::Namespace {}| Body::Namespace),
        Kind::LocalWorkload => decode_body(tree).map(Box::new).map(Body::LocalWorkload),
        Kind::EndpointSlice => decode_body(tree).map(Body::EndpointSlice),
        Kind::HttpRoute => decode_body(tree).map(Body::HttpRoute),
        Kind::ReferenceGrant => decode_body(tree).map(Body::ReferenceGrant),
        Kind::AuthorizationPolicy => decode_body(tree).map(Body::AuthorizationPolicy),
        Kind::TrafficTarget => decode_body(tree).map(Body::TrafficTarget),
        Kind::HttpRouteGroup => decode_body(tree).map(Body::HttpRouteGroup),
        Kind::TcpRoute => decode_body(tree).map(Body::TcpRoute),
    };
    match (metadata, body) {
        (Ok(metadata), Ok(body)) => {
            let (namespace, name) = names(kind, &metadata, tree)?;
            Ok(Object {
                written: written.clone(),
                kind,
                namespace,
                name,
                metadata,
                body,
            })
        }
        (metadata, body) => {
            let mut faults = metadata.err().unwrap_or_default();
            faults.extend(body.err().unwrap_or_default());
            Err(faults)
        }
    }
}

fn names(
    kind: Kind,
    metadata: &core::Metadata,
    tree: &Node,
) -> Result<(Namespace, Name), Vec<Fault>> {
    let fault = |field: &str, reason: String, remedy: &str| {
        let path = FieldPath::of("metadata").field(field);
        vec![Fault {
            line: tree.line_of(&path),
            path,
            reason,
            remedy: remedy.to_owned(),
        }]
    };
    let Some(name) = &metadata.name else {
        return Err(fault(
            "name",
            "this field is required".to_owned(),
            "add a name",
        ));
    };
    let is_label = matches!(kind, Kind::Service | Kind::Namespace);
    if is_label && !heddle_model::is_dns_label(name) {
        let remedy = "use a-z, 0-9 and '-', at most 63 characters";
        return Err(fault("name", format!("{name:?} is no DNS label"), remedy));
    }
    let name = Name::parse(name).map_err(|e| fault("name", e.to_string(), "rename it"))?;
    let namespace = match metadata.namespace.as_deref() {
        Some(namespace) if kind.is_namespaced() && !namespace.is_empty() => namespace,
        _ => DEFAULT_NAMESPACE,
    };
    let namespace =
        Namespace::parse(namespace).map_err(|e| fault("namespace", e.to_string(), "rename it"))?;
    Ok((namespace, name))
}

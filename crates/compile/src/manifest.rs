//! Reads manifests: text to typed objects.
//!
//! [`yaml`] parses text into trees that remember their lines, [`kind`] decides which of them are objects that Heddle
//! reads, [`decode`] reads those into the structs of [`core`], [`gateway`], [`policy`], [`smi`] and [`local`]. Each
//! object is read alone: `compile` checks it against the others.

use std::sync::Arc;

use heddle_model::report::{Origin, Problem, Severity};
use heddle_model::{Name, Namespace, PolicyKind, PolicyName};

use crate::check;
use crate::findings::{Key, ObjectId};

pub(crate) mod closed;
pub(crate) mod core;
mod decode;
pub(crate) mod gateway;
mod json;
pub(crate) mod kind;
mod lab;
pub(crate) mod local;
pub(crate) mod node;
pub(crate) mod policy;
mod reader;
mod registered;
pub(crate) mod smi;
pub(crate) mod suggest;
mod unused;
mod yaml;

#[cfg(test)]
mod tests;

pub(crate) use kind::Kind;
pub(crate) use reader::{read, read_tree};
pub(crate) use registered::{Keyed, SERVICE_LABEL, read_registered};

use decode::{Fault, decode_body, decode_metadata};
use node::{FieldPath, Node, Value};

/// The label of a Namespace or a workload with the mode: its requirements on callers.
pub(crate) const MODE_LABEL: &str = "heddle.dev/mode";
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
    /// The name of a policy, as the mesh has it; `None` for any other object.
    pub(crate) fn policy_name(&self) -> Option<PolicyName> {
        let kind = match &self.body {
            Body::AuthorizationPolicy(_) => PolicyKind::AuthorizationPolicy,
            Body::TrafficTarget(_) => PolicyKind::TrafficTarget,
            Body::ClosedPolicy(closed) => closed.kind,
            _ => return None,
        };
        Some(PolicyName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            kind,
        })
    }

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
    ClosedPolicy(closed::ClosedPolicy),
    ClosedRoute(closed::ClosedRoute),
    ClosedWorkload(closed::ClosedWorkload),
}

/// An object's source: enough to report a problem with any field of it.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// File or registry key, without a line.
    pub(crate) origin: Origin,
    pub(crate) label: String,
    pub(crate) key: Key,
    tree: Arc<Node>,
    standing: Standing,
}

/// How an object compares with the last good version of that name. Better ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    pub(crate) is_elsewhere: bool,
    pub(crate) is_changed: bool,
}

impl Written {
    fn new(origin: &Origin, kind: Kind, tree: Node) -> Self {
        Written {
            origin: origin.clone(),
            label: label(kind, &tree),
            key: key(kind, &tree),
            tree: Arc::new(tree),
            standing: Standing {
                is_elsewhere: true,
                is_changed: true,
            },
        }
    }

    /// Notes which version of that name is in force.
    pub(crate) fn note_in_force(&mut self, good: &Written) {
        self.standing = Standing {
            is_elsewhere: self.origin.path() != good.origin.path(),
            is_changed: !self.tree.has_content_of(&good.tree),
        };
    }

    /// The order in which objects have a claim to what only one can have: the older creation time first, then what is in
    /// force, then the order in which they are written. One without a time counts as the newest.
    pub(crate) fn seniority(&self) -> (i64, Standing, Origin) {
        let created = self.tree.at(&FieldPath::of("metadata.creationTimestamp"));
        let created = created.and_then(Node::text);
        let created = created.and_then(|text| check::timestamp(text).ok());
        (created.unwrap_or(i64::MAX), self.standing, self.begins())
    }

    /// Whether its namespace can be read.
    pub(crate) fn is_placed(&self) -> bool {
        let namespace = self.tree.at(&FieldPath::of("metadata.namespace"));
        match namespace.map(|node| &node.value) {
            None | Some(Value::Null) => true,
            Some(Value::Text(_)) => Namespace::parse(&self.key.namespace).is_ok(),
            Some(_) => false,
        }
    }

    /// Tells this object from others of the same name while it lives.
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(Arc::as_ptr(&self.tree).addr())
    }

    /// The object as it was written.
    pub(crate) fn tree(&self) -> &Node {
        &self.tree
    }

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
    let namespace = field("namespace").filter(|_| kind.is_namespaced());
    Key {
        kind,
        namespace: namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned(),
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

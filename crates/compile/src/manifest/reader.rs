//! Reads the objects of a file: documents and lists, the valid ones and those with faults.

use std::path::Path;

use heddle_model::report::{Origin, Problem, Severity};

use super::kind::{Verdict, judge};
use super::node::{FieldPath, MappingEntry, Node, Value};
use super::{Object, Written, lab, label_of, read_object, suggest, type_of, yaml};
use crate::findings::Findings;

/// The objects of one file.
#[derive(Debug, Default)]
pub(crate) struct FileObjects {
    /// Those that are valid on their own.
    pub(crate) valid: Vec<Object>,
    /// Those with faults, as far as they could be read.
    pub(crate) faulty: Vec<Written>,
    /// Whether the file has something that may be any object.
    pub(crate) is_unreadable: bool,
}

/// Reads every object in a file, and reports the faults of those that are not valid. `values_left` is how many more
/// values the folder may have.
pub(crate) fn read(
    file: &Path,
    bytes: &[u8],
    values_left: &mut usize,
    findings: &mut Findings,
) -> FileObjects {
    let mut reader = Reader {
        file: Origin::file(file),
        objects: FileObjects::default(),
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

/// Reads the object, or the list of objects, in a tree.
pub(crate) fn read_tree(file: &Path, tree: Node, findings: &mut Findings) -> FileObjects {
    let mut reader = Reader {
        file: Origin::file(file),
        objects: FileObjects::default(),
        findings,
    };
    reader.document(tree);
    reader.objects
}

/// Whether it has items that are objects, as only lists have.
fn holds_objects(document: &Node) -> bool {
    match document.get("items").map(|items| &items.value) {
        Some(Value::Sequence(items)) => items.iter().any(|item| {
            let fields = ["apiVersion", "kind", "metadata"];
            fields.iter().any(|field| item.get(field).is_some())
        }),
        _ => false,
    }
}

struct Reader<'r> {
    file: Origin,
    objects: FileObjects,
    findings: &'r mut Findings,
}

impl Reader<'_> {
    fn document(&mut self, document: Node) {
        match type_of(&document) {
            Ok((_, kind)) if kind.ends_with("List") && document.get("items").is_some() => {
                let item_kind = kind.trim_end_matches("List").to_owned();
                self.list(document, &item_kind);
            }
            Ok((_, kind)) if holds_objects(&document) => {
                let reason = format!("it holds objects, and {kind} is no kind of a list");
                let line = document.line_of(&FieldPath::of("kind"));
                self.is_unreadable();
                self.refuse(line, "kind", &reason, "write kind: List");
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
                    self.is_unreadable();
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
                    entries.push(MappingEntry {
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
                self.is_unreadable();
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
                let line = tree.line_of(&FieldPath::of(field));
                // What is meant is a guess.
                self.objects.is_unreadable = true;
                let written = Written::new(&self.file, meant, tree);
                self.findings.refused.insert(&written.key);
                self.objects.faulty.push(written);
                return self.refuse(line, field, &reason, &remedy);
            }
        };
        self.findings.report.objects += 1;
        let written = Written::new(&self.file, kind, tree);
        match read_object(kind, &written) {
            Ok(object) => self.objects.valid.push(object),
            Err(faults) => {
                // A policy of an unknown namespace may be one of any.
                self.objects.is_unreadable |= !written.is_placed();
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
                self.objects.faulty.push(written);
            }
        }
    }

    /// A document that cannot be parsed.
    fn unreadable(&mut self, problem: Problem) {
        self.is_unreadable();
        self.findings.push(problem);
    }

    /// The file has something that may be any object.
    fn is_unreadable(&mut self) {
        self.objects.is_unreadable = true;
        self.findings.refused.unknown = true;
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

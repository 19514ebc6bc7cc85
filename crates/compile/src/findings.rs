//! The findings of reading and compiling a folder.

use std::collections::BTreeSet;

use heddle_model::report::{Problem, Report};

use crate::manifest::kind::Kind;

/// The report in progress, and data that later steps need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    pub(crate) report: Report,
    /// The number of non-empty documents, valid or not.
    pub(crate) documents: usize,
    /// Objects that exist but have errors.
    pub(crate) refused: RefusedObjects,
    /// Objects that compilation found an error in.
    pub(crate) blamed: BTreeSet<ObjectId>,
    /// Whether there is an error that concerns the folder as a whole.
    pub(crate) is_general: bool,
}

impl Findings {
    pub(crate) fn push(&mut self, problem: Problem) {
        self.report.push(problem);
    }

    /// Adds an error that concerns the folder as a whole.
    pub(crate) fn push_general(&mut self, error: Problem) {
        self.is_general = true;
        self.report.push(error);
    }

    /// Adds an error in an object that was read.
    pub(crate) fn blame(&mut self, key: &Key, id: ObjectId, error: Problem) {
        self.refused.insert(key);
        self.blamed.insert(id);
        self.report.push(error);
    }

    /// Whether the folder has neither a document nor an error.
    pub(crate) fn is_empty(&self) -> bool {
        self.documents == 0 && !self.report.has_errors()
    }
}

/// Objects with an error. Problems that follow only from their absence are not reported: they would mislead the reader,
/// and vanish when the error is corrected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RefusedObjects {
    /// Something could not be read at all, and may have contained any object.
    pub(crate) unknown: bool,
    objects: BTreeSet<Key>,
}

/// Tells written objects from each other, also those of one name: where one is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId(pub(crate) usize);

/// The name of an object, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
}

impl RefusedObjects {
    pub(crate) fn insert(&mut self, key: &Key) {
        if !self.objects.contains(key) {
            self.objects.insert(key.clone());
        }
    }

    /// Whether an object of that name may be among them.
    pub(crate) fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = |name: Option<&str>| Key {
            kind,
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
        };
        self.unknown || self.objects.contains(&key(None)) || self.objects.contains(&key(Some(name)))
    }

    /// Whether an object of that kind and namespace may be among them.
    pub(crate) fn has_any(&self, kind: Kind, namespace: &str) -> bool {
        let first = Key {
            kind,
            namespace: namespace.to_owned(),
            name: None,
        };
        let next = self.objects.range(first..).next();
        self.unknown || next.is_some_and(|key| key.kind == kind && key.namespace == namespace)
    }
}

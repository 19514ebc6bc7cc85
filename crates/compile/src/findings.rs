//! What reading and compiling a folder has come to so far.

use std::collections::BTreeSet;

use heddle_model::report::{Problem, Report};

use crate::manifest::kind::Kind;

/// The report that is being written, and what only the rest of the work needs to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    pub(crate) report: Report,
    /// How many documents there were that say something, whatever they say.
    pub(crate) documents: usize,
    /// What is there, but wrong.
    pub(crate) refused: RefusedObjects,
}

impl Findings {
    pub(crate) fn push(&mut self, problem: Problem) {
        self.report.push(problem);
    }

    /// Whether there is nothing in a folder that could be right or wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.documents == 0 && !self.report.has_errors()
    }
}

/// Objects with an error. They are there, so nothing is said of what follows from their absence:
/// it would send the reader to the wrong place, and goes away when the error does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RefusedObjects {
    /// Something could not be read at all, which may have held any object.
    pub(crate) unknown: bool,
    objects: BTreeSet<Key>,
}

/// What an object is called, as far as that can be told.
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

    /// Whether the object of that name may be among them.
    pub(crate) fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = |name: Option<&str>| Key {
            kind,
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
        };
        self.unknown || self.objects.contains(&key(None)) || self.objects.contains(&key(Some(name)))
    }

    /// Whether any object of that kind and namespace may be among them.
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

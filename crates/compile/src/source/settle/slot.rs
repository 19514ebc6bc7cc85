//! An object of the folder, and which version of it is in force.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_model::report::{InForce, Origin, Problem, Severity};

use crate::findings::{Findings, Key};
use crate::manifest::{Object, Written};
use crate::source::words::closing_words;

/// An object of the folder.
pub(super) struct Slot {
    /// As it is written; `None` for one of a file that cannot be read any more.
    pub(super) written: Option<Written>,
    pub(super) key: Key,
    pub(super) version: Version,
}

impl Slot {
    /// An object that stays as it was: it cannot be found in the folder.
    pub(super) fn kept(key: &Key, good: &Arc<Object>) -> Self {
        Slot {
            written: None,
            key: key.clone(),
            version: Version::Good(Arc::clone(good)),
        }
    }

    /// The object, as it is written or as it was.
    pub(super) fn written(&self) -> Option<&Written> {
        let version = || self.version.object().map(|object| &object.written);
        self.written.as_ref().or_else(version)
    }

    pub(super) fn is_blamed(&self, findings: &Findings) -> bool {
        let object = self.version.object();
        object.is_some_and(|object| findings.blamed.contains(&object.written.id()))
    }
}

pub(super) enum Version {
    /// As it is written.
    New(Arc<Object>),
    /// The last good one.
    Good(Arc<Object>),
    StandIn(Arc<Object>),
    LeftOut,
}

impl Version {
    /// Whether it is a version that was written.
    pub(super) fn is_written(&self) -> bool {
        matches!(self, Version::New(_) | Version::Good(_))
    }

    pub(super) fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Version::New(object) | Version::Good(object) | Version::StandIn(object) => Some(object),
            Version::LeftOut => None,
        }
    }

    pub(super) fn in_force(&self) -> Option<InForce> {
        match self {
            Version::New(_) => None,
            Version::Good(_) => Some(InForce::LastGood),
            Version::StandIn(_) => Some(InForce::Closed),
            Version::LeftOut => Some(InForce::Nothing),
        }
    }
}

/// The name of something in a file that has none of its own: `unreadable-a-yaml`.
pub(super) fn unreadable_name(file: &Origin) -> String {
    /// Most letters of the file's name.
    const MOST: usize = 40;
    let file = file.path().and_then(Path::file_name).unwrap_or_default();
    let file = file.to_string_lossy().to_ascii_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let file: String = file.chars().map(plain).take(MOST).collect();
    format!("unreadable-{}", file.trim_matches('-'))
        .trim_end_matches('-')
        .to_owned()
}

/// The objects, of each name the senior one.
pub(super) fn seniors(slots: &[Slot]) -> BTreeMap<Key, Written> {
    let mut seniors: BTreeMap<Key, Written> = BTreeMap::new();
    for written in slots.iter().filter_map(|slot| slot.written.as_ref()) {
        let before = seniors.get(&written.key);
        if before.is_none_or(|before| written.seniority() < before.seniority()) {
            seniors.insert(written.key.clone(), written.clone());
        }
    }
    seniors
}

/// How many words that protect something the objects of each file have that can be read.
pub(super) fn words_of(valid: &[Slot], faulty: &[Written]) -> BTreeMap<PathBuf, usize> {
    let mut words = BTreeMap::new();
    let valid = valid.iter().filter_map(|slot| slot.written.as_ref());
    for written in valid.chain(faulty.iter().filter(|one| one.is_placed())) {
        if let Some(path) = written.origin.path() {
            let text = serde_json::to_vec(written.tree()).unwrap_or_default();
            *words.entry(path.to_owned()).or_default() += closing_words(&text);
        }
    }
    words
}

/// That an object is refused because others are.
pub(super) fn follows(written: &Written, findings: &Findings) -> Problem {
    let problems = findings.report.problems.iter();
    let mut own = problems.filter(|problem| {
        problem.severity == Severity::Error && problem.object.as_ref() == Some(&written.label)
    });
    let first = own.next();
    Problem {
        severity: Severity::Error,
        origin: first.map_or_else(|| written.begins(), |problem| problem.origin.clone()),
        object: Some(written.label.clone()),
        field: first.map_or_else(String::new, |problem| problem.field.clone()),
        reason: match first {
            Some(problem) => format!("it is refused as well: {}", problem.reason),
            None => "it is refused as well".to_owned(),
        },
        remedy: "mend the objects that it needs".to_owned(),
        cause: None,
    }
}

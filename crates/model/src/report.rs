//! What is wrong with what a mesh is made from, said so that its author can mend it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::{WorkloadName, printable};

mod origin;
mod registry;

#[cfg(test)]
mod tests;

pub use origin::Origin;
pub use registry::{Cause, Providing, Tally};

/// How many problems a report spells out; the rest is counted.
const MAX_PROBLEMS: usize = 500;

/// Whether the configuration can be served all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot: the last good configuration stays.
    Error,
    /// It can, and does something that its author may not expect.
    Warning,
}

/// One thing that is wrong, where, why, and what to do about it.
///
/// Shown as `origin: severity: object: field: reason (remedy)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Whether it stops the configuration from being served.
    pub severity: Severity,
    /// Where it was found.
    #[serde(flatten)]
    pub origin: Origin,
    /// The object, as `Kind namespace/name`; none when it could not be told.
    pub object: Option<String>,
    /// The field, as `spec.rules[0].matches[0].path.type`; empty when no single one is to blame.
    pub field: String,
    /// What is wrong.
    pub reason: String,
    /// What to do; empty when the reason says it all.
    pub remedy: String,
    /// What kind of problem it is, of one with something in the registry.
    #[serde(skip)]
    pub cause: Option<Cause>,
}

/// Whatever the files and their names hold, a problem is one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        self.write(&mut line)?;
        f.write_str(&printable(&line))
    }
}

impl Problem {
    /// The same problem, of that kind.
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    fn write(&self, f: &mut String) -> fmt::Result {
        write!(f, "{}", self.origin)?;
        f.write_str(match self.severity {
            Severity::Error => ": error",
            Severity::Warning => ": warning",
        })?;
        if let Some(object) = &self.object {
            write!(f, ": {object}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}

/// What reading a folder came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What is wrong, errors first, then by file and line; at most 500 are spelled out.
    pub problems: Vec<Problem>,
    /// How many more problems there are.
    pub omitted: usize,
    /// How many objects were left aside because Heddle has no use for their kind, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Files that look like manifests and are not read because of how their names end.
    pub left_aside: LeftAside,
    /// How many objects were read.
    pub objects: usize,
    /// The workloads that registered by themselves: they are called, and no caller here is one of them.
    #[serde(skip)]
    pub registered: BTreeSet<WorkloadName>,
    /// What has become of what registered.
    #[serde(skip)]
    pub registry: Tally,
    /// How many LocalWorkloads say which address they have.
    #[serde(skip)]
    pub addresses: AddressCount,
    errors: usize,
}

/// Files such as `web.yaml.txt` and `web.yml.bak`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftAside {
    /// How many there are.
    pub files: usize,
    /// One of them.
    #[serde(serialize_with = "as_text_if_any")]
    pub first: Option<PathBuf>,
}

/// How many LocalWorkloads have an address written, and how many have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressCount {
    /// Those that have one.
    pub written: usize,
    /// Those that have none.
    pub missing: usize,
}

impl AddressCount {
    /// Counts one more.
    pub fn count(&mut self, is_written: bool) {
        match is_written {
            true => self.written += 1,
            false => self.missing += 1,
        }
    }

    /// Whether there are workloads, and none has an address: such a folder is meant for a lab.
    pub fn are_all_missing(&self) -> bool {
        self.missing > 0 && self.written == 0
    }
}

/// A path as far as it is text: one name that is no UTF-8 must not cost the whole report.
fn as_text_if_any<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.serialize_str(&path.to_string_lossy()),
        None => serializer.serialize_none(),
    }
}

impl Report {
    /// Whether the configuration cannot be served.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// How many errors there are, those not spelled out included.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// One line on what was left aside; none when nothing was.
    pub fn skipped_summary(&self) -> Option<String> {
        let total: usize = self.skipped.values().sum();
        if total == 0 {
            return None;
        }
        let kinds: Vec<String> = self
            .skipped
            .iter()
            .map(|(kind, count)| format!("{} {count}", printable(kind)))
            .collect();
        let objects = if total == 1 { "object" } else { "objects" };
        Some(format!(
            "skipped {total} {objects} of kinds that are not used: {}",
            kinds.join(", ")
        ))
    }

    /// Adds a problem; when there are too many, it is only counted, or makes a warning so.
    pub fn push(&mut self, problem: Problem) {
        let is_error = problem.severity == Severity::Error;
        if is_error {
            self.errors += 1;
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
            return;
        }
        self.omitted += 1;
        // As long as not all that are spelled out are errors, one of the others makes room.
        if is_error
            && self.errors <= MAX_PROBLEMS
            && let Some(warning) = self
                .problems
                .iter_mut()
                .rfind(|problem| problem.severity == Severity::Warning)
        {
            *warning = problem;
        }
    }

    /// Puts errors first, and then all in the order in which a reader goes through the files.
    pub fn sort(&mut self) {
        self.problems.sort_by(|a, b| {
            (a.severity, &a.origin, &a.field).cmp(&(b.severity, &b.origin, &b.field))
        });
    }
}

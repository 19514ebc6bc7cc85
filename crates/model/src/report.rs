//! Reports of compiling a mesh: the faults of its manifests, worded so that the author can correct them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::{Shared, WorkloadName, printable};

mod origin;
mod refused;
mod registry;

#[cfg(test)]
mod tests;

pub use origin::Origin;
pub use refused::{InForce, Refused};
pub use registry::{Cause, Providing, Tally};

/// Limit of problems listed in a report; the others are counted.
const MAX_PROBLEMS: usize = 500;

/// Whether a problem stops the configuration from being served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// What has it is refused: its last valid version stays in force.
    Error,
    /// The configuration is served, but may not do what its author expects.
    Warning,
}

/// One fault: its place, reason and remedy.
///
/// Shown as `origin: severity: object: field: reason (remedy)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Whether the problem stops the configuration from being served.
    pub severity: Severity,
    /// The file or registry key with the fault.
    #[serde(flatten)]
    pub origin: Origin,
    /// The object, as `Kind namespace/name`; `None` if it is not known.
    pub object: Option<String>,
    /// The field, as `spec.rules[0].matches[0].path.type`; empty if the fault is not in a single field.
    pub field: String,
    /// The fault.
    pub reason: String,
    /// How to correct it; empty if the reason implies it.
    pub remedy: String,
    /// The category, for a problem in the registry.
    #[serde(skip)]
    pub cause: Option<Cause>,
}

/// One line, whatever characters files and their names contain.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        self.write(&mut line)?;
        f.write_str(&printable(&line))
    }
}

impl Problem {
    /// The same problem, with this cause.
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

/// The result of reading a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The problems, errors first, then by file and line; at most 500 are listed.
    pub problems: Vec<Problem>,
    /// The number of further problems.
    pub omitted: usize,
    /// The number of objects ignored because Heddle does not use their kind, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Files that look like manifests, but are not read because of their extension.
    pub left_aside: LeftAside,
    /// The number of objects read.
    pub objects: usize,
    /// The providers compiled from the registry: they are called, but no caller of this node is one of them.
    #[serde(skip)]
    pub registered: Shared<BTreeSet<WorkloadName>>,
    /// The outcome of each registered provider.
    #[serde(skip)]
    pub registry: Tally,
    /// The number of LocalWorkloads with and without an address.
    #[serde(skip)]
    pub addresses: AddressCount,
    /// Objects that are not in force as they are written, where the others are served all the same.
    #[serde(skip)]
    pub refused: Vec<Refused>,
    /// Whether the folder as a whole is refused: nothing of what is served changes with it.
    #[serde(skip)]
    pub is_refused: bool,
    /// Whether the folder is as it was at the report before, so that only what is said of the registry is new.
    #[serde(skip)]
    pub is_same_folder: bool,
    errors: usize,
}

/// Files such as `web.yaml.txt` and `web.yml.bak`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftAside {
    /// The number of such files.
    pub files: usize,
    /// One of them, as an example.
    #[serde(serialize_with = "as_text_if_any")]
    pub first: Option<PathBuf>,
}

/// The number of LocalWorkloads with and without an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressCount {
    /// LocalWorkloads with an address.
    pub written: usize,
    /// LocalWorkloads without an address.
    pub missing: usize,
}

impl AddressCount {
    /// Counts one LocalWorkload.
    pub fn count(&mut self, is_written: bool) {
        match is_written {
            true => self.written += 1,
            false => self.missing += 1,
        }
    }

    /// Whether there are workloads and none has an address: such a folder is meant for a lab.
    pub fn are_all_missing(&self) -> bool {
        self.missing > 0 && self.written == 0
    }
}

/// A path as text, with replacement characters: one name that is not UTF-8 must not fail the whole report.
fn as_text_if_any<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.serialize_str(&path.to_string_lossy()),
        None => serializer.serialize_none(),
    }
}

impl Report {
    /// Whether there is an error: the folder is not served as it is written.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The number of errors, including those not listed.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// How many objects are refused, by what is in force instead.
    pub fn refused_by_what_is_in_force(&self) -> [(InForce, u64); InForce::ALL.len()] {
        InForce::ALL.map(|in_force| {
            let of = self.refused.iter().filter(|one| one.in_force == in_force);
            (in_force, of.count() as u64)
        })
    }

    /// One line about ignored objects; `None` if there are none.
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

    /// Adds a problem. Above the limit a warning is only counted; an error replaces a listed warning.
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
        // While a warning is listed, an error takes its place.
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

    /// Sorts errors first, and otherwise in the order of the files.
    pub fn sort(&mut self) {
        self.problems.sort_by(|a, b| {
            (a.severity, &a.origin, &a.field).cmp(&(b.severity, &b.origin, &b.field))
        });
    }
}

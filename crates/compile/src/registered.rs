//! Providers from a registry: a source of workloads beside the folder.
//!
//! ```text
//!   a registry ──► Providers ──► Watcher ──► heddle_model::Mesh
//!                  what is there   beside the folder's objects
//! ```
//!
//! The value of a key is a `LocalWorkload` (`key` defines the keys, `value` the accepted values). It is validated when
//! it is read: an invalid value gives a [`Problem`], and the last valid value stays in use until its lease ends. A
//! value that is valid on its own may still conflict with the other objects: `admit` decides that. Nothing in the
//! registry can stop the folder from being served.

use std::collections::BTreeMap;

use heddle_model::report::{Cause, Origin, Problem, Severity};

pub(crate) mod admit;
mod entries;
mod key;
pub(crate) mod replicas;
pub(crate) mod tally;
mod value;

pub use entries::{Entries, EntryPage};
pub use key::{InvalidKey, Layout, ProviderKey};
pub use value::{judge, sockets};

/// The annotation with a workload's limit of concurrent requests.
pub const MAX_REQUESTS_ANNOTATION: &str = "heddle.dev/max-requests";

/// Limit of one value in bytes. A typical provider takes about 300.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// The content of the registry at one time.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    /// The entries that are valid on their own, in the order of their keys in etcd.
    pub entries: Entries,
    /// The faults of other keys and values, up to a limit.
    pub problems: Vec<Problem>,
    /// The number of all faults by cause, including those that `problems` leaves out.
    pub by_cause: BTreeMap<Cause, usize>,
    /// Providers without any valid value.
    pub wrong: Vec<ProviderKey>,
    /// Changes whenever the content does.
    pub version: u64,
}

impl Providers {
    /// The number of entries, each valid on its own.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The faults of other keys and values, one line each.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// A value that is valid on its own, with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key in the registry, as reports show it.
    pub origin: Origin,
    /// The Service and the provider's name in it.
    pub key: ProviderKey,
    /// A LocalWorkload in JSON, as it was written.
    pub value: Vec<u8>,
    /// The revision that created the key: of two providers at one address the older one keeps it.
    pub created: i64,
}

/// A problem with the registry: always a warning, which does not stop the folder from being served.
pub fn warning(origin: &Origin, field: &str, reason: String, remedy: &str) -> Problem {
    Problem {
        severity: Severity::Warning,
        origin: origin.clone(),
        object: None,
        field: field.to_owned(),
        reason,
        remedy: remedy.to_owned(),
        cause: None,
    }
}

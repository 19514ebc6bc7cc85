//! What registers by itself: a source of workloads beside the folder.
//!
//! ```text
//!   a registry ──► Providers ──► Watcher ──► heddle_model::Mesh
//!                  what is there   beside the folder's objects
//! ```
//!
//! What stands under a key is a `LocalWorkload` (`key` says which, `value` what may be in it). It is judged
//! when it is read: what is wrong is a [`Problem`], and the last value that was right goes on for as long as its
//! lease does. What is right for itself may still not fit beside the others: that is for `admit`. Nothing that
//! stands in the registry can keep the folder from being served.

use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_model::report::{Cause, Origin, Problem, Severity};

pub(crate) mod admit;
mod key;
pub(crate) mod tally;
mod value;

pub use key::{InvalidKey, Layout, ProviderKey};
pub use value::{judge, sockets};

/// The annotation by which a workload says how many requests it takes at a time.
pub const MAX_REQUESTS_ANNOTATION: &str = "heddle.dev/max-requests";

/// Bytes of one value. A provider takes about 300.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// What the registry holds at one time.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    /// The entries that were right for themselves, sorted by key.
    pub entries: Vec<Arc<Entry>>,
    /// What is wrong with others.
    pub problems: Vec<Problem>,
    /// The same as numbers, with those that are not spelled out.
    pub by_cause: BTreeMap<Cause, usize>,
    /// Keys of providers under which nothing was right.
    pub wrong: Vec<ProviderKey>,
    /// Changes whenever one of the two does.
    pub version: u64,
}

impl Providers {
    /// How many entries there are that were right for themselves.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// What is wrong with others, a line each.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// A value that was right for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub origin: Origin,
    /// Which provider it is.
    pub key: ProviderKey,
    /// A LocalWorkload, as it was written.
    pub value: Vec<u8>,
    /// The revision at which its key came to be: the provider that was there first keeps an address.
    pub created: i64,
}

/// Something in the registry is wrong: never a reason not to serve.
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

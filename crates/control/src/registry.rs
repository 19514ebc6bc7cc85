//! Providers that register themselves: a source of workloads beside the folder.
//!
//! ```text
//!   heddle register ──► etcd ──► Follower ──► Providers ──► Watcher ──► heddle_model::Mesh
//!   key with a lease             list, watch   what is there   beside the folder's objects
//! ```
//!
//! What stands under a key is a `LocalWorkload` (`key` says which, `value` what may be in it). It is judged
//! when it is read: what is wrong is a [`Problem`], and the last value that was right goes on for as long as its
//! lease does. What is right for itself may still not fit beside the others: that is for `admit`. Nothing that
//! stands in the registry can keep the folder from being served.
//!
//! `docs/registry.md` is the page for operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::problem::{Problem, Severity};

#[cfg(feature = "registry")]
mod access;
pub(crate) mod admit;
#[cfg(feature = "registry")]
mod backoff;
#[cfg(feature = "registry")]
mod core;
#[cfg(feature = "registry")]
mod follow;
#[cfg(feature = "registry")]
mod keep;
mod key;
#[cfg(feature = "registry")]
mod life;
pub(crate) mod tally;
pub(crate) mod value;
#[cfg(feature = "registry")]
mod write;

#[cfg(feature = "registry")]
pub use access::{Access, AccessError, Credentials, Tls};
#[cfg(feature = "registry")]
pub use follow::{Follower, Seen};
#[cfg(feature = "registry")]
pub use keep::{Kept, Registration};
pub use key::{InvalidKey, Layout, ProviderKey};
#[cfg(feature = "registry")]
pub use life::{MAX_TTL, MIN_TTL, News};
pub use tally::{Providing, Tally};
#[cfg(feature = "registry")]
pub use write::Provider;

/// Bytes of one value. A provider takes about 300.
pub(crate) const MAX_VALUE_BYTES: usize = 16 << 10;

/// What the registry holds at one time.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    /// The entries that were right for themselves, sorted by key.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// What is wrong with others.
    pub(crate) problems: Vec<Problem>,
    /// The same as numbers, with those that are not spelled out.
    pub(crate) by_cause: BTreeMap<Cause, usize>,
    /// Keys of providers under which nothing was right.
    pub(crate) wrong: Vec<ProviderKey>,
    /// Changes whenever one of the two does.
    pub(crate) version: u64,
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
pub(crate) struct Entry {
    /// Where it stands, as it is shown.
    pub(crate) place: String,
    pub(crate) key: ProviderKey,
    pub(crate) value: Vec<u8>,
    /// The revision at which its key came to be: the provider that was there first keeps an address.
    pub(crate) created: i64,
}

/// Why something in the registry is a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The key is no provider's.
    Key,
    /// The key has no lease.
    Lease,
    /// The value is wrong for itself.
    Value,
    /// There is no room for more.
    Room,
    /// Another workload has its name, its address or its place.
    Taken,
    /// The folder does not let it have its account.
    Account,
    /// It does not say which node it is on, where there are several.
    Node,
    /// With it something else would be refused.
    Unfit,
    /// So much does not fit that it was not tried yet.
    Untried,
    /// It is right, and no Service's endpoint.
    Uncalled,
}

impl Cause {
    /// Every one.
    pub const ALL: [Cause; 10] = [
        Cause::Key,
        Cause::Lease,
        Cause::Value,
        Cause::Room,
        Cause::Taken,
        Cause::Account,
        Cause::Node,
        Cause::Unfit,
        Cause::Untried,
        Cause::Uncalled,
    ];

    /// Its name, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Cause::Key => "invalid_key",
            Cause::Lease => "no_lease",
            Cause::Value => "invalid_value",
            Cause::Room => "no_room",
            Cause::Taken => "taken",
            Cause::Account => "account",
            Cause::Node => "no_node",
            Cause::Unfit => "unfit",
            Cause::Untried => "untried",
            Cause::Uncalled => "uncalled",
        }
    }
}

/// Something in the registry is wrong: never a reason not to serve.
pub(crate) fn warning(place: &str, field: &str, reason: String, remedy: &str) -> Problem {
    Problem {
        severity: Severity::Warning,
        file: place.into(),
        line: None,
        object: None,
        field: field.to_owned(),
        reason,
        remedy: remedy.to_owned(),
        cause: None,
    }
}

//! The outcome of registered providers.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ServiceName, Shared, WorkloadName};

/// The category of a problem in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The key is not a provider's.
    Key,
    /// The key has no lease.
    Lease,
    /// The value is invalid on its own.
    Value,
    /// A limit of keys or bytes is reached.
    Room,
    /// Another workload has its name, its address and port, or its machine.
    Taken,
    /// The folder does not allow its service account.
    Account,
    /// An address is outside of the mesh's ranges.
    Range,
    /// It names no node, in a mesh of several.
    Node,
    /// Compiling it causes an error in another object.
    Unfit,
    /// Not tried yet, because too many others do not fit.
    Untried,
    /// It is valid, but not an endpoint of any Service.
    Uncalled,
}

impl Cause {
    /// Every cause, once.
    pub const ALL: [Cause; 11] = [
        Cause::Key,
        Cause::Lease,
        Cause::Value,
        Cause::Room,
        Cause::Taken,
        Cause::Account,
        Cause::Range,
        Cause::Node,
        Cause::Unfit,
        Cause::Untried,
        Cause::Uncalled,
    ];

    /// The cause's name, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Cause::Key => "invalid_key",
            Cause::Lease => "no_lease",
            Cause::Value => "invalid_value",
            Cause::Room => "no_room",
            Cause::Taken => "taken",
            Cause::Account => "account",
            Cause::Range => "out_of_range",
            Cause::Node => "no_node",
            Cause::Unfit => "unfit",
            Cause::Untried => "untried",
            Cause::Uncalled => "uncalled",
        }
    }
}

/// The outcome of every registered provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of problems by cause. [`Cause::Room`] counts once for each limit that is reached.
    pub problems: BTreeMap<Cause, usize>,
    /// Providers by the Service in their key, whichever Service selects them.
    pub services: Shared<BTreeMap<ServiceName, Providing>>,
    /// Providers that are not in the mesh, with the reason.
    pub left_out: BTreeMap<WorkloadName, String>,
    /// Providers in the mesh that are not an endpoint of any Service.
    pub uncalled: BTreeSet<WorkloadName>,
}

/// The providers of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Providing {
    /// Providers that are endpoints.
    pub called: usize,
    /// All registered providers, valid or not.
    pub registered: usize,
}

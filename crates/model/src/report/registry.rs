//! What is to be said of workloads that registered by themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ServiceName, WorkloadName};

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

/// What has become of what registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many problems there are, by cause. Of [`Cause::Room`] one for each bound that is reached.
    pub problems: BTreeMap<Cause, usize>,
    /// Providers by the Service under whose name they registered, whichever Service selects them.
    pub services: BTreeMap<ServiceName, Providing>,
    /// Those that are not in the mesh, and why.
    pub left_out: BTreeMap<WorkloadName, String>,
    /// Those that are in the mesh and no Service's endpoint.
    pub uncalled: BTreeSet<WorkloadName>,
}

/// The providers of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Providing {
    /// Those that are endpoints.
    pub called: usize,
    /// All that have registered, right or wrong.
    pub registered: usize,
}

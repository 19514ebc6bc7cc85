//! Who asks.

use std::fmt;

use heddle_model::{ServiceAccountName, WorkloadName};

/// A source of questions. Each has its share of what may be asked and known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// A workload that calls from this node.
    Workload(WorkloadName),
    /// The account of lazy callers for which this node is a gateway.
    Lazy(ServiceAccountName),
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asker::Workload(workload) => write!(f, "{workload}"),
            Asker::Lazy(account) => write!(f, "account {account}"),
        }
    }
}

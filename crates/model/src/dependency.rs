//! What workloads depend on.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ServiceName;

/// Something that a workload calls, as the call names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Dependency {
    /// A Service, by its name.
    Service(ServiceName),
    /// An address: of a workload, of an endpoint, or a cluster address of a Service.
    Address(IpAddr),
}

/// What is known of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DependencyState {
    /// It is there, with all that belongs to it.
    There,
    /// Nothing has that name, or that address.
    Absent,
    /// This node cannot read what has that name.
    Unreadable,
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dependency::Service(service) => service.fmt(f),
            Dependency::Address(address) => address.fmt(f),
        }
    }
}

//! What workloads depend on.

use std::fmt;
use std::net::IpAddr;

use crate::ServiceName;

/// Something that a workload calls, as the call names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// A Service, by its name.
    Service(ServiceName),
    /// An address: of a workload, of an endpoint, or a cluster address of a Service.
    Address(IpAddr),
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dependency::Service(service) => service.fmt(f),
            Dependency::Address(address) => address.fmt(f),
        }
    }
}

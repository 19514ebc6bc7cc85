//! Where a request goes: the configuration snapshot, its hosts, its rules.

mod addresses;
mod cluster;
mod hosts;
mod known;
mod matcher;
mod snapshot;
mod spoken;

pub(crate) use addresses::{Addresses, Found};
pub(crate) use cluster::Cluster;
pub(crate) use hosts::{Hosts, service_of};
pub(crate) use known::Missing;
pub(crate) use matcher::{HTTP_PORT, Matcher, Request};
pub(crate) use snapshot::{Backend, PortEntry, PortIndex, Rule, RuleIndex, Snapshot, Target};
pub(crate) use spoken::Spoken;

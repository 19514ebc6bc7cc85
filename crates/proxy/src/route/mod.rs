//! Where a request goes: the configuration snapshot, its hosts, its rules.

mod addresses;
mod build;
mod cluster;
mod compile;
mod hosts;
mod known;
mod matcher;
mod names;
mod notable;
mod port;
mod rules;
mod snapshot;
mod source;
mod spoken;

pub(crate) use addresses::{Addresses, Found};
pub(crate) use cluster::Cluster;
pub(crate) use hosts::{Hosts, service_of};
pub(crate) use known::Missing;
pub(crate) use matcher::{HTTP_PORT, Matcher, Request};
pub(crate) use names::PortIndex;
pub(crate) use port::PortEntry;
pub(crate) use rules::{Backend, Rule, RuleIndex, Target};
pub(crate) use snapshot::Snapshot;
pub(crate) use spoken::Spoken;

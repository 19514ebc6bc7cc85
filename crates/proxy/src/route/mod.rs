//! Where a request goes: the configuration snapshot, its hosts, its rules.

mod hosts;
mod matcher;
mod snapshot;

pub(crate) use hosts::Hosts;
pub(crate) use matcher::{HTTP_PORT, Matcher, Request};
pub(crate) use snapshot::{Backend, PortIndex, Rule, Snapshot, Target};

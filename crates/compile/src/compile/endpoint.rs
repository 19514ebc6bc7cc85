//! The endpoints of a Service's port.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use heddle_model::{Endpoint, Workload, WorkloadName};

use super::context::ServiceContext;
use super::{Scope, did_you_mean};
use crate::check;
use crate::manifest::Kind;
use crate::manifest::core::{IntOrString, ServicePortSpec};
use crate::manifest::node::FieldPath;

/// The endpoints of a port: selected workloads and endpoint slices together, each address once.
pub(super) fn of_port(
    written: &ServicePortSpec,
    port: u16,
    selected: &[&Workload],
    context: &ServiceContext<'_>,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Vec<Endpoint> {
    let mut found = of_slices(written, context);
    let mut left_out = LeftOut::default();
    for workload in selected {
        let target = match &written.target_port {
            None => Some(port),
            // The API server treats 0 as absent.
            Some(IntOrString::Int(0)) => Some(port),
            Some(IntOrString::Int(number)) => {
                match scope.check(&at.field("targetPort"), check::port(*number)) {
                    Some(number) => Some(number),
                    None => break,
                }
            }
            Some(IntOrString::String(name)) => workload
                .ports
                .iter()
                .find(|port| port.name.as_deref() == Some(name))
                .map(|port| port.port),
        };
        let Some(port) = target else {
            // The workload's port may be the field with the error.
            let WorkloadName { namespace, name } = &workload.name;
            if !scope.is_refused(Kind::LocalWorkload, namespace, name) {
                left_out.unnamed.push(workload);
            }
            continue;
        };
        let is_registered = context.index.is_registered(&workload.name);
        if is_registered && workload.ports.iter().all(|own| own.port != port) {
            left_out.unregistered.push((*workload, port));
            continue;
        }
        let address = SocketAddr::new(workload.address, port);
        let before = found.get(&address).and_then(|one| one.workload.as_ref());
        let before = before.filter(|other| **other != workload.name);
        let owner = context.owners.declaring(address).map(|owner| &owner.name);
        let owner = owner.filter(|other| **other != workload.name);
        // Of an address that the folder's EndpointSlices have, no registered provider changes the owner.
        if let Some(other) = owner.or(before.filter(|_| is_registered)) {
            // The address may be what is wrong with the workload.
            let WorkloadName { namespace, name } = &workload.name;
            if scope.is_refused(Kind::LocalWorkload, namespace, name) {
                continue;
            }
            scope.error(
                &at.field("targetPort"),
                format!(
                    "port {port} of LocalWorkload {} is that of LocalWorkload {other}, \
                     which has the same address",
                    workload.name
                ),
                "write the port of the selected workload, or select the other one",
            );
            continue;
        }
        if let Some(other) = before {
            scope.warn(
                &at.field("targetPort"),
                format!(
                    "port {port} of {} counts as LocalWorkload {}'s and not as LocalWorkload \
                     {other}'s: both have that address, and neither declares the port",
                    address.ip(),
                    workload.name
                ),
                "declare it in spec.ports of the one that listens there",
            );
        }
        found.insert(
            address,
            Endpoint {
                address,
                weight: workload.weight,
                max_requests: context.rooms.get(&workload.name).copied(),
                workload: Some(workload.name.clone()),
                remote_workload: None,
                account: Some(workload.service_account.clone()),
                node: workload.node.clone(),
                has_envoy: workload.proxy.is_envoy(),
            },
        );
    }
    left_out.say(written, at, scope);
    found.into_values().collect()
}

/// The endpoints of a port from the Service's EndpointSlices.
fn of_slices(
    written: &ServicePortSpec,
    context: &ServiceContext<'_>,
) -> BTreeMap<SocketAddr, Endpoint> {
    let mut found = BTreeMap::new();
    for slice in context.slices {
        for address in slice.endpoints(written.port_name()) {
            if context.index.is_closed(address) {
                continue;
            }
            // An address of a workload counts as that workload, whichever slice names it; a workload with several
            // addresses counts once.
            let owner = context.owners.of(address);
            let ip = owner.map_or(address.ip(), |workload| workload.address);
            let address = SocketAddr::new(ip, address.port());
            found.insert(
                address,
                Endpoint {
                    address,
                    weight: 1,
                    max_requests: owner
                        .and_then(|workload| context.rooms.get(&workload.name).copied())
                        .or(slice.max_requests),
                    workload: owner.map(|workload| workload.name.clone()),
                    remote_workload: None,
                    account: owner.map(|workload| workload.service_account.clone()),
                    node: owner.and_then(|workload| workload.node.clone()),
                    has_envoy: owner.is_some_and(|workload| workload.proxy.is_envoy()),
                },
            );
        }
    }
    found
}

/// Selected workloads that are not endpoints of a port.
#[derive(Default)]
struct LeftOut<'w> {
    /// Workloads without a port of that name.
    unnamed: Vec<&'w Workload>,
    /// Providers that are registered at another port. A provider is called only at its registered ports: another port
    /// of its address may be another workload's.
    unregistered: Vec<(&'w Workload, u16)>,
}

impl LeftOut<'_> {
    fn say(&self, written: &ServicePortSpec, at: &FieldPath, scope: &mut Scope<'_>) {
        let more = |all: usize| match all - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        if let (Some(first), Some(IntOrString::String(name))) =
            (self.unnamed.first(), &written.target_port)
        {
            let ports = first.ports.iter().filter_map(|port| port.name.as_deref());
            let remedy = did_you_mean(name, ports, "name the port there, or give its number here");
            let more = more(self.unnamed.len());
            scope.warn(
                &at.field("targetPort"),
                format!(
                    "LocalWorkload {}{more} has no port named {name:?} and is left out",
                    first.name
                ),
                remedy,
            );
        }
        if let Some((first, port)) = self.unregistered.first() {
            let more = more(self.unregistered.len());
            let name = first.ports.iter().find_map(|port| port.name.as_deref());
            let remedy = match name {
                Some(name) => format!("write the name of the port that it registers: {name}"),
                None => "write the port that it registers".to_owned(),
            };
            scope.warn(
                &at.field("targetPort"),
                format!(
                    "LocalWorkload {}{more} registered without port {port} and is left out",
                    first.name
                ),
                remedy,
            );
        }
    }
}

//! The resources of a node, by what they are about.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use heddle_model::{
    BackendTarget, Endpoint, Node, NodeName, Outcome, Policy, PolicyName, Service, ServiceName,
    ServicePort, Shared, Workload, WorkloadName,
};

use super::place::Place;
use crate::resources::{AddressOf, Settings};

/// The resources by type and name, and who refers to what.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) settings: Option<Settings>,
    pub(super) nodes: BTreeMap<NodeName, Node>,
    pub(super) addresses: BTreeMap<IpAddr, AddressOf>,
    pub(super) policies: BTreeMap<PolicyName, Arc<Policy>>,
    pub(super) workloads: BTreeMap<WorkloadName, Shared<Workload>>,
    pub(super) services: BTreeMap<ServiceName, Service>,
    /// By Service and port, with their workload in whichever field it came.
    pub(super) endpoints: BTreeMap<(ServiceName, u16, SocketAddr), Endpoint>,
    /// The Services that have a cluster address. It belongs to the first of them.
    claims: BTreeMap<IpAddr, BTreeSet<ServiceName>>,
    /// The Services that the routes of a Service lead to; only of those that have such routes.
    targets: BTreeMap<ServiceName, BTreeSet<ServiceName>>,
}

impl Parts {
    /// The workloads on the node.
    pub(super) fn workloads<'p>(
        &'p self,
        place: &'p Place<'_>,
    ) -> impl Iterator<Item = &'p Shared<Workload>> {
        self.workloads.values().filter(|workload| {
            place.is_here(workload.node.as_ref()) && place.can_be_account(&workload.service_account)
        })
    }

    /// The workloads of other nodes that policies select.
    pub(super) fn judged<'p>(
        &'p self,
        place: &'p Place<'_>,
    ) -> impl Iterator<Item = &'p Shared<Workload>> {
        self.workloads.values().filter(|workload| {
            !workload.policies.is_empty() && !place.is_here(workload.node.as_ref())
        })
    }

    /// The addresses of workloads on other nodes, and the first addresses of their workloads.
    pub(super) fn elsewhere(&self, place: &Place<'_>) -> (Vec<IpAddr>, Vec<(IpAddr, IpAddr)>) {
        let (mut elsewhere, mut further) = (BTreeSet::new(), Vec::new());
        for (&address, of) in &self.addresses {
            let others = of.holders.iter();
            let others = others.filter(|holder| !place.is_here(holder.node.as_ref()));
            // Of no holder there, or of all: the first address of one workload is no further one of another.
            let Some(firsts) = others
                .map(|holder| holder.first)
                .reduce(|one, next| one.and(next))
            else {
                continue;
            };
            elsewhere.insert(address);
            if let Some(first) = firsts {
                further.push((address, first));
                // The resource of that address may be missing.
                elsewhere.insert(first);
            }
        }
        (elsewhere.into_iter().collect(), further)
    }

    /// Notes what the resource of a Service says now, and no longer what it said `before`. Returns the Services whose
    /// cluster addresses may depend on that.
    pub(super) fn follow(
        &mut self,
        name: &ServiceName,
        before: Option<&Service>,
    ) -> Vec<ServiceName> {
        let mut others = Vec::new();
        for address in before.iter().flat_map(|service| &service.addresses) {
            let Some(claims) = self.claims.get_mut(address) else {
                continue;
            };
            claims.remove(name);
            others.extend(claims.iter().cloned());
            if claims.is_empty() {
                self.claims.remove(address);
            }
        }
        self.targets.remove(name);
        let Some(now) = self.services.get(name) else {
            return others;
        };
        for address in &now.addresses {
            let claims = self.claims.entry(*address).or_default();
            others.extend(claims.iter().cloned());
            claims.insert(name.clone());
        }
        let targets = targets(now);
        if !targets.is_empty() {
            self.targets.insert(name.clone(), targets);
        }
        others
    }

    /// Whether a cluster address that a Service claims is its own.
    pub(super) fn is_first(&self, address: &IpAddr, service: &ServiceName) -> bool {
        let claims = self.claims.get(address);
        claims.and_then(BTreeSet::first) == Some(service)
    }

    /// The Services with routes that lead to some of these.
    pub(super) fn referring(
        &self,
        to: &BTreeSet<ServiceName>,
    ) -> impl Iterator<Item = ServiceName> {
        let all = self.targets.iter();
        let referring = all.filter(|(_, targets)| !targets.is_disjoint(to));
        referring.map(|(name, _)| name.clone())
    }

    /// The Services with endpoints that are some of these workloads.
    pub(super) fn with_endpoints(
        &self,
        workloads: &BTreeSet<WorkloadName>,
    ) -> impl Iterator<Item = ServiceName> {
        // Most changes are about other things.
        let all = (!workloads.is_empty()).then_some(&self.endpoints);
        let is_one = |endpoint: &Endpoint| {
            let name = endpoint.workload_name();
            name.is_some_and(|name| workloads.contains(name))
        };
        let found = all.into_iter().flatten();
        let found = found.filter(move |(_, endpoint)| is_one(endpoint));
        found.map(|((service, ..), _)| service.clone())
    }

    /// The endpoints of a Service's port, by address.
    pub(super) fn endpoints_of(
        &self,
        service: &ServiceName,
        port: u16,
    ) -> impl Iterator<Item = &Endpoint> {
        // The least of all addresses.
        let least = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let from = self.endpoints.range((service.clone(), port, least)..);
        let of_port = from.take_while(move |((of, at, _), _)| *at == port && of == service);
        of_port.map(|(_, endpoint)| endpoint)
    }
}

/// The Services that the routes of a Service lead to.
fn targets(service: &Service) -> BTreeSet<ServiceName> {
    let rules = service.ports.iter().flat_map(ServicePort::all_rules);
    let backends = rules.filter_map(|rule| match &rule.action.outcome {
        Outcome::Forward(backends) => Some(backends),
        Outcome::Redirect(_) => None,
    });
    let targets = backends
        .flatten()
        .filter_map(|backend| match &backend.target {
            BackendTarget::Service { service, .. } => Some(service.clone()),
            BackendTarget::Unresolved { .. } => None,
        });
    targets.collect()
}

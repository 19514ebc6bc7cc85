//! One port of one Service: its routes, and the endpoints for requests without a route.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use heddle_model::{
    AppProtocol, Namespace, NodeName, Service, ServiceAccountName, ServiceName, ServicePort,
    Shared, WorkloadName,
};

use super::Request;
use super::cluster::Cluster;
use super::names::PortIndex;
use super::rules::{RouteTable, Rule, RuleIndex, Target};

/// A port. Snapshots share it as long as nothing that it is compiled from has changed: its Service, the nodes that its
/// endpoints are on, and the indices of the ports that its routes lead to.
#[derive(Debug)]
pub(crate) struct PortEntry {
    /// Name of the Service, or of the entry's other subject, in metrics and logs.
    pub(crate) label: Arc<str>,
    /// The Service and the number of its port; `None` if the entry belongs to no Service.
    pub(crate) name: Option<(ServiceName, u16)>,
    pub(crate) protocol: AppProtocol,
    pub(crate) cluster: Cluster,
    /// What it was compiled from; `None` if the entry belongs to no Service.
    pub(super) service: Option<Shared<Service>>,
    /// The nodes through which endpoints would be reached, and whose addresses are not known.
    pub(super) unreached: Box<[NodeName]>,
    /// The rules of all tables, one table after the other.
    pub(super) rules: Box<[Rule]>,
    pub(super) routes: Option<RouteTable>,
    pub(super) consumer_routes: HashMap<Namespace, RouteTable>,
}

impl PortEntry {
    /// An entry without endpoints and routes.
    pub(super) fn bare(label: Arc<str>, protocol: AppProtocol) -> Self {
        PortEntry {
            label,
            name: None,
            protocol,
            cluster: Cluster::default(),
            service: None,
            unreached: Box::default(),
            rules: Box::default(),
            routes: None,
            consumer_routes: HashMap::default(),
        }
    }

    /// The Service's port that it was compiled from.
    pub(super) fn written(&self) -> Option<(&Shared<Service>, &ServicePort)> {
        let (service, (_, number)) = (self.service.as_ref()?, self.name.as_ref()?);
        Some((service, service.port(*number)?))
    }

    /// Whether a workload of this node has this endpoint of the port and this identity, so that other nodes may call it
    /// here.
    pub(crate) fn hosts(&self, endpoint: SocketAddr, account: &ServiceAccountName) -> bool {
        let hosted = self.cluster.hosted(endpoint);
        hosted.is_some_and(|hosted| hosted.account == *account)
    }

    /// The next endpoint of this node with this identity, for a stock proxy that names only the port.
    pub(crate) fn next_hosted(&self, account: &ServiceAccountName) -> Option<SocketAddr> {
        self.cluster.next_hosted(account)
    }

    /// The workload of this node that is an endpoint of the port at that address, unless it has an Envoy of its own.
    pub(crate) fn workload_at(&self, endpoint: SocketAddr) -> Option<&WorkloadName> {
        self.cluster.hosted(endpoint).map(|hosted| &hosted.workload)
    }

    /// The rules for a caller; `None` when requests go directly to the port's endpoints.
    pub(crate) fn routes(&self, caller: Option<&Namespace>) -> Option<&RouteTable> {
        if self.consumer_routes.is_empty() {
            return self.routes.as_ref();
        }
        caller
            .and_then(|namespace| self.consumer_routes.get(namespace))
            .or(self.routes.as_ref())
    }

    /// The first rule of one of the port's tables that matches.
    pub(crate) fn rule_for<F>(&self, table: &RouteTable, request: &Request<'_, F>) -> Option<&Rule>
    where
        F: Fn(&[u8], &mut dyn FnMut(&[u8])),
    {
        table.find(&self.rules, request)
    }

    /// The rule at an index of this port.
    pub(crate) fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[index.get()]
    }

    /// The ports that its rules lead to.
    pub(super) fn targets(&self) -> impl Iterator<Item = PortIndex> {
        let backends = self.rules.iter().flat_map(|rule| &rule.action.backends);
        backends.filter_map(|backend| match backend.target {
            Target::Port(index) => Some(index),
            Target::Unresolved => None,
        })
    }
}

//! The mesh of one node, from its resources.
//!
//! Resources arrive one by one, so what one refers to may be missing, or be older or newer than the reference. A mesh
//! must hold its invariants at any time; so what would break them is left out until it fits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use heddle_model::{
    BackendTarget, Endpoint, Mesh, Node, NodeName, Outcome, Policy, PolicyName, RouteAction,
    RouteRule, Service, ServiceAccountName, ServiceName, ServicePort, Shared, SpiffeId, Workload,
    WorkloadName,
};

use super::{AddressOf, Resource, Settings};

/// The mesh of a node, from everything that the node has: MeshSettings, all Nodes, Addresses, Services and Endpoints,
/// the Workloads of the node, and the Policies that they name. Their order does not matter. Of two resources with one
/// name the last one counts, and Workloads of other nodes and Policies that no Workload names are ignored.
///
/// From all resources of a mesh the result is its [`Mesh::for_node`], with 0 as its generation. From any other ones
/// it is a mesh that holds its invariants, apart from policies: a workload stays although a policy that it names is
/// missing, and its guard refuses every call. What is missing has these effects:
///
/// - MeshSettings: `None`, because no identity is known.
/// - The Service of an endpoint, or its port: the endpoint is left out.
/// - The workload of an endpoint on this node, or the workload has another address or account: the endpoint is left
///   out.
/// - The Service of a backend, or its port: the backend is unresolved.
///
/// A cluster address of two Services belongs to the first of them by name. What has an identity too long for the
/// trust domain is left out.
pub fn join<'r>(
    resources: impl IntoIterator<Item = &'r Resource>,
    node: &'r NodeName,
) -> Option<Mesh> {
    let parts = Parts::new(resources);
    let place = Place {
        settings: parts.settings?,
        node,
    };
    let workloads: Vec<Shared<Workload>> = parts.workloads(&place).cloned().collect();
    let needed: BTreeSet<&PolicyName> = workloads
        .iter()
        .flat_map(|workload| &workload.policies)
        .collect();
    let policies = parts.policies.iter();
    let policies = policies.filter(|(name, _)| needed.contains(*name));
    let policies = policies.map(|(_, policy)| Arc::clone(policy)).collect();
    let nodes = parts.nodes.values().copied();
    let (elsewhere, further) = parts.elsewhere(&place);
    Some(Mesh {
        generation: 0,
        trust_domain: place.settings.trust_domain.clone(),
        nodes: nodes
            .filter(|node| place.can_be_node(&node.name))
            .cloned()
            .collect(),
        services: parts.services(&place),
        workloads,
        policies,
        elsewhere,
        further,
        named: None,
    })
}

/// The node, and what holds for the mesh.
struct Place<'r> {
    settings: &'r Settings,
    node: &'r NodeName,
}

impl Place<'_> {
    /// Whether what names this node, or none, is on the node.
    fn is_here(&self, node: Option<&NodeName>) -> bool {
        node.map_or(self.settings.single_node, |node| node == self.node)
    }

    /// Whether a TLS client can ask for workloads of the account.
    fn can_be_account(&self, account: &ServiceAccountName) -> bool {
        let domain = self.settings.trust_domain.clone();
        let id = SpiffeId::workload(domain, account.clone());
        id.server_name().is_some()
    }

    fn can_be_node(&self, node: &NodeName) -> bool {
        let domain = self.settings.trust_domain.clone();
        let id = SpiffeId::node(domain, node.clone());
        id.server_name().is_some()
    }
}

/// The resources by type and name.
#[derive(Default)]
struct Parts<'r> {
    settings: Option<&'r Settings>,
    nodes: BTreeMap<&'r NodeName, &'r Node>,
    addresses: BTreeMap<IpAddr, &'r AddressOf>,
    policies: BTreeMap<&'r PolicyName, &'r Arc<Policy>>,
    workloads: BTreeMap<&'r WorkloadName, &'r Shared<Workload>>,
    services: BTreeMap<&'r ServiceName, &'r Service>,
    endpoints: BTreeMap<(&'r ServiceName, u16), BTreeMap<SocketAddr, &'r Endpoint>>,
}

impl<'r> Parts<'r> {
    fn new(resources: impl IntoIterator<Item = &'r Resource>) -> Self {
        let mut parts = Self::default();
        for resource in resources {
            parts.add(resource);
        }
        parts
    }

    fn add(&mut self, resource: &'r Resource) {
        match resource {
            Resource::MeshSettings(settings) => self.settings = Some(settings),
            Resource::Node(node) => {
                self.nodes.insert(&node.name, node);
            }
            Resource::Address(address) => {
                self.addresses.insert(address.address, address);
            }
            Resource::Policy(policy) => {
                self.policies.insert(&policy.name, policy);
            }
            Resource::Workload(workload) => {
                self.workloads.insert(&workload.name, workload);
            }
            Resource::Service(service) => {
                self.services.insert(&service.name, service);
            }
            Resource::Endpoint(of) => {
                let port = self.endpoints.entry((&of.service, of.port)).or_default();
                port.insert(of.endpoint.address, &of.endpoint);
            }
        }
    }

    /// The workloads on the node.
    fn workloads<'p>(
        &'p self,
        place: &'p Place<'_>,
    ) -> impl Iterator<Item = &'r Shared<Workload>> + 'p {
        let workloads = self.workloads.values().copied();
        workloads.filter(|workload| {
            place.is_here(workload.node.as_ref()) && place.can_be_account(&workload.service_account)
        })
    }

    /// The addresses of workloads on other nodes, and the first addresses of their workloads.
    fn elsewhere(&self, place: &Place<'_>) -> (Vec<IpAddr>, Vec<(IpAddr, IpAddr)>) {
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

    fn services(&self, place: &Place<'_>) -> Vec<Shared<Service>> {
        let mut taken = BTreeSet::new();
        let services = self.services.values().map(|service| {
            let mut joined = (*service).clone();
            joined.addresses.retain(|address| taken.insert(*address));
            let mut resolved = Resolved::default();
            for port in &mut joined.ports {
                port.endpoints = self.endpoints(place, (&service.name, port.port));
                self.resolve(port, &mut resolved);
            }
            joined.into()
        });
        services.collect()
    }

    fn endpoints(&self, place: &Place<'_>, port: (&ServiceName, u16)) -> Vec<Endpoint> {
        let endpoints = self.endpoints.get(&port).into_iter().flatten();
        endpoints
            .filter_map(|(_, endpoint)| self.endpoint(place, endpoint))
            .collect()
    }

    fn endpoint(&self, place: &Place<'_>, endpoint: &Endpoint) -> Option<Endpoint> {
        let account = endpoint.account.as_ref();
        if account.is_some_and(|account| !place.can_be_account(account)) {
            return None;
        }
        let mut joined = endpoint.clone();
        let workload = joined.workload.take().or(joined.remote_workload.take());
        if !place.is_here(endpoint.node.as_ref()) {
            joined.remote_workload = workload;
            return Some(joined);
        }
        if let Some(name) = &workload {
            let known = self.workloads.get(name);
            known.filter(|known| endpoint.is_of(known))?;
        }
        joined.workload = workload;
        Some(joined)
    }

    /// Replaces references to Services that are missing.
    fn resolve(&self, port: &mut ServicePort, resolved: &mut Resolved) {
        let lists = port.routes.iter_mut();
        let lists = lists.chain(port.consumer_routes.values_mut());
        for rule in lists.flatten() {
            self.resolve_rule(rule, resolved);
        }
    }

    fn resolve_rule(&self, rule: &mut RouteRule, resolved: &mut Resolved) {
        let key = Arc::as_ptr(&rule.action);
        let replacement = resolved
            .entry(key)
            .or_insert_with(|| self.resolved(&rule.action));
        if let Some(action) = replacement {
            rule.action = Arc::clone(action);
        }
    }

    /// The action with its missing backends unresolved; `None` if none is missing.
    fn resolved(&self, action: &RouteAction) -> Option<Arc<RouteAction>> {
        let Outcome::Forward(backends) = &action.outcome else {
            return None;
        };
        let is_missing = |target: &BackendTarget| match target {
            BackendTarget::Unresolved { .. } => false,
            BackendTarget::Service { service, port } => {
                let known = self.services.get(service);
                known.and_then(|known| known.port(*port)).is_none()
            }
        };
        if !backends.iter().any(|backend| is_missing(&backend.target)) {
            return None;
        }
        let mut backends = backends.clone();
        for backend in &mut backends {
            if let BackendTarget::Service { service, port } = &backend.target
                && is_missing(&backend.target)
            {
                let reason = format!("the node does not know port {port} of the Service {service}");
                backend.target = BackendTarget::Unresolved { reason };
            }
        }
        Some(Arc::new(RouteAction {
            filters: action.filters.clone(),
            outcome: Outcome::Forward(backends),
            request_timeout_ms: action.request_timeout_ms,
            backend_timeout_ms: action.backend_timeout_ms,
        }))
    }
}

/// Replacements of the actions of a Service, by the address of the original, which lives in its resource. `None`: the
/// original stays.
type Resolved = BTreeMap<*const RouteAction, Option<Arc<RouteAction>>>;

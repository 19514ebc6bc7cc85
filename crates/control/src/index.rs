//! Which resources belong to a Service, and which Services to an address: for nodes that name what they use.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use foldhash::HashMap;
use heddle_model::{BackendTarget, NodeName, Outcome, Service};
use heddle_xds::delta::Name;
use heddle_xds::resources::Type;

/// The Services of a mesh. Names are those of resources.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Index {
    services: HashMap<Name, Bound>,
    /// Sorted; few have more than one, so a list is smaller than a set.
    by_address: HashMap<IpAddr, Vec<Name>>,
    /// The nodes whose workloads have an address.
    nodes: HashMap<IpAddr, Vec<Name>>,
}

/// What belongs to one Service.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Bound {
    /// Its endpoints.
    pub(super) endpoints: Vec<Name>,
    /// The Services that its routes lead to, whatever the namespace of a caller.
    pub(super) backends: BTreeSet<Name>,
    /// The nodes that its endpoints are on.
    pub(super) nodes: BTreeSet<Name>,
    /// Its cluster addresses.
    pub(super) addresses: Vec<IpAddr>,
}

impl Bound {
    /// What belongs to a Service with these endpoints. `name` gives the name of a resource.
    pub(super) fn of(
        service: &Service,
        endpoints: Vec<Name>,
        name: impl Fn(Type, &str) -> Name,
    ) -> Self {
        let (backends, nodes) = (backends(service), nodes(service).into_iter());
        Bound {
            endpoints,
            backends: backends
                .map(|backend| name(Type::Service, &backend))
                .collect(),
            nodes: nodes.map(|node| name(Type::Node, node.as_str())).collect(),
            addresses: service.addresses.clone(),
        }
    }

    /// All its addresses, some of them several times.
    fn all_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let endpoints = self.endpoints.iter();
        let endpoints = endpoints.filter_map(|endpoint| address_of(endpoint));
        self.addresses.iter().copied().chain(endpoints)
    }
}

impl Index {
    /// Sets what belongs to a Service; `None`: there is none of that name any more.
    pub(super) fn put(&mut self, service: Name, bound: Option<Bound>) {
        if let Some(before) = self.services.remove(&service) {
            for address in before.all_addresses() {
                if let Some(services) = self.by_address.get_mut(&address) {
                    if let Ok(at) = services.binary_search(&service) {
                        services.remove(at);
                    }
                    if services.is_empty() {
                        self.by_address.remove(&address);
                    }
                }
            }
        }
        if let Some(bound) = bound {
            for address in bound.all_addresses() {
                let services = self.by_address.entry(address);
                let services = services.or_insert_with(|| Vec::with_capacity(1));
                if let Err(at) = services.binary_search(&service) {
                    services.insert(at, service.clone());
                }
            }
            self.services.insert(service, bound);
        }
    }

    /// Sets the nodes whose workloads have an address.
    pub(super) fn put_address(&mut self, address: IpAddr, nodes: Vec<Name>) {
        match nodes.is_empty() {
            true => drop(self.nodes.remove(&address)),
            false => drop(self.nodes.insert(address, nodes)),
        }
    }

    /// The nodes whose workloads have an address.
    pub(super) fn nodes_at(&self, address: IpAddr) -> impl Iterator<Item = &Name> {
        self.nodes.get(&address).into_iter().flatten()
    }

    /// What belongs to a Service; `None` if there is none of that name.
    pub(super) fn service(&self, name: &str) -> Option<&Bound> {
        self.services.get(name)
    }

    /// The Services that have an address, as cluster address or as that of an endpoint.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &Name> {
        self.by_address.get(&address).into_iter().flatten()
    }
}

/// The nodes that a Service's endpoints are on.
pub(super) fn nodes(service: &Service) -> BTreeSet<&NodeName> {
    let endpoints = service.endpoints();
    endpoints
        .filter_map(|endpoint| endpoint.node.as_ref())
        .collect()
}

/// The names of the Services that a Service's routes lead to.
fn backends(service: &Service) -> impl Iterator<Item = String> + '_ {
    let rules = service.ports.iter().flat_map(|port| port.all_rules());
    let backends = rules.flat_map(|rule| match &rule.action.outcome {
        Outcome::Forward(backends) => backends.as_slice(),
        Outcome::Redirect(_) => &[],
    });
    backends.filter_map(|backend| match &backend.target {
        BackendTarget::Service { service, .. } => Some(service.to_string()),
        BackendTarget::Unresolved { .. } => None,
    })
}

/// The Service in the name of an endpoint: NAMESPACE/SERVICE of NAMESPACE/SERVICE/PORT/IP:PORT.
pub(super) fn service_of(endpoint: &str) -> Option<&str> {
    let (namespace_end, _) = endpoint.match_indices('/').nth(1)?;
    endpoint.get(..namespace_end)
}

/// The address in the name of an endpoint.
pub(super) fn address_of(endpoint: &str) -> Option<IpAddr> {
    let (_, address) = endpoint.rsplit_once('/')?;
    let address: SocketAddr = address.parse().ok()?;
    Some(address.ip())
}

//! Which resources belong to a Service, and which Services to an address: for nodes that name what they use.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use heddle_model::{BackendTarget, Mesh, Outcome, Service};
use heddle_xds::delta::Name;

/// The Services of a mesh. Names are those of resources.
#[derive(Debug, Default)]
pub(super) struct Index {
    services: HashMap<Name, Bound>,
    by_address: HashMap<IpAddr, BTreeSet<Name>>,
}

/// What belongs to one Service.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// Its endpoints.
    pub(super) endpoints: Vec<Name>,
    /// The Services that its routes lead to, whatever the namespace of a caller.
    pub(super) backends: BTreeSet<Name>,
    /// Its cluster addresses.
    pub(super) addresses: Vec<IpAddr>,
}

impl Index {
    /// `endpoints` are the names of all endpoints; `name` gives the name of a Service's resource.
    pub(super) fn new<'e>(
        mesh: &Mesh,
        endpoints: impl Iterator<Item = &'e Name>,
        name: impl Fn(&str) -> Name,
    ) -> Self {
        let mut index = Index::default();
        for service in &mesh.services {
            let of = name(&service.name.to_string());
            for &address in &service.addresses {
                index.add_address(address, &of);
            }
            let bound = Bound {
                endpoints: Vec::new(),
                backends: backends(service).map(|backend| name(&backend)).collect(),
                addresses: service.addresses.clone(),
            };
            index.services.insert(of, bound);
        }
        for endpoint in endpoints {
            let service = service_of(endpoint);
            let known = service.and_then(|service| index.services.get_key_value(service));
            let Some(of) = known.map(|(of, _)| of.clone()) else {
                continue;
            };
            if let Some(bound) = index.services.get_mut(&of) {
                bound.endpoints.push(endpoint.clone());
            }
            if let Some(address) = address_of(endpoint) {
                index.add_address(address, &of);
            }
        }
        index
    }

    fn add_address(&mut self, address: IpAddr, service: &Name) {
        let services = self.by_address.entry(address).or_default();
        services.insert(service.clone());
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

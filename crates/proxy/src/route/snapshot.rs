//! The configuration in the form that Workers use: built once for each change, then only read.
//!
//! Names are replaced by indices. A Service's port is a [`Cluster`] and an entry at the same index, so a backend is one
//! number. After the ports of Services there is an entry for each workload of this node, for its ports that belong to
//! no Service, and one for everything outside of the mesh.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_model::{
    AppProtocol, BackendTarget, Class, Endpoint, Filters, Mesh, Namespace, Outcome, PathMatch,
    RouteAction, RouteRule, Service, ServiceAccountName, ServiceName, ServicePort, WorkloadName,
};

use super::known::{Known, Mark};
use super::{Addresses, Cluster, Hosts, Matcher, Request};
use crate::authorize::Guards;
use crate::entry::Entry;
use crate::entry::What;
use crate::permits::{CalledShares, Share};
use crate::place::{Place, Via, Way};
use crate::rooms::Keeper;

/// Name of destinations outside of the mesh, in metrics and logs.
const OUTSIDE: &str = "external";

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Index of a Service's port in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PortIndex(u32);

/// The parts of the mesh that Workers need.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Unique within the process, even for equal generations.
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) hosts: Hosts,
    pub(crate) guards: Guards,
    pub(crate) addresses: Addresses,
    /// What the node has named; `None` if the mesh has everything.
    pub(super) known: Option<Known>,
    /// The shares of connections from other nodes, one for each workload of this node and one for all other calls.
    pub(crate) called: CalledShares,
    pub(super) ports: Vec<PortEntry>,
    /// The rules of all tables, one table after the other.
    rules: Vec<Rule>,
    pub(super) by_name: HashMap<(ServiceName, u16), PortIndex, RandomState>,
    by_workload: HashMap<WorkloadName, PortIndex, RandomState>,
    outside: PortIndex,
    /// Names of the workloads of this node that are offline.
    pub(crate) offline: Arc<HashSet<Arc<str>>>,
}

/// One port of one Service: its routes, and the endpoints for requests without a route.
#[derive(Debug)]
pub(crate) struct PortEntry {
    /// Name of the Service, or of the entry's other subject, in metrics and logs.
    pub(crate) label: Arc<str>,
    /// The Service and the number of its port; `None` if the entry belongs to no Service.
    pub(crate) name: Option<(ServiceName, u16)>,
    pub(crate) protocol: AppProtocol,
    pub(crate) cluster: Cluster,
    /// Whether a caller of this node has used the port.
    pub(super) used: Mark,
    /// Whether a policy checks the paths of requests that may reach these endpoints.
    judges_paths: bool,
    routes: Option<RouteTable>,
    consumer_routes: HashMap<Namespace, RouteTable>,
}

/// Index of a rule in a snapshot, plus one. A request holds a number and not an `Arc`: all Workers would share its
/// reference count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RuleIndex(NonZeroU32);

/// Rules in order of precedence.
#[derive(Debug)]
pub(crate) struct RouteTable {
    rules: Range<usize>,
    /// Whether a rule depends on the path. If so, a path that two programs could interpret differently is refused.
    strict_paths: bool,
}

/// One match of one route.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) index: RuleIndex,
    /// `namespace/route`.
    pub(crate) label: Arc<str>,
    pub(crate) path: PathMatch,
    pub(crate) action: Action,
    matcher: Matcher,
}

/// How the requests of a rule are handled.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) route: Arc<RouteAction>,
    pub(crate) backends: Vec<Backend>,
    pub(crate) total_weight: u64,
}

/// One backend of a rule.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) weight: u32,
    pub(crate) target: Target,
    pub(crate) filters: Filters,
}

/// Where a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Port(PortIndex),
    /// The reference has no target; this backend's share of requests is answered 500.
    Unresolved,
}

/// Names of the workloads whose work may wait.
fn offline(mesh: &Mesh) -> HashSet<Arc<str>> {
    let workloads = mesh.workloads.iter();
    let offline = workloads.filter(|workload| workload.qos.class == Class::Offline);
    offline
        .map(|workload| workload.name.to_string().into())
        .collect()
}

impl Snapshot {
    /// Compiles a mesh.
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let mut by_name = HashMap::default();
        let all = || {
            mesh.services
                .iter()
                .flat_map(|s| s.ports.iter().map(move |port| (s, port)))
        };
        for (index, (service, port)) in (0..).zip(all()) {
            by_name.insert((service.name.clone(), port.port), PortIndex(index));
        }
        let mut compiler = Compiler {
            mesh,
            by_name: &by_name,
            rules: Vec::new(),
        };
        let mut ports: Vec<PortEntry> = all()
            .map(|(service, port)| compiler.port(service, port))
            .collect();
        let guards = Guards::new(mesh);
        let rules = compiler.rules;
        judge_paths(&mut ports, &rules, &guards);
        let numbered = (0..).map(PortIndex).zip(all());
        let numbered = numbered.map(|(index, (service, port))| (index, &**service, port));
        let addresses = Addresses::new(mesh, numbered);
        let mut by_workload = HashMap::default();
        for workload in &mesh.workloads {
            by_workload.insert(workload.name.clone(), index_of(ports.len()));
            let protocol = AppProtocol::Undeclared;
            ports.push(PortEntry::bare(workload.name.to_string().into(), protocol));
        }
        let outside = index_of(ports.len());
        ports.push(PortEntry::bare(OUTSIDE.into(), AppProtocol::Tcp));
        Snapshot {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            generation: mesh.generation,
            hosts: Hosts::new(mesh.services.iter().map(|service| &service.name)),
            guards,
            addresses,
            known: Known::new(mesh),
            called: CalledShares::default(),
            ports,
            rules,
            by_name,
            by_workload,
            outside,
            offline: Arc::new(offline(mesh)),
        }
    }

    /// Gives each port the rooms of its endpoints, keeping existing ones. `mesh` must be the one that this snapshot was
    /// compiled from.
    pub(crate) fn furnish(&mut self, mesh: &Mesh, keeper: &mut Keeper, now: Instant) {
        let services = mesh.services.iter();
        let all = services.flat_map(|s| s.ports.iter().map(move |port| (s, port)));
        for (entry, (service, port)) in self.ports.iter_mut().zip(all) {
            let places = entry.cluster.endpoints.iter();
            let addresses: Vec<SocketAddr> = places.map(|place| place.address).collect();
            entry.cluster.rooms = keeper.rooms(service, port, &addresses, now);
        }
        let by_name = &self.by_name;
        keeper.forget(|service, port| by_name.contains_key(&(service.clone(), port)));
    }

    /// The port that a listener or a connection leads to. `None` if each request names its own, or if the port no
    /// longer exists.
    pub(crate) fn port_of(&self, entry: &Entry) -> Option<PortIndex> {
        match entry {
            Entry::Service { service, port, .. } => self.find(service, *port),
            Entry::Inbound(inbound) => self.find(&inbound.service, inbound.port),
            Entry::Direct(direct) => match &direct.what {
                What::Endpoint { service, port, .. } => self.find(service, *port),
                What::Workload(workload) => self.by_workload.get(workload).copied(),
                What::Outside => Some(self.outside),
            },
            Entry::ForwardProxy { .. }
            | Entry::Mesh
            | Entry::Outbound { .. }
            | Entry::Arriving { .. } => None,
        }
    }

    /// The share that counts a connection from another node, by the endpoint that it calls: the share of that workload
    /// of this node, else the one of all calls that match nothing here. `None` before there is a mesh.
    pub(crate) fn called(
        &self,
        service: &ServiceName,
        port: u16,
        endpoint: SocketAddr,
    ) -> Option<&Arc<Share>> {
        let port = self.find(service, port).map(|index| self.port(index));
        let workload = port.and_then(|port| port.workload_at(endpoint));
        let share = workload.and_then(|workload| self.called.workloads.get(workload));
        share.or(self.called.astray.as_ref())
    }

    pub(crate) fn find(&self, service: &ServiceName, port: u16) -> Option<PortIndex> {
        // The key is owned, but its parts are reference-counted: nothing is allocated.
        self.by_name.get(&(service.clone(), port)).copied()
    }

    /// The entry at an index that this snapshot gave out.
    pub(crate) fn port(&self, index: PortIndex) -> &PortEntry {
        &self.ports[index.0 as usize]
    }

    /// The rule at an index that this snapshot gave out.
    pub(crate) fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[index.0.get() as usize - 1]
    }

    pub(crate) fn ports(&self) -> &[PortEntry] {
        &self.ports
    }
}

/// The index of the entry at position `at`. There are fewer than 2^32 entries.
fn index_of(at: usize) -> PortIndex {
    PortIndex(u32::try_from(at).unwrap_or(u32::MAX))
}

impl PortIndex {
    pub(crate) fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

impl PortEntry {
    /// Whether a workload of this node has this endpoint of the port and this identity, so that other nodes may call it
    /// here.
    pub(crate) fn hosts(&self, endpoint: SocketAddr, account: &ServiceAccountName) -> bool {
        let hosted = self.cluster.hosted(endpoint);
        hosted.is_some_and(|hosted| hosted.account == *account)
    }

    /// The workload of this node that is an endpoint of the port at that address.
    pub(crate) fn workload_at(&self, endpoint: SocketAddr) -> Option<&WorkloadName> {
        self.cluster.hosted(endpoint).map(|hosted| &hosted.workload)
    }

    /// Notes that a caller of this node uses the port.
    pub(crate) fn mark_used(&self) {
        self.used.set();
    }

    /// Whether any workload of this node is an endpoint of the port.
    pub(crate) fn has_workloads(&self) -> bool {
        self.cluster.has_hosted()
    }

    fn bare(label: Arc<str>, protocol: AppProtocol) -> Self {
        PortEntry {
            label,
            name: None,
            protocol,
            cluster: Cluster::default(),
            used: Mark::default(),
            judges_paths: false,
            routes: None,
            consumer_routes: HashMap::default(),
        }
    }

    /// Whether a path that two programs could interpret differently is refused: when one of the caller's routes, or a
    /// policy, depends on the path.
    pub(crate) fn strict_paths(&self, routes: Option<&RouteTable>) -> bool {
        self.judges_paths || routes.is_some_and(|routes| routes.strict_paths)
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
}

/// Marks the ports whose requests can reach an endpoint with a policy that checks paths, through a rule's backend or
/// directly.
fn judge_paths(ports: &mut [PortEntry], rules: &[Rule], guards: &Guards) {
    let judges = |port: &PortEntry| {
        let mut endpoints = port.cluster.endpoints.iter();
        endpoints.any(|endpoint| guards.look_at_paths_before(endpoint.address))
    };
    let own: Vec<bool> = ports.iter().map(judges).collect();
    for (port, own_judges) in ports.iter_mut().zip(&own) {
        let tables = port.routes.iter().chain(port.consumer_routes.values());
        let rules = tables.flat_map(|table| &rules[table.rules.clone()]);
        let mut backends = rules.flat_map(|rule| &rule.action.backends);
        let by_backend = backends.any(|backend| match backend.target {
            Target::Port(index) => own[index.get()],
            Target::Unresolved => false,
        });
        port.judges_paths = *own_judges || by_backend;
    }
}

impl RouteTable {
    /// The first rule that matches.
    pub(crate) fn find<'a, F>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_, F>,
    ) -> Option<&'a Rule>
    where
        F: Fn(&[u8], &mut dyn FnMut(&[u8])),
    {
        let mut rules = snapshot.rules.get(self.rules.clone())?.iter();
        rules.find(|rule| rule.matcher.matches(request))
    }
}

impl Action {
    /// The backend whose weight range contains `draw` (below `total_weight`), and its index.
    pub(crate) fn backend(&self, mut draw: u64) -> Option<(usize, &Backend)> {
        self.backends.iter().enumerate().find(|(_, backend)| {
            let weight = u64::from(backend.weight);
            let here = draw < weight;
            draw = draw.saturating_sub(weight);
            here
        })
    }
}

struct Compiler<'a> {
    mesh: &'a Mesh,
    by_name: &'a HashMap<(ServiceName, u16), PortIndex, RandomState>,
    rules: Vec<Rule>,
}

impl Compiler<'_> {
    fn port(&mut self, service: &Service, port: &ServicePort) -> PortEntry {
        let reached = port.endpoints.iter().filter_map(|endpoint| {
            let place = self.place(&service.name, port.port, endpoint)?;
            Some((place, endpoint))
        });
        let cluster = Cluster::new(service, port, reached.collect());
        let service = &service.name;
        PortEntry {
            label: service.to_string().into(),
            name: Some((service.clone(), port.port)),
            protocol: port.protocol,
            cluster,
            used: Mark::default(),
            judges_paths: false,
            routes: port.routes.as_deref().map(|rules| self.table(rules)),
            consumer_routes: port
                .consumer_routes
                .iter()
                .map(|(namespace, rules)| (namespace.clone(), self.table(rules)))
                .collect(),
        }
    }

    /// How an endpoint is reached: through its node, unless it is on this node or outside of the mesh. `None` if its
    /// node is unknown, or if it has no identity that it could prove: nothing is sent to other nodes in cleartext.
    fn place(&self, service: &ServiceName, port: u16, endpoint: &Endpoint) -> Option<Place> {
        let address = endpoint.address;
        let node = match &endpoint.node {
            Some(node) if endpoint.workload.is_none() => node,
            _ => return Some(Place::here(address)),
        };
        let via = Via {
            node: self.mesh.node(node)?.address,
            account: endpoint.account.clone()?,
            service: service.clone(),
            port,
        };
        Some(Place {
            address,
            way: Way::Through(Arc::new(via)),
        })
    }

    fn table(&mut self, rules: &[RouteRule]) -> RouteTable {
        let first = self.rules.len();
        for rule in rules {
            let compiled = self.rule(rule);
            self.rules.push(compiled);
        }
        let strict_paths = |rule: &Rule| rule.matcher.looks_at_path();
        RouteTable {
            strict_paths: self.rules[first..].iter().any(strict_paths),
            rules: first..self.rules.len(),
        }
    }

    fn rule(&self, rule: &RouteRule) -> Rule {
        // A mesh with more rules would not fit into memory.
        let before = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        Rule {
            index: RuleIndex(NonZeroU32::MIN.saturating_add(before)),
            label: Arc::clone(&rule.name),
            path: rule.matcher.path.clone(),
            action: self.action(&rule.action),
            matcher: Matcher::new(&rule.matcher),
        }
    }

    fn action(&self, route: &Arc<RouteAction>) -> Action {
        let backends: Vec<Backend> = match &route.outcome {
            Outcome::Redirect(_) => Vec::new(),
            Outcome::Forward(backends) => backends
                .iter()
                .map(|backend| Backend {
                    weight: backend.weight,
                    target: self.target(&backend.target),
                    filters: backend.filters.clone(),
                })
                .collect(),
        };
        let total_weight = backends
            .iter()
            .map(|backend| u64::from(backend.weight))
            .sum();
        Action {
            route: Arc::clone(route),
            backends,
            total_weight,
        }
    }

    fn target(&self, target: &BackendTarget) -> Target {
        match target {
            BackendTarget::Service { service, port } => self
                .by_name
                .get(&(service.clone(), *port))
                .map_or(Target::Unresolved, |&index| Target::Port(index)),
            BackendTarget::Unresolved { .. } => Target::Unresolved,
        }
    }
}

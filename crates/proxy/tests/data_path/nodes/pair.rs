//! Two proxies in one process: callers on one node, the echo workload on the other.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_model::{
    AppProtocol, Mesh, Node, NodeName, Policy, ServiceAccountName, SpiffeId, TrustDomain,
    WorkloadName,
};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::{AccessLog, Registry};
use heddle_transport::fixture::{Authority, DAY, NOW};
use heddle_transport::{Clock, Denied, Identities, Leaf, Trust};

use super::relay::Relay;
use crate::policy::{CALLERS, account, guarded, with};
use crate::support::{
    Client, GET, Response, Upstream, count, echo_entry, expect, expect_rejected, listener, open,
};

pub(crate) fn domain() -> TrustDomain {
    Mesh::default().trust_domain
}

pub(crate) fn id(name: &str) -> SpiffeId {
    SpiffeId::workload(domain(), account(name))
}

pub(crate) fn node_name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

pub(crate) struct Side {
    pub(crate) proxy: Proxy,
    pub(crate) registry: Arc<Registry>,
    name: NodeName,
    accounts: Vec<ServiceAccountName>,
    /// Initial number of Workers.
    workers: f64,
}

/// A calling and a called node.
pub(crate) struct Pair {
    pub(crate) authority: Authority,
    pub(crate) time: Arc<AtomicU64>,
    pub(crate) mesh: Mesh,
    pub(crate) calling: Side,
    pub(crate) called: Side,
    /// The called node's address for connections of other nodes.
    pub(crate) mesh_address: SocketAddr,
    doors: BTreeMap<&'static str, SocketAddr>,
    /// Generation of the next mesh.
    generation: AtomicU64,
}

impl Pair {
    pub(crate) fn new(endpoint: SocketAddr, protocol: AppProtocol) -> Pair {
        Pair::with(&Settings::default(), endpoint, protocol)
    }

    pub(crate) fn with(settings: &Settings, endpoint: SocketAddr, protocol: AppProtocol) -> Pair {
        Pair::of(settings, guarded(endpoint, protocol))
    }

    /// A pair with an endpoint that the test scripts.
    pub(crate) fn scripted(protocol: AppProtocol) -> (Upstream, Pair) {
        Pair::scripted_with(&Settings::default(), protocol)
    }

    pub(crate) fn scripted_with(settings: &Settings, protocol: AppProtocol) -> (Upstream, Pair) {
        let upstream = Upstream::new();
        let pair = Pair::with(settings, upstream.address, protocol);
        (upstream, pair)
    }

    /// A pair with this mesh: echo is on the called node, every other workload on the calling one.
    pub(crate) fn of(settings: &Settings, mesh: Mesh) -> Pair {
        Pair::by(settings, mesh, |called| called)
    }

    /// A pair with an intermediary between its nodes: `way` maps the called node's address to the one that the caller
    /// uses.
    pub(crate) fn by(
        settings: &Settings,
        mesh: Mesh,
        way: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Pair {
        Pair::unlike([settings, settings], mesh, None, way)
    }

    /// A pair with a relay between its nodes. The calling node may have an access log.
    pub(crate) fn relayed(
        settings: &Settings,
        mesh: Mesh,
        log: Option<AccessLog>,
    ) -> (Pair, Relay) {
        let mut relay = None;
        let pair = Pair::unlike([settings, settings], mesh, log, |called| {
            relay.insert(Relay::to(called)).address
        });
        (pair, relay.unwrap())
    }

    /// A pair with different settings: first the calling node's, then the called node's.
    pub(crate) fn unlike(
        settings: [&Settings; 2],
        mesh: Mesh,
        log: Option<AccessLog>,
        way: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Pair {
        let (socket, mesh_address) = listener();
        let mesh = placed(mesh, way(mesh_address));
        let side = |name: &str, settings: &Settings, accounts: &[&str], log: Option<AccessLog>| {
            let registry = Arc::new(Registry::new());
            Side {
                proxy: Proxy::start(settings.clone(), Arc::clone(&registry), log).unwrap(),
                registry,
                name: node_name(name),
                accounts: accounts.iter().map(|name| account(name)).collect(),
                workers: settings.workers.min as f64,
            }
        };
        let calling = side("calling", settings[0], &CALLERS, log);
        let called = side("called", settings[1], &["echo"], None);
        let mut doors = BTreeMap::new();
        let callers = CALLERS.iter().map(|name| (*name, Some(*name)));
        for (id, (door, caller)) in (10..).zip(callers.chain([("unidentified", None)])) {
            let caller = caller.map(|name| WorkloadName::new("test", name).unwrap());
            doors.insert(door, open(&calling.proxy, id, echo_entry(caller)));
        }
        called.proxy.listen(1, socket, Entry::Mesh);
        let pair = Pair {
            authority: Authority::new(),
            time: Arc::new(AtomicU64::new(NOW)),
            mesh,
            calling,
            called,
            mesh_address,
            doors,
            generation: AtomicU64::new(1),
        };
        pair.identify(&pair.authority, NOW + DAY);
        pair.apply(&pair.mesh);
        pair
    }

    /// The mesh with the nodes of a pair.
    pub(crate) fn placed(mesh: Mesh, mesh_address: SocketAddr) -> Mesh {
        placed(mesh, mesh_address)
    }

    /// Replaces the called node's proxy by a new one without state, as a restart does.
    pub(crate) fn called_begins_anew(&mut self) {
        let (name, accounts) = (self.called.name.clone(), self.called.accounts.clone());
        let registry = Arc::new(Registry::new());
        let proxy = Proxy::start(Settings::default(), Arc::clone(&registry), None).unwrap();
        let side = Side {
            proxy,
            registry,
            name,
            accounts,
            workers: self.called.workers,
        };
        // The old proxy closes its sockets.
        drop(std::mem::replace(&mut self.called, side));
        let socket = loop {
            match TcpListener::bind(self.mesh_address) {
                Ok(socket) => break socket,
                Err(_) => std::thread::yield_now(),
            }
        };
        self.called.proxy.listen(1, socket, Entry::Mesh);
        self.identify(&self.authority, NOW + DAY);
        self.apply(&self.mesh);
    }

    /// Gives both nodes new leaf certificates of this authority, the only trusted one.
    pub(crate) fn identify(&self, authority: &Authority, until: u64) {
        let trust = self.trust(&[authority], Denied::default());
        for side in [&self.calling, &self.called] {
            self.give(side, self.identities(side, authority, &trust, until));
        }
    }

    /// Gives a node these identities, and waits until they are in effect.
    pub(crate) fn give(&self, side: &Side, identities: Identities) {
        side.proxy.identify(Arc::new(identities));
        // Orders are processed in sequence: when the mesh is in effect, so are the identities.
        self.apply_to(side, &self.mesh);
    }

    pub(crate) fn trust(&self, authorities: &[&Authority], denied: Denied) -> Arc<Trust> {
        let roots: Vec<_> = authorities.iter().map(|one| one.root.clone()).collect();
        Arc::new(Trust::new(domain(), &roots, denied).unwrap())
    }

    /// A node's identities, with leaf certificates of this authority.
    pub(crate) fn identities(
        &self,
        side: &Side,
        authority: &Authority,
        trust: &Arc<Trust>,
        until: u64,
    ) -> Identities {
        let leaf = |id: &SpiffeId| authority.leaf(id, NOW - DAY, until);
        let node = leaf(&SpiffeId::node(domain(), side.name.clone()));
        let leaves = side.accounts.iter();
        let leaves = leaves.map(|account| leaf(&SpiffeId::workload(domain(), account.clone())));
        let leaves: Vec<Arc<Leaf>> = leaves.collect();
        Identities::new(Arc::clone(trust), self.clock(), node, leaves).unwrap()
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        let time = Arc::clone(&self.time);
        Arc::new(Clock::with(0, move || time.load(Ordering::Relaxed)))
    }

    /// Applies a mesh on both nodes, and waits until it is in effect.
    pub(crate) fn apply(&self, mesh: &Mesh) {
        for side in [&self.calling, &self.called] {
            self.apply_to(side, mesh);
        }
    }

    /// The same on one node.
    pub(crate) fn apply_to(&self, side: &Side, mesh: &Mesh) {
        let generation = self.send(side, mesh) as f64 * side.workers;
        side.expect("heddle_worker_config_generation", &[], generation);
    }

    /// Applies a mesh on one node. Returns its generation.
    pub(crate) fn send(&self, side: &Side, mesh: &Mesh) -> u64 {
        let mut part = mesh.for_node(&side.name);
        part.check_invariants().unwrap();
        part.generation = self.generation.fetch_add(1, Ordering::Relaxed);
        side.proxy.apply(&part);
        part.generation
    }

    /// Applies policies to the echo workload.
    pub(crate) fn guard(&mut self, policies: Vec<Policy>) {
        self.mesh = with(self.mesh.clone(), policies);
        self.apply(&self.mesh);
    }

    /// Makes the called node trust only this; its leaf certificates stay the same.
    pub(crate) fn called_trusts(&self, trust: &Arc<Trust>) {
        let identities = self.identities(&self.called, &self.authority, trust, NOW + DAY);
        self.give(&self.called, identities);
    }

    /// Removes the leaf certificate of the called node's workload, so that the node proves another identity.
    pub(crate) fn called_is_another(&self) {
        let trust = self.trust(&[&self.authority], Denied::default());
        let leaf = |id: &SpiffeId| self.authority.leaf(id, NOW - DAY, NOW + DAY);
        let node = leaf(&SpiffeId::node(domain(), self.called.name.clone()));
        let other = Identities::new(trust, self.clock(), node, [leaf(&id("other"))]);
        self.give(&self.called, other.unwrap());
    }

    pub(crate) fn client(&self, caller: &str) -> Client {
        Client::connect(self.doors[caller])
    }

    /// A client that has sent these bytes.
    pub(crate) fn sending(&self, caller: &str, bytes: impl AsRef<[u8]>) -> Client {
        self.client(caller).sending(bytes)
    }

    /// The response to a request on a connection of its own.
    pub(crate) fn ask(&self, caller: &str, request: impl AsRef<[u8]>) -> Response {
        self.client(caller).ask(request)
    }

    pub(crate) fn get(&self, caller: &str) -> Response {
        self.ask(caller, GET)
    }
}

impl Side {
    pub(crate) fn expect(&self, name: &str, labels: &[&str], value: f64) {
        expect(&self.registry, name, labels, value);
    }

    /// Waits until this number of requests and connections were refused for this reason.
    pub(crate) fn expect_rejected(&self, reason: &str, times: f64) {
        expect_rejected(&self.registry, reason, times);
    }

    /// Waits until this number of handshakes were refused for this reason.
    pub(crate) fn expect_handshakes_refused(&self, reason: &str, times: f64) {
        let label = format!("reason=\"{reason}\"");
        self.expect("heddle_handshakes_refused_total", &[&label], times);
    }

    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        count(&self.registry, name, labels)
    }
}

/// Sets the node of each workload, and the address of the called node.
fn placed(mut mesh: Mesh, mesh_address: SocketAddr) -> Mesh {
    let node_of = |workload: &str| match workload {
        "echo" => node_name("called"),
        _ => node_name("calling"),
    };
    for workload in mesh.workloads.iter_mut() {
        workload.node = Some(node_of(workload.name.name.as_str()));
    }
    let ports = mesh.services[0].ports.iter_mut();
    for endpoint in ports.flat_map(|port| &mut port.endpoints) {
        endpoint.node = Some(node_name("called"));
    }
    mesh.nodes = vec![
        Node {
            name: node_name("called"),
            address: mesh_address,
        },
        Node {
            name: node_name("calling"),
            address: ([127, 0, 0, 1], 1).into(),
        },
    ];
    mesh
}

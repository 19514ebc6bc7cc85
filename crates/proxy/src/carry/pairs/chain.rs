//! Three nodes in a row.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_model::{Mesh, Node, NodeName, ServiceName, SpiffeId, WorkloadName};
use heddle_telemetry::Registry;
use heddle_transport::fixture::{Authority, DAY, NOW};
use heddle_transport::{Clock, Denied, Identities, Protocol, Trust};

use super::case::Case;
use super::peers::{ScriptedEndpoint, ask};
use crate::testing::{account, service, workload};
use crate::{Entry, Proxy, Settings};

/// The workload and Service whose calls the node in the middle forwards.
pub(super) const RELAY: &str = "relay";

/// The nodes, and the workload of each.
const NODES: [(&str, &str); 3] = [("calling", "shop"), ("between", RELAY), ("called", "echo")];

pub(super) struct Chain {
    endpoint: ScriptedEndpoint,
    door: SocketAddr,
    _proxies: Vec<Proxy>,
}

impl Chain {
    /// Three nodes: the first calls the second with one protocol, the second calls the third with another.
    pub(super) fn new(first: Protocol, second: Protocol) -> Chain {
        let endpoint = ScriptedEndpoint::new();
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<TcpListener> = NODES.iter().map(|_| listen()).collect();
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap());
        let mesh = mesh(endpoint.address, &addresses.collect::<Vec<_>>());
        let authority = Authority::new();
        let trust = Trust::new(
            domain(),
            std::slice::from_ref(&authority.root),
            Denied::default(),
        );
        let trust = Arc::new(trust.unwrap());
        let door = listen();
        let address = door.local_addr().unwrap();
        let mut door = Some(door);
        let mut proxies = Vec::new();
        for ((name, workload), (socket, between_nodes)) in NODES
            .into_iter()
            .zip(sockets.into_iter().zip([first, second, Protocol::Link]))
        {
            let registry = Arc::new(Registry::new());
            let mut settings = Settings {
                between_nodes,
                ..Settings::default()
            };
            settings.timeouts.response_head = Duration::from_secs(5);
            let proxy = Proxy::start(settings, Arc::clone(&registry), None).unwrap();
            proxy.identify(Arc::new(identities(&authority, &trust, name, workload)));
            proxy.apply(&mesh.for_node(&node(name)));
            proxy.listen(1, socket, Entry::Mesh);
            if let Some(door) = door.take() {
                let entry = Entry::Service {
                    caller: WorkloadName::new("test", workload).ok(),
                    service: ServiceName::new("test", RELAY).unwrap(),
                    port: 80,
                };
                proxy.listen(2, door, entry);
            }
            serves(&registry);
            proxies.push(proxy);
        }
        Chain {
            endpoint,
            door: address,
            _proxies: proxies,
        }
    }

    /// Runs one exchange and checks it.
    pub(super) fn carry(&self, case: &Case) -> Result<(), String> {
        let number = self.endpoint.expects(case);
        let client = ask(self.door, case, number);
        case.check(&self.endpoint.seen(case, number), &client)
    }
}

/// Waits until a proxy has applied its configuration.
fn serves(registry: &Registry) {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let mut text = String::new();
        registry.render(&mut text);
        if text.contains("heddle_worker_config_generation{worker=\"0\"} 1") {
            return;
        }
        assert!(Instant::now() < patience, "{text}");
        std::thread::yield_now();
    }
}

fn domain() -> heddle_model::TrustDomain {
    Mesh::default().trust_domain
}

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn identities(authority: &Authority, trust: &Arc<Trust>, name: &str, workload: &str) -> Identities {
    let leaf = |id: &SpiffeId| authority.leaf(id, NOW - DAY, NOW + DAY);
    let own = leaf(&SpiffeId::node(domain(), node(name)));
    let leaves = [leaf(&SpiffeId::workload(domain(), account(workload)))];
    let clock = Arc::new(Clock::with(0, || NOW));
    Identities::new(Arc::clone(trust), clock, own, leaves).unwrap()
}

fn mesh(endpoint: SocketAddr, addresses: &[SocketAddr]) -> Mesh {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let placed = |name: &str| {
        let mut nodes = NODES.iter();
        let (at, _) = nodes.find(|(_, workload)| *workload == name)?;
        Some(node(at))
    };
    let nodes = NODES.iter().zip(addresses);
    let mut nodes: Vec<Node> = nodes
        .map(|((name, _), &address)| Node {
            name: node(name),
            address,
        })
        .collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let service = |name, address| service(name, address, placed(name));
    let workload = |name| workload(name, nowhere, placed(name));
    Mesh {
        generation: 1,
        services: vec![
            service("echo", endpoint).into(),
            service(RELAY, nowhere).into(),
        ],
        workloads: ["echo", RELAY, "shop"]
            .map(|name| workload(name).into())
            .into(),
        nodes,
        ..Mesh::default()
    }
}

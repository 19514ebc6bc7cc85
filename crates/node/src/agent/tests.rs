//! What an answer of the control plane costs a node, by how many Services the node knows.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{
    AppProtocol, Balancer, Balancing, Dependency, Endpoint, Mesh, Mode, Node, NodeName, Service,
    ServiceAccountName, ServiceName, ServicePort, TrustDomain, Workload, WorkloadName,
};
use heddle_proxy::{Elasticity, Proxy, Settings};
use heddle_telemetry::Registry;
use heddle_xds::proto::{DiscoveryResponse, Mark, Resource as Sent};
use heddle_xds::resources::{Resource, Type, split};
use heddle_xds::{NodeMesh, Update};

/// Endpoints of each Service.
const ENDPOINTS: u32 = 5;
/// Services that the node learns one by one while they are timed.
const LEARNED: u32 = 60;

fn name(number: u32) -> ServiceName {
    ServiceName::new("shop", &format!("service-{number}")).unwrap()
}

fn cluster(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a60_0000 + number).into()
}

fn node(number: u32) -> NodeName {
    NodeName::parse(&format!("node-{number}")).unwrap()
}

/// A workload of a node; node 0 is the one that is timed.
fn workload(number: u32, on: u32) -> Workload {
    let own = format!("workload-{number}");
    Workload {
        name: WorkloadName::new("shop", &own).unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::new("shop", &own).unwrap(),
        address: Ipv4Addr::from(0x0a00_0000 + number).into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: Some(node(on)),
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

fn service(number: u32) -> Service {
    let endpoint = |at: u32| {
        let workload = workload(1_000 + number * ENDPOINTS + at, 1 + at);
        Endpoint {
            address: SocketAddr::new(workload.address, 8080),
            weight: 1,
            max_requests: None,
            workload: Some(workload.name),
            remote_workload: None,
            account: Some(workload.service_account),
            node: workload.node,
            has_envoy: workload.proxy.is_envoy(),
        }
    };
    Service {
        name: name(number),
        headless: false,
        addresses: vec![cluster(number)],
        balancer: Balancer::LeastRequest,
        balancing: Balancing::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: (0..ENDPOINTS).map(endpoint).collect(),
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

/// The control plane of one node, as far as it is needed here.
struct Feed {
    mesh: NodeMesh,
    said: u64,
    generation: u64,
}

impl Feed {
    fn mark(&mut self) -> Option<Mark> {
        while self.mesh.request().is_some() {
            self.said += 1;
        }
        self.generation += 1;
        Some(Mark {
            epoch: "first".to_owned(),
            generation: self.generation,
            requests: self.said,
        })
    }

    fn send(&mut self, kind: Type, resources: &[&Resource], removed: Vec<String>) {
        let sent = |resource: &&Resource| Sent {
            name: resource.name(),
            version: "1".to_owned(),
            content: resource.encode(),
        };
        let response = DiscoveryResponse {
            type_url: kind.type_url().to_owned(),
            resources: resources.iter().map(sent).collect(),
            removed,
            nonce: "1".to_owned(),
            mark: None,
        };
        assert_eq!(self.mesh.accept(response), Ok(None));
    }

    /// A node that knows so many Services, each by its cluster address, and its first mesh.
    fn begin(known: u32) -> (Self, Mesh) {
        let services = (0..known).map(|number| service(number).into());
        let whole = Mesh {
            trust_domain: TrustDomain::parse("cluster.local").unwrap(),
            nodes: (0..10)
                .map(|number| Node {
                    name: node(number),
                    address: ([192, 0, 2, 1 + number as u8], 15008).into(),
                })
                .collect(),
            services: {
                let mut services: Vec<_> = services.collect();
                services.sort_by(|one: &heddle_model::Shared<Service>, other| {
                    one.name.cmp(&other.name)
                });
                services
            },
            workloads: (0..10).map(|number| workload(number, 0).into()).collect(),
            ..Mesh::default()
        };
        let mut feed = Feed {
            mesh: NodeMesh::on_demand(node(0)),
            said: 0,
            generation: 0,
        };
        for number in 0..known {
            feed.mesh.want(&Dependency::Address(cluster(number)));
        }
        feed.mesh.connected();
        let all: Vec<Resource> = split(&whole).collect();
        for kind in Type::ALL {
            let of_kind = |one: &&Resource| one.kind() == kind && kind != Type::Address;
            let chosen: Vec<&Resource> = all.iter().filter(of_kind).collect();
            let removed = match kind {
                Type::Address => (0..known).map(|one| cluster(one).to_string()).collect(),
                _ => Vec::new(),
            };
            feed.send(kind, &chosen, removed);
        }
        let mark = feed.mark();
        let update = feed.marked(mark);
        (feed, update.mesh)
    }

    fn marked(&mut self, mark: Option<Mark>) -> Update {
        let response = DiscoveryResponse {
            mark,
            ..DiscoveryResponse::default()
        };
        self.mesh.accept(response).unwrap().expect("a mesh")
    }

    /// The node has named an address, which is the cluster address of another Service, or that of no Service.
    fn learn(&mut self, number: u32, is_there: bool) {
        self.mesh.want(&Dependency::Address(cluster(number)));
        while self.mesh.request().is_some() {
            self.said += 1;
        }
        let absent = vec![cluster(number).to_string()];
        self.send(Type::Address, &[], absent);
        if !is_there {
            return;
        }
        let alone = Mesh {
            services: vec![service(number).into()],
            ..Mesh::default()
        };
        let all: Vec<Resource> = split(&alone).collect();
        for kind in [Type::Service, Type::Endpoint] {
            let chosen: Vec<&Resource> = all.iter().filter(|one| one.kind() == kind).collect();
            self.send(kind, &chosen, Vec::new());
        }
    }
}

fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}

fn time(known: u32, is_there: bool) {
    let (mut feed, mut before) = Feed::begin(known);
    let registry = Arc::new(Registry::new());
    let settings = Settings {
        workers: Elasticity {
            max: 1,
            ..Elasticity::default()
        },
        ..Settings::default()
    };
    let proxy = Proxy::start(settings, registry, None).unwrap();
    let use_of = |mesh: &Mesh| {
        proxy.apply(mesh);
        let applied = Instant::now();
        let generation = i64::try_from(mesh.generation).unwrap();
        let observer = proxy.observer();
        while observer.status().workers[0].config_generation != generation {
            thread::yield_now();
        }
        (applied, Instant::now())
    };
    use_of(&before);
    let mut took: [Vec<Duration>; 5] = Default::default();
    for number in known..known + LEARNED {
        feed.learn(number, is_there);
        let mark = feed.mark();
        let began = Instant::now();
        let update = feed.marked(mark);
        let answered = Instant::now();
        update.mesh.check_part_after(&before).unwrap();
        let checked = Instant::now();
        let (applied, used) = use_of(&update.mesh);
        let steps = [began, answered, checked, applied, used];
        for (step, times) in steps.windows(2).zip(&mut took) {
            times.push(step[1] - step[0]);
        }
        took[4].push(used - began);
        before = update.mesh;
    }
    let [answer, check, apply, bind, all] = took.map(median);
    println!(
        "{known:>6} {is_there:>5} {answer:>8.0} {check:>8.0} {apply:>8.0} {bind:>8.0} {all:>8.0}"
    );
}

/// Prints microseconds. An answer to a name, `there` or absent: until there is a mesh, until it is checked, until there is a
/// snapshot, and until a Worker uses it.
#[test]
#[ignore = "a measurement"]
fn what_an_answer_costs() {
    println!(" known there   answer    check    apply   worker      all");
    for is_there in [true, false] {
        for known in [100, 1_000, 2_000] {
            time(known, is_there);
        }
    }
}

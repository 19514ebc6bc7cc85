//! A control plane and nodes whose calls break, stall and begin again: when they are quiet, each node has its part of
//! the newest mesh.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};

use heddle_model::{
    AppProtocol, Balancer, Balancing, Endpoint, Forwarding, Mesh, Mode, NodeName, Policy,
    PolicyAction, PolicyName, Qos, Service, ServiceAccountName, ServiceName, ServicePort, Shared,
    Workload, WorkloadName,
};
use heddle_xds::NodeMesh;
use heddle_xds::proto::{DiscoveryRequest, DiscoveryResponse};
use heddle_xds::resources::Type;
use proptest::prelude::*;

use super::Subscriptions;
use crate::Board;
use crate::discovery::request;
use crate::nodes::{Nodes, Standing};
use crate::streams::OpenStream;

pub(crate) mod on_demand;
mod requests;

pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];
const SERVICES: u8 = 6;

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

/// A workload of the mesh: its number, its node, whether a policy selects it, and a value that changes.
pub(crate) type Choice = (u8, Option<usize>, bool, u32);

/// A mesh of these workloads, each of which serves one of three Services.
pub(crate) fn mesh(choices: &BTreeMap<u8, Choice>) -> Mesh {
    let mut services: BTreeMap<ServiceName, Vec<Endpoint>> = BTreeMap::new();
    let mut mesh = Mesh::default();
    for (number, node_number, is_selected, weight) in choices.values() {
        let name = format!("w{number:03}");
        let name = WorkloadName::new("shop", &name).unwrap();
        let account = match number % 8 {
            7 => gateway(),
            _ => ServiceAccountName::new("shop", "default").unwrap(),
        };
        // Its node is a gateway now and then.
        if account == gateway() && *is_selected {
            mesh.forwarding = Shared::from(Forwarding {
                gateways: vec![gateway()],
                lazy: Vec::new(),
            });
        }
        let address = SocketAddr::from(([127, 1, 0, number + 1], 80));
        let on = node_number.map(|at| node(NODES[at % NODES.len()]));
        let policy = PolicyName::parse(&format!("AuthorizationPolicy shop/p{:03}", number % 4));
        let policy = policy.unwrap();
        if *is_selected && mesh.policy(&policy).is_none() {
            let at = mesh.policies.partition_point(|known| known.name < policy);
            let one = Policy {
                name: policy.clone(),
                action: PolicyAction::Allow,
                dry_run: *weight % 2 == 0,
                rules: Vec::new(),
            };
            mesh.policies.insert(at, Arc::new(one));
        }
        let service = service(number % SERVICES);
        services.entry(service).or_default().push(Endpoint {
            address,
            weight: weight + 1,
            max_requests: None,
            workload: Some(name.clone()),
            remote_workload: None,
            account: Some(account.clone()),
            node: on.clone(),
            has_envoy: false,
        });
        mesh.put_workload(
            Workload {
                name,
                labels: heddle_model::Shared::default(),
                service_account: account,
                address: address.ip(),
                uses: Vec::new(),
                more_addresses: Vec::new(),
                ports: Vec::new(),
                weight: weight + 1,
                node: on,
                mode: Mode::default(),
                policies: is_selected.then_some(policy).into_iter().collect(),
                probes: Vec::new(),
                qos: Qos::default(),
                proxy: heddle_model::Proxy::Node,
                command: None,
            }
            .into(),
        );
    }
    let services = services.into_iter().map(|(name, endpoints)| Service {
        name,
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::default(),
        balancing: Balancing::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints,
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    });
    mesh.services = services.map(Into::into).collect();
    mesh
}

/// The account of gateways, which some workloads have.
fn gateway() -> ServiceAccountName {
    ServiceAccountName::new("shop", "gateway").unwrap()
}

fn service(number: u8) -> ServiceName {
    ServiceName::new("shop", &format!("s{number}")).unwrap()
}

/// A node and its call, with the messages that are under way.
struct Side {
    name: NodeName,
    known: NodeMesh,
    used: Option<Mesh>,
    call: Option<OpenStream>,
    standing: Standing,
    /// Whether the stream looks at the catalog next: at first, after a message, and while there is something to send.
    is_looking: bool,
    requests: VecDeque<DiscoveryRequest>,
    responses: VecDeque<DiscoveryResponse>,
}

impl Side {
    fn new(name: &str) -> Self {
        Side::of(name, NodeMesh::new(node(name)))
    }

    /// A node that names what it uses.
    fn on_demand(name: &str) -> Self {
        Side::of(name, NodeMesh::on_demand(node(name)))
    }

    fn of(name: &str, known: NodeMesh) -> Self {
        Side {
            name: node(name),
            known,
            used: None,
            call: None,
            standing: Standing::default(),
            is_looking: true,
            requests: VecDeque::new(),
            responses: VecDeque::new(),
        }
    }

    /// The call breaks: what is under way is lost.
    fn disconnect(&mut self) {
        (self.requests, self.responses, self.call) = Default::default();
        self.standing = Standing::default();
        self.is_looking = true;
    }

    /// Does one thing. False if there is nothing to do.
    fn step(&mut self, board: &Board) -> bool {
        let Some(call) = &mut self.call else {
            self.known.connected();
            let types = self.known.first_types().collect();
            let on_demand = self.known.is_on_demand();
            let subscriptions = Subscriptions::new(self.name.clone(), types, on_demand);
            self.call = Some(board.open(subscriptions, self.standing.clone()));
            return true;
        };
        if let Some(said) = self.known.request() {
            self.requests.push_back(said);
        } else if let Some(said) = self.requests.pop_front() {
            let kind = Type::from_url(&said.type_url).unwrap();
            let subscriptions = &mut call.subscriptions();
            board.receive(subscriptions, kind, request(said)).unwrap();
            self.is_looking = true;
        } else if let Some(told) = self.responses.pop_front() {
            if let Some(update) = self.known.accept(told).unwrap() {
                update.mesh.check_invariants().unwrap();
                self.used = Some(update.mesh);
            }
        } else if self.is_looking || is_woken(call) {
            let told = board.respond(&mut call.subscriptions());
            self.is_looking = told.is_some();
            match told {
                Some(told) => self.responses.push_back(told),
                None => call.note_settled(),
            }
        } else {
            return false;
        }
        true
    }

    /// What the stream sends next, if there is something.
    fn told(&mut self, board: &Board) -> Option<DiscoveryResponse> {
        board.respond(&mut self.call.as_ref().unwrap().subscriptions())
    }
}

/// Whether the stream was woken since the last call.
fn is_woken(call: &OpenStream) -> bool {
    let woken = std::pin::pin!(call.woken());
    woken
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

#[derive(Debug, Clone)]
enum Event {
    Add(Choice),
    Remove(u8),
    Break(usize),
    Steps(usize, u8),
}

fn event() -> impl Strategy<Value = Event> {
    let choice = (
        0..12_u8,
        prop::option::weighted(0.9, 0..3_usize),
        any::<bool>(),
        0..3_u32,
    );
    prop_oneof![
        3 => choice.prop_map(Event::Add),
        1 => (0..12_u8).prop_map(Event::Remove),
        1 => (0..NODES.len()).prop_map(Event::Break),
        4 => (0..NODES.len(), 0..40_u8).prop_map(|(at, steps)| Event::Steps(at, steps)),
    ]
}

proptest! {
    #[test]
    fn quiet_nodes_have_their_part_of_the_newest_mesh(events in prop::collection::vec(event(), 1..40)) {
        let board = Board::new(Nodes::default()).unwrap();
        let mut sides = NODES.map(Side::new);
        let mut choices = BTreeMap::new();
        board.put(mesh(&choices));
        for event in events {
            match event {
                Event::Add(choice) => drop(choices.insert(choice.0, choice)),
                Event::Remove(number) => drop(choices.remove(&number)),
                Event::Break(at) => sides[at].disconnect(),
                Event::Steps(at, steps) => {
                    for _ in 0..steps {
                        sides[at].step(&board);
                    }
                    continue;
                }
            }
            board.put(mesh(&choices));
        }
        let newest = board.mesh().unwrap();
        for side in &mut sides {
            let mut steps = 0;
            while side.step(&board) {
                steps += 1;
                prop_assert!(steps < 10_000, "it never becomes quiet");
            }
            let settled = side.standing.get().unwrap();
            prop_assert_eq!(settled.generation, board.generation());
            let mut wanted = newest.for_node(&side.name);
            wanted.generation = settled.marked;
            prop_assert_eq!(side.used.as_ref(), Some(&wanted));
        }
    }
}

#[test]
fn a_changed_endpoint_costs_one_resource() {
    let board = Board::new(Nodes::default()).unwrap();
    let mut choices: BTreeMap<u8, Choice> = (0..12)
        .map(|number| (number, (number, Some(0), true, 0)))
        .collect();
    board.put(mesh(&choices));
    let mut side = Side::new("b");
    while side.step(&board) {}
    choices.insert(7, (7, Some(0), true, 1));
    board.put(mesh(&choices));
    let told = side.told(&board).unwrap();
    let names: Vec<&str> = told.resources.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["shop/s1/80/127.1.0.8:80"]);
    assert!(told.removed.is_empty() && told.mark.is_some());
    let bytes = prost::Message::encoded_len(&told);
    println!("{bytes} bytes");
    assert!(bytes <= 300, "{bytes}");
}

#[test]
fn a_change_that_is_not_of_its_part_costs_a_node_nothing() {
    let board = Board::new(Nodes::default()).unwrap();
    let choices: BTreeMap<u8, Choice> =
        [(0, (0, Some(0), true, 0)), (1, (1, Some(1), true, 0))].into();
    board.put(mesh(&choices));
    let mut sides = ["a", "b"].map(Side::new);
    for side in &mut sides {
        while side.step(&board) {}
    }
    let before = board.generation();
    // The other node's workload loses its policy.
    let mut changed = mesh(&choices);
    changed
        .policies
        .retain(|policy| policy.name.name.as_str() != "p001");
    changed.workloads[1].policies.clear();
    board.put(changed);
    let [a, b] = &mut sides;
    assert_eq!(a.told(&board), None);
    assert!(b.told(&board).is_some());
    let settled = a.call.as_ref().unwrap().subscriptions().settled().unwrap();
    assert_eq!((settled.generation, settled.marked), (before + 1, before));
}

/// What another node runs may hold secrets.
#[test]
fn a_node_gets_no_workload_of_another_node_whatever_it_asks_for() {
    let board = Board::new(Nodes::default()).unwrap();
    let choices = [(0, Some(0), true, 0), (1, Some(1), true, 0)];
    board.put(mesh(
        &choices.map(|choice: Choice| (choice.0, choice)).into(),
    ));
    let mut call = Subscriptions::new(node("b"), BTreeSet::new(), false);
    for (kind, name) in [
        (Type::Workload, "shop/w000"),
        (Type::Policy, "AuthorizationPolicy/shop/p000"),
    ] {
        let wanted = heddle_xds::delta::Request {
            subscribe: vec![name.into()],
            ..Default::default()
        };
        board.receive(&mut call, kind, wanted).unwrap();
        let told = board.respond(&mut call).unwrap();
        assert!(told.resources.is_empty(), "{told:?}");
        assert_eq!(told.removed, [name]);
    }
}

/// One node's names are bounded whatever they are of.
#[test]
fn a_node_that_names_too_much_of_all_types_together_is_refused() {
    let board = Board::new(Nodes::default()).unwrap();
    board.put(mesh(&BTreeMap::new()));
    let mut call = Subscriptions::new(node("b"), BTreeSet::new(), true);
    let wanted = |of: &str| heddle_xds::delta::Request {
        subscribe: (0..super::MAX_NAMES / 2)
            .map(|one| format!("{of}/{one}").into())
            .collect(),
        ..Default::default()
    };
    board
        .receive(&mut call, Type::Service, wanted("a"))
        .unwrap();
    board
        .receive(&mut call, Type::Address, wanted("b"))
        .unwrap();
    let refused = board.receive(&mut call, Type::Policy, wanted("c"));
    assert!(refused.unwrap_err().to_string().contains("16384"));
}

/// What costs time for all that a node has named is done in a small part of the time.
#[test]
fn a_scope_is_not_found_anew_again_at_once() {
    let board = Board::new(Nodes::default()).unwrap();
    let choices = [(0, Some(0), true, 0), (1, Some(1), true, 0)];
    board.put(mesh(
        &choices.map(|choice: Choice| (choice.0, choice)).into(),
    ));
    let mut call = Subscriptions::new(node("c"), BTreeSet::new(), true);
    let name = board.mesh().unwrap().services[0].name.to_string();
    let wants = |is_wanted: bool| {
        let [mut subscribe, mut unsubscribe] = [Vec::new(), Vec::new()];
        let names = match is_wanted {
            true => &mut subscribe,
            false => &mut unsubscribe,
        };
        names.push(name.as_str().into());
        heddle_xds::delta::Request {
            subscribe,
            unsubscribe,
            ..Default::default()
        }
    };
    for is_wanted in [true, false] {
        board
            .receive(&mut call, Type::Service, wants(is_wanted))
            .unwrap();
        call.rests_until = None;
        while board.respond(&mut call).is_some() {}
        assert_eq!(call.rests(), None, "{is_wanted}");
    }
    // The time that it took is short here.
    call.rests_until = Some(tokio::time::Instant::now() + std::time::Duration::from_secs(60));
    board
        .receive(&mut call, Type::Service, wants(true))
        .unwrap();
    assert_eq!(call.rests(), None, "another name costs next to nothing");
    while board.respond(&mut call).is_some() {}
    board
        .receive(&mut call, Type::Service, wants(false))
        .unwrap();
    assert!(call.rests().is_some());
}

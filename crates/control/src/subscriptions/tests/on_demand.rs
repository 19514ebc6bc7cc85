//! Nodes that name what they use.

use std::net::IpAddr;

use heddle_model::{
    Backend, BackendTarget, Dependency, DependencyState, Filters, Node, Outcome, PathMatch,
    RouteAction, RouteMatch, RouteRule, Shared,
};

use super::*;

/// Something that happens to a node or the mesh.
#[derive(Debug, Clone)]
enum Use {
    Begins(usize, Dependency),
    Ends(usize, Dependency),
    Other(Event),
}

/// As [`mesh`], with cluster addresses, which go from one Service to another with the weight of the first workload, and with
/// routes from each Service to the one with twice its number, if there is one.
pub(crate) fn routed(choices: &BTreeMap<u8, Choice>) -> Mesh {
    let mut mesh = mesh(choices);
    let moved = choices.get(&0).map_or(0, |(.., weight)| *weight as u8);
    let names: Vec<ServiceName> = mesh.services.iter().map(|one| one.name.clone()).collect();
    for number in 0..SERVICES {
        let of = mesh
            .services
            .iter_mut()
            .find(|one| one.name == service(number));
        let Some(of) = of else { continue };
        of.addresses = vec![cluster((number + moved) % SERVICES)];
        let to = service(number * 2);
        if number > 0 && names.contains(&to) {
            let backend = Backend {
                weight: 1,
                target: BackendTarget::Service {
                    service: to,
                    port: 80,
                },
                filters: Filters::default(),
            };
            let action = RouteAction {
                filters: Filters::default(),
                outcome: Outcome::Forward(vec![backend]),
                request_timeout_ms: None,
                backend_timeout_ms: None,
            };
            of.ports[0].routes = Some(vec![RouteRule {
                name: "shop/route".into(),
                rule: 0,
                matcher: RouteMatch {
                    path: PathMatch::Prefix(String::new()),
                    method: None,
                    headers: Vec::new(),
                    query: Vec::new(),
                },
                action: Arc::new(action),
            }]);
        }
    }
    mesh
}

fn cluster(number: u8) -> IpAddr {
    IpAddr::from([10, 96, 0, number + 1])
}

fn dependency() -> impl Strategy<Value = Dependency> {
    prop_oneof![
        (0..SERVICES).prop_map(|number| Dependency::Service(service(number))),
        (0..SERVICES).prop_map(|number| Dependency::Address(cluster(number))),
        (0..12_u8).prop_map(|number| Dependency::Address(IpAddr::from([127, 1, 0, number + 1]))),
    ]
}

/// The nodes that a node calls with this part of the mesh.
fn needed(newest: &Mesh, part: &Mesh, used: &BTreeSet<Dependency>) -> Vec<Node> {
    let endpoints = part.services.iter().flat_map(|service| service.endpoints());
    let mut names: BTreeSet<&NodeName> = endpoints.filter_map(|one| one.node.as_ref()).collect();
    for workload in &newest.workloads {
        let mut addresses = workload.all_addresses();
        if addresses.any(|address| used.contains(&Dependency::Address(address))) {
            names.extend(&workload.node);
        }
    }
    let nodes = newest.nodes.iter();
    nodes
        .filter(|node| names.contains(&node.name))
        .cloned()
        .collect()
}

/// What a mesh has for something that a node uses.
fn found(mesh: &Mesh, used: &Dependency) -> (Vec<Shared<Service>>, bool) {
    let is_at = |one: &&Shared<Service>, address: &IpAddr| {
        let mut endpoints = one.ports.iter().flat_map(|port| &port.endpoints);
        one.addresses.contains(address) || endpoints.any(|one| one.address.ip() == *address)
    };
    let services = mesh.services.iter();
    match used {
        Dependency::Service(name) => (
            services.filter(|one| one.name == *name).cloned().collect(),
            false,
        ),
        Dependency::Address(address) => {
            let services = services.filter(|one| is_at(one, address)).cloned();
            (services.collect(), mesh.elsewhere.contains(address))
        }
    }
}

proptest! {
    /// Nodes that name what they use have of that what nodes have that want all there is: with all endpoints, and with the
    /// Services that routes lead to. They know nothing of what they do not use.
    #[test]
    fn what_a_node_uses_is_as_if_it_had_all(
        events in prop::collection::vec(
            prop_oneof![
                4 => event().prop_map(Use::Other),
                2 => (0..NODES.len(), dependency()).prop_map(|(at, one)| Use::Begins(at, one)),
                1 => (0..NODES.len(), dependency()).prop_map(|(at, one)| Use::Ends(at, one)),
            ],
            1..60,
        ),
    ) {
        let nodes = Nodes::default();
        let mut unknown = NODES.iter().zip(1..);
        let mut appear = || {
            if let Some((name, port)) = unknown.next() {
                nodes.remember(&node(name), SocketAddr::from(([127, 2, 0, 1], port)));
            }
        };
        let board = Board::new(nodes.clone()).unwrap();
        let mut sides = NODES.map(Side::on_demand);
        let mut used: [BTreeSet<Dependency>; NODES.len()] = Default::default();
        let mut choices = BTreeMap::new();
        board.put(routed(&choices));
        for event in events {
            let event = match event {
                Use::Begins(at, one) => {
                    prop_assert_eq!(sides[at].known.want(&one), used[at].insert(one));
                    continue;
                }
                Use::Ends(at, one) => {
                    sides[at].known.forget(&one);
                    used[at].remove(&one);
                    continue;
                }
                Use::Other(event) => event,
            };
            match event {
                Event::Steps(at, steps) => {
                    for _ in 0..steps {
                        sides[at].step(&board);
                        let side = &sides[at];
                        // Nothing is said to be known before all of it is there.
                        for one in &used[at] {
                            if side.known.state(one) == Some(DependencyState::There)
                                && let (Dependency::Service(name), Some(mesh)) = (one, &side.used)
                            {
                                prop_assert!(mesh.service(name).is_some());
                            }
                        }
                    }
                    continue;
                }
                Event::Break(at) => {
                    sides[at].disconnect();
                    continue;
                }
                Event::Add(choice) => drop(choices.insert(choice.0, choice)),
                Event::Remove(number) => {
                    choices.remove(&number);
                    appear();
                }
            }
            board.put(routed(&choices));
        }
        let newest = board.mesh().unwrap();
        for (side, used) in sides.iter_mut().zip(&used) {
            let mut steps = 0;
            while side.step(&board) {
                steps += 1;
                prop_assert!(steps < 10_000, "it never becomes quiet");
            }
            let eager = newest.for_node(&side.name);
            let mesh = side.used.as_ref().unwrap();
            prop_assert_eq!(&mesh.workloads, &eager.workloads);
            prop_assert_eq!(&mesh.policies, &eager.policies);
            prop_assert_eq!(&mesh.nodes, &needed(&newest, mesh, used));
            for one in used {
                prop_assert!(side.known.state(one).is_some(), "{} is not answered", one);
                prop_assert_eq!(found(mesh, one), found(&eager, one), "{}", one);
            }
            for service in &mesh.services {
                prop_assert_eq!(Some(&**service), eager.service(&service.name), "it is whole");
            }
            if used.is_empty() && mesh.workloads.is_empty() {
                prop_assert_eq!(&mesh.services, &Vec::new());
            }
            prop_assert_eq!(side.standing.get().unwrap().generation, board.generation());
        }
    }
}

#[test]
fn a_change_of_what_a_node_does_not_use_costs_it_nothing() {
    let board = Board::new(Nodes::default()).unwrap();
    let mut choices: BTreeMap<u8, Choice> = (0..12)
        .map(|number| (number, (number, Some(0), true, 0)))
        .collect();
    board.put(routed(&choices));
    let mut side = Side::on_demand("b");
    side.known.want(&Dependency::Service(service(5)));
    while side.step(&board) {}
    assert_eq!(side.used.as_ref().unwrap().services.len(), 1);
    // Of another Service.
    choices.insert(6, (6, Some(0), true, 1));
    board.put(routed(&choices));
    assert_eq!(side.told(&board), None);
    choices.insert(11, (11, Some(0), true, 1));
    board.put(routed(&choices));
    let told = side.told(&board).unwrap();
    assert_eq!(told.resources.len(), 1);
}

#[test]
fn a_service_that_leaves_an_address_leaves_the_node_that_uses_the_address() {
    let board = Board::new(Nodes::default()).unwrap();
    // Two workloads of one Service, of which the first is outside of the mesh.
    let choices = [1, 1 + SERVICES].map(|number| (number, (number, Some(0), false, 0)));
    let mut mesh = mesh(&choices.into());
    let outside = mesh.workloads[0].clone();
    mesh.workloads.remove(|one| one.name.cmp(&outside.name));
    let outside = outside.address;
    let endpoint = &mut mesh.services[0].ports[0].endpoints[0];
    (endpoint.workload, endpoint.account, endpoint.node) = (None, None, None);
    board.put(mesh.clone());
    let mut side = Side::on_demand("b");
    side.known.want(&Dependency::Address(outside));
    while side.step(&board) {}
    assert_eq!(side.used.as_ref().unwrap().services.len(), 1);
    mesh.services[0].ports[0].endpoints.remove(0);
    board.put(mesh);
    while side.step(&board) {}
    assert!(side.used.as_ref().unwrap().services.is_empty());
}

//! A snapshot that follows others is the one that its mesh alone makes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use heddle_model::{
    Backend, BackendTarget, Dependency, DependencyState, Endpoint, HttpMatch, Mode, Node, NodeName,
    Outcome, PathMatch, Policy, PolicyAction, PolicyName, PolicyRule, RouteAction, RouteMatch,
    RouteRule, WorkloadName,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::route::{Found, Target};
use crate::testing::{account, service, workload};

/// Names of Services and workloads.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A Service: whether it has a cluster address, its ports, their endpoints, and where their routes lead.
type WrittenService = (bool, Vec<u16>, Vec<(u8, u8)>, Vec<(usize, u16)>);

/// What a mesh is made of, each by small numbers.
#[derive(Debug, Clone)]
struct Written {
    services: BTreeMap<usize, WrittenService>,
    nodes: u8,
    workloads: BTreeMap<usize, bool>,
}

fn names() -> impl Strategy<Value = usize> {
    0..NAMES.len()
}

fn written_service() -> impl Strategy<Value = WrittenService> {
    let ports = prop::sample::subsequence(vec![80_u16, 81, 82], 0..3);
    let endpoints = vec((0..6_u8, 0..4_u8), 0..4);
    let routes = vec((names(), 80..83_u16), 0..3);
    (any::<bool>(), ports, endpoints, routes)
}

/// A change: of a Service, of the nodes, of a workload.
#[derive(Debug, Clone)]
enum Edit {
    Service(usize, Option<WrittenService>),
    Nodes(u8),
    Workload(usize, Option<bool>),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => (names(), prop::option::weighted(0.8, written_service()))
            .prop_map(|(name, service)| Edit::Service(name, service)),
        1 => (0..4_u8).prop_map(Edit::Nodes),
        2 => (names(), prop::option::of(any::<bool>()))
            .prop_map(|(name, workload)| Edit::Workload(name, workload)),
    ]
}

fn node(number: u8) -> NodeName {
    NodeName::parse(&format!("n{number}")).unwrap()
}

fn own(number: usize) -> SocketAddr {
    ([10, 0, 0, number as u8], 8080).into()
}

impl Written {
    fn change(&mut self, edit: &Edit) {
        match edit {
            Edit::Service(name, Some(service)) => {
                self.services.insert(*name, service.clone());
            }
            Edit::Service(name, None) => drop(self.services.remove(name)),
            Edit::Nodes(nodes) => self.nodes = *nodes,
            Edit::Workload(name, Some(guarded)) => drop(self.workloads.insert(*name, *guarded)),
            Edit::Workload(name, None) => drop(self.workloads.remove(name)),
        }
    }

    fn endpoint(&self, (at, kind): (u8, u8)) -> Endpoint {
        let by_name = usize::from(at) % NAMES.len();
        let is_own = kind == 0 && self.workloads.contains_key(&by_name);
        Endpoint {
            address: match is_own {
                true => own(by_name),
                // Some are those of workloads of this node, too.
                false => ([10, 0, kind / 3, at], 8080).into(),
            },
            weight: 1,
            max_requests: (kind == 1).then_some(3),
            workload: is_own.then(|| WorkloadName::new("test", NAMES[by_name]).unwrap()),
            remote_workload: None,
            account: Some(account(NAMES[by_name])),
            node: (!is_own).then(|| node(at)),
            has_envoy: false,
        }
    }

    fn service(&self, name: usize) -> Option<Service> {
        let (has_address, ports, endpoints, routes) = self.services.get(&name)?;
        let mut service = service(NAMES[name], own(name), None);
        service.headless = !has_address;
        let cluster: IpAddr = [10, 96, 0, name as u8].into();
        service.addresses = has_address.then_some(cluster).into_iter().collect();
        let like = service.ports[0].clone();
        let ports = ports.iter().enumerate().map(|(at, number)| {
            let mut port = like.clone();
            port.port = *number;
            if number % 2 == 1 {
                port.protocol = AppProtocol::Undeclared;
            }
            let endpoints = endpoints.iter().skip(at).map(|one| self.endpoint(*one));
            let by_address: BTreeMap<_, _> = endpoints.map(|one| (one.address, one)).collect();
            port.endpoints = by_address.into_values().collect();
            let rules = routes
                .iter()
                .skip(at)
                .map(|(to, number)| self.rule(*to, *number));
            port.routes = Some(rules.collect()).filter(|rules: &Vec<_>| !rules.is_empty());
            port
        });
        service.ports = ports.collect();
        Some(service)
    }

    fn rule(&self, to: usize, port: u16) -> RouteRule {
        let is_there = self
            .services
            .get(&to)
            .is_some_and(|one| one.1.contains(&port));
        let target = match is_there {
            true => BackendTarget::Service {
                service: ServiceName::new("test", NAMES[to]).unwrap(),
                port,
            },
            false => BackendTarget::Unresolved {
                reason: String::new(),
            },
        };
        RouteRule {
            name: "test/route".into(),
            rule: 0,
            matcher: RouteMatch {
                path: PathMatch::Prefix(if port == 80 {
                    String::new()
                } else {
                    "/a".to_owned()
                }),
                method: None,
                headers: Vec::new(),
                query: Vec::new(),
            },
            action: Arc::new(RouteAction {
                filters: Default::default(),
                outcome: Outcome::Forward(vec![Backend {
                    weight: 1,
                    target,
                    filters: Default::default(),
                }]),
                request_timeout_ms: None,
                backend_timeout_ms: None,
            }),
        }
    }

    /// The mesh; what is equal to what `before` has is the same object.
    fn mesh(&self, before: &Mesh) -> Mesh {
        let policy = PolicyName::parse("AuthorizationPolicy test/paths").unwrap();
        let services = (0..NAMES.len()).filter_map(|name| self.service(name));
        let keep_service = |one: Service| {
            let mut known = before.services.iter();
            let known = known.find(|known| ***known == one);
            known.cloned().unwrap_or_else(|| one.into())
        };
        let workloads = self.workloads.iter().map(|(name, is_guarded)| {
            let mut one = workload(NAMES[*name], own(*name), None);
            one.mode = Mode::Permissive;
            one.policies = is_guarded.then(|| policy.clone()).into_iter().collect();
            let mut known = before.workloads.iter();
            let known = known.find(|known| ***known == one);
            known.cloned().unwrap_or_else(|| one.into())
        });
        let workloads: Vec<_> = workloads.collect();
        let paths = || {
            Arc::new(Policy {
                name: policy.clone(),
                action: PolicyAction::Deny,
                dry_run: false,
                rules: vec![PolicyRule {
                    number: 0,
                    sources: None,
                    ports: Vec::new(),
                    http: Some(HttpMatch {
                        paths: vec![PathMatch::Exact("/secret".to_owned())],
                        ..HttpMatch::default()
                    }),
                }],
            })
        };
        let is_needed = self.workloads.values().any(|is_guarded| *is_guarded);
        let policies = before.policies.first().map_or_else(paths, Arc::clone);
        Mesh {
            generation: before.generation + 1,
            nodes: (0..self.nodes)
                .map(|number| Node {
                    name: node(number),
                    address: ([192, 0, 2, number + 1], 1).into(),
                })
                .collect(),
            services: services.map(keep_service).collect(),
            workloads: workloads.into(),
            policies: is_needed.then_some(policies).into_iter().collect(),
            named: Some(
                vec![(
                    Dependency::Address([10, 96, 0, 1].into()),
                    DependencyState::Absent,
                )]
                .into(),
            ),
            ..Mesh::default()
        }
    }
}

/// All that a snapshot says, without the numbers of its ports.
fn said(snapshot: &Snapshot, mesh: &Mesh) -> String {
    let mut said = String::new();
    let name = |index: PortIndex| {
        snapshot.port(index).label.to_string() + &format!("{:?}", snapshot.port(index).name)
    };
    for service in NAMES {
        let service = ServiceName::new("test", service).unwrap();
        writeln!(said, "{service} {}", snapshot.hosts.has(&service)).unwrap();
        for number in 80..83 {
            let Some(index) = snapshot.find(&service, number) else {
                continue;
            };
            let port = snapshot.port(index);
            let routes = port.routes.as_ref();
            writeln!(
                said,
                "{} {:?} {:?} unreached {:?} strict {} routes {}",
                name(index),
                port.protocol,
                port.cluster,
                port.unreached,
                snapshot.strict_paths(index, routes),
                routes.is_some(),
            )
            .unwrap();
            for rule in &port.rules {
                for backend in &rule.action.backends {
                    let target = match backend.target {
                        Target::Port(index) => name(index),
                        Target::Unresolved => "nowhere".to_owned(),
                    };
                    writeln!(said, "  {:?} {:?} to {target}", rule.index, rule.path).unwrap();
                }
            }
        }
    }
    let places = mesh.services.iter().flat_map(|service| {
        let clusters = service.addresses.iter();
        let clusters = clusters.map(|address| SocketAddr::new(*address, 80));
        let endpoints = service.endpoints().map(|one| one.address);
        clusters.chain(endpoints).collect::<Vec<_>>()
    });
    let others = (0..6).flat_map(|at| [([10, 96, 0, at], 81).into(), ([10, 0, 1, at], 9).into()]);
    let own = (0..NAMES.len()).map(own);
    for address in places.chain(others).chain(own) {
        let found = match snapshot.addresses.find(address) {
            Found::Service(index) => format!("service {}", name(index)),
            Found::Endpoint(index) => format!("endpoint {}", name(index)),
            other => format!("{other:?}"),
        };
        let judged = snapshot.guards.look_at_paths_before(address);
        writeln!(said, "{address} {found} {judged}").unwrap();
    }
    let workloads = NAMES.map(|name| WorkloadName::new("test", name).unwrap());
    for workload in workloads {
        let index = snapshot.names.workload(&workload);
        writeln!(said, "{workload} {:?}", index.map(name)).unwrap();
    }
    let own: Vec<String> = snapshot.with_workloads().map(name).collect();
    let own: BTreeSet<String> = own.into_iter().collect();
    let unreached: BTreeSet<_> = snapshot.unreached().collect();
    writeln!(said, "own {own:?} unreached {unreached:?}").unwrap();
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_snapshot_that_follows_others_is_the_one_of_its_mesh(edits in vec(vec(edit(), 1..3), 1..20)) {
        let mut written = Written {
            services: BTreeMap::new(),
            nodes: 3,
            workloads: BTreeMap::new(),
        };
        let mut mesh = written.mesh(&Mesh::default());
        let mut snapshot = Snapshot::new(&mesh);
        for edits in edits {
            edits.iter().for_each(|edit| written.change(edit));
            let next = written.mesh(&mesh);
            let following = snapshot.followed_by(&next, |_, _, _| {});
            prop_assert_eq!(said(&following, &next), said(&Snapshot::new(&next), &next));
            // Ports keep their indices, and indices are not used up.
            for name in NAMES {
                let service = ServiceName::new("test", name).unwrap();
                for number in 80..83 {
                    let (was, is) = (snapshot.find(&service, number), following.find(&service, number));
                    prop_assert!(was.is_none() || is.is_none() || was == is);
                }
            }
            prop_assert!(following.ports().len() <= 1 + NAMES.len() * 4);
            (mesh, snapshot) = (next, following);
        }
    }
}

/// Three Services, of which the first has a route to the second.
fn three() -> Mesh {
    let mut mesh = Mesh {
        services: ["a", "b", "c"]
            .map(|name| service(name, own(1), None).into())
            .into(),
        ..Mesh::default()
    };
    let written = Written {
        services: BTreeMap::from([(1, (false, vec![80], Vec::new(), Vec::new()))]),
        nodes: 0,
        workloads: BTreeMap::new(),
    };
    mesh.services[0].ports[0].routes = Some(vec![written.rule(1, 80)]);
    mesh
}

fn entry<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Arc<PortEntry> {
    let service = ServiceName::new("test", name).unwrap();
    &snapshot.ports()[snapshot.find(&service, 80).unwrap().get()]
}

#[test]
fn ports_that_nothing_has_changed_are_shared() {
    let mut mesh = three();
    let first = Snapshot::new(&mesh);
    let compiled = std::cell::Cell::new(0);
    let furnish = |_: &Service, _: &ServicePort, _: &mut Cluster| compiled.set(compiled.get() + 1);
    let is_same =
        |one: &Snapshot, other: &Snapshot, name| Arc::ptr_eq(entry(one, name), entry(other, name));
    mesh.services[2].ports[0].endpoints.clear();
    let second = first.followed_by(&mesh, furnish);
    assert_eq!(compiled.take(), 1);
    assert!(is_same(&first, &second, "a") && is_same(&first, &second, "b"));
    assert!(!is_same(&first, &second, "c"));
    // What leads to a port that changes leads to the same index.
    mesh.services[1].ports[0].endpoints.clear();
    let third = second.followed_by(&mesh, furnish);
    assert_eq!(compiled.take(), 1);
    assert!(is_same(&second, &third, "a"));
    // What leads to a port that is gone does not lead to the one that gets its index.
    let b = mesh.services.remove(1);
    mesh.services.push(service("d", own(1), None).into());
    let fourth = third.followed_by(&mesh, furnish);
    assert_eq!(compiled.take(), 2);
    let target = |snapshot: &Snapshot| entry(snapshot, "a").rules[0].action.backends[0].target;
    assert_eq!(target(&fourth), Target::Unresolved);
    mesh.services.insert(1, b);
    let fifth = fourth.followed_by(&mesh, furnish);
    assert_eq!(compiled.take(), 2);
    let now = fifth
        .find(&ServiceName::new("test", "b").unwrap(), 80)
        .unwrap();
    assert_eq!(target(&fifth), Target::Port(now));
}

#[test]
fn a_node_that_comes_or_moves_concerns_what_is_on_it() {
    let mut mesh = three();
    for (at, on) in [(1, 1), (2, 2)] {
        let endpoint = &mut mesh.services[at].ports[0].endpoints[0];
        (endpoint.workload, endpoint.node) = (None, Some(node(on)));
        endpoint.account = Some(account("c"));
    }
    let at = |number: u8, port| Node {
        name: node(number),
        address: ([192, 0, 2, number], port).into(),
    };
    mesh.nodes = vec![at(1, 1)];
    let first = Snapshot::new(&mesh);
    let endpoints = |snapshot: &Snapshot, name| entry(snapshot, name).cluster.endpoints.len();
    assert_eq!((endpoints(&first, "b"), endpoints(&first, "c")), (1, 0));
    let is_same =
        |one: &Snapshot, other: &Snapshot, name| Arc::ptr_eq(entry(one, name), entry(other, name));
    mesh.nodes.push(at(2, 1));
    let second = first.followed_by(&mesh, |_, _, _| {});
    assert_eq!(endpoints(&second, "c"), 1, "it is reached now");
    assert!(is_same(&first, &second, "a") && is_same(&first, &second, "b"));
    mesh.nodes[0] = at(1, 2);
    let third = second.followed_by(&mesh, |_, _, _| {});
    assert!(is_same(&second, &third, "a") && is_same(&second, &third, "c"));
    assert!(!is_same(&second, &third, "b"), "it is reached elsewhere");
}

#[test]
fn what_is_forgotten_leaves_no_room_in_tables() {
    let many = (0..2_000_u32).map(|number| {
        let address = SocketAddr::from((number.to_be_bytes(), 80));
        let mut service = service(&format!("s{number:04}"), address, Some(node(0)));
        service.ports[0].endpoints[0].workload = None;
        service.into()
    });
    let mut mesh = Mesh {
        services: many.collect(),
        ..Mesh::default()
    };
    let all = Snapshot::new(&mesh);
    mesh.services.truncate(10);
    let few = all.followed_by(&mesh, |_, _, _| {});
    let room = |snapshot: &Snapshot| {
        snapshot.addresses.room() + snapshot.names.room() + snapshot.hosts.room()
    };
    assert!(room(&all) > 4 * 2_000, "{}", room(&all));
    assert!(room(&few) < 4 * 100, "{}", room(&few));
}

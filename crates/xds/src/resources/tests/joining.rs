use std::collections::BTreeMap;

use heddle_model::{
    Access, Connect, Decider, Guard, Mesh, Mode, Outcome, PolicyAction, PolicyName, Shared,
};
use proptest::collection::vec;
use proptest::sample::{Index, select};

use super::*;

/// The resources that a node is given.
fn given<'r>(mesh: &Mesh, all: &'r [Resource], node: &NodeName) -> Vec<&'r Resource> {
    let is_single = mesh
        .workloads
        .iter()
        .all(|workload| workload.node.is_none());
    let is_own = |workload: &Workload| is_single || workload.node.as_ref() == Some(node);
    let own = || mesh.workloads.iter().filter(|workload| is_own(workload));
    let policies: Vec<&PolicyName> = own().flat_map(|workload| &workload.policies).collect();
    let is_gateway = own().any(|own| mesh.forwarding.is_at(own));
    let is_given = |resource: &&Resource| match resource {
        Resource::Workload(_) | Resource::Policy(_) if is_gateway => true,
        Resource::Workload(workload) => is_own(workload),
        Resource::Policy(policy) => policies.contains(&&policy.name),
        _ => true,
    };
    all.iter().filter(is_given).collect()
}

fn sent(mesh: &Mesh) -> Vec<Resource> {
    split(mesh).map(|resource| arrived(&resource)).collect()
}

fn node_named(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn joined_resources_are_the_part_of_the_node(
        mesh in generate::mesh(),
        order in vec(any::<u32>(), 64),
    ) {
        prop_assert_eq!(mesh.check_invariants(), Ok(()));
        let all = sent(&mesh);
        for name in generate::NODES {
            let node = node_named(name);
            let mut given = given(&mesh, &all, &node);
            let mut ranks = order.iter().cycle();
            given.sort_by_cached_key(|_| *ranks.next().unwrap());
            let joined = join(given, &node).unwrap();
            prop_assert_eq!(&joined, &mesh.for_node(&node));
            // What is of other nodes changes nothing.
            prop_assert_eq!(&join(&all, &node).unwrap(), &joined);
            let shared = joined.services.iter().map(|one| sharing(one));
            prop_assert!(shared.eq(mesh.services.iter().map(|one| sharing(one))));
        }
    }

    /// Given some resources of two meshes, in any order.
    #[test]
    fn any_resources_make_a_mesh_that_holds_its_invariants(
        old in generate::mesh(),
        new in generate::mesh(),
        chosen in vec(any::<Index>(), 0..60),
        name in select(generate::NODES.to_vec()),
    ) {
        let all: Vec<Resource> = split(&old).chain(split(&new)).collect();
        let chosen = chosen.iter().map(|index| index.get(&all));
        let settings = split(&new).find(|one| one.kind() == Type::MeshSettings).unwrap();
        let mut joined = join(chosen.chain([&settings]), &node_named(name)).unwrap();
        for workload in joined.workloads.iter_mut() {
            let known: Vec<&PolicyName> = joined.policies.iter().map(|one| &one.name).collect();
            workload.policies.retain(|policy| known.contains(&policy));
        }
        prop_assert_eq!(joined.check_invariants(), Ok(()));
    }
}

/// Services of few names and few cluster addresses, which they claim from each other.
fn contested(mesh: &Mesh, claims: &[Index]) -> Vec<Resource> {
    let mut all = sent(mesh);
    let mut claims = claims.iter();
    for resource in &mut all {
        if let Resource::Service(service) = resource
            && let Some(claim) = claims.next()
        {
            let last = u8::try_from(claim.index(3)).unwrap();
            service.addresses = match service.headless {
                true => Vec::new(),
                false => vec![[10, 96, 0, last].into()],
            };
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What changes step by step is joined as if it had come at once, and what has stayed is the same object.
    #[test]
    fn a_mesh_that_changes_is_the_one_that_its_resources_make(
        old in generate::mesh(),
        new in generate::mesh(),
        claims in vec(any::<Index>(), 8),
        steps in vec((any::<Index>(), 0..4_u8), 0..80),
        name in select(generate::NODES.to_vec()),
    ) {
        let node = node_named(name);
        let all = [contested(&old, &claims[..4]), contested(&new, &claims[4..])].concat();
        let mut held: BTreeMap<(Type, String), Resource> = BTreeMap::new();
        let mut joined = JoinedMesh::new(node.clone());
        joined.find_addresses();
        let mut before: Option<Mesh> = None;
        // At first there is all of the first mesh.
        let first = all.iter().take(split(&old).count()).map(|one| (one, false));
        let steps = steps.iter().map(|(index, kind)| (index.get(&all), *kind == 0));
        for (resource, is_removed) in first.chain(steps) {
            let key = (resource.kind(), resource.name());
            match is_removed {
                true => {
                    joined.remove(key.0, &key.1);
                    held.remove(&key);
                }
                false => {
                    joined.put(resource.clone());
                    held.insert(key, resource.clone());
                }
            }
            // Several changes at once, too.
            if resource.name().len() % 2 == 0 {
                continue;
            }
            let now = joined.mesh().cloned();
            let anew = join(held.values(), &node);
            prop_assert_eq!(&now, &anew);
            let Some(now) = now else { continue };
            for service in &now.services {
                let was = before.iter().flat_map(|mesh| &mesh.services);
                let was = was.into_iter().find(|was| was.name == service.name);
                let is_kept = was.is_none_or(|was| {
                    **was != **service || heddle_model::Shared::is_same(was, service)
                });
                prop_assert!(is_kept, "{} is another object", service.name);
            }
            let addresses: Vec<IpAddr> = now.services.iter().flat_map(|one| {
                let endpoints = one.endpoints().map(|endpoint| endpoint.address.ip());
                one.addresses.iter().copied().chain(endpoints)
            }).collect();
            let of_any = held.values().flat_map(|one| match one {
                Resource::Service(service) => service.addresses.clone(),
                Resource::Endpoint(of) => vec![of.endpoint.address.ip()],
                _ => Vec::new(),
            });
            for address in of_any {
                prop_assert_eq!(joined.has_address(address), addresses.contains(&address));
            }
            before = Some(now);
        }
    }
}

fn policy() -> Policy {
    Policy {
        name: PolicyName::parse("AuthorizationPolicy a/p").unwrap(),
        action: PolicyAction::Allow,
        dry_run: false,
        rules: Vec::new(),
    }
}

fn workload() -> Workload {
    Workload {
        name: WorkloadName::parse("a/w").unwrap(),
        labels: Default::default(),
        service_account: ServiceAccountName::parse("a/default").unwrap(),
        address: [10, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: vec![[10, 0, 0, 2].into()],
        ports: Vec::new(),
        weight: 1,
        node: Some(node_named("n")),
        mode: Mode::Permissive,
        policies: vec![policy().name],
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

/// One workload on a node `n`, two Services with it, and a route from the first Service to the second.
fn small() -> Mesh {
    let workload = workload();
    let endpoint = Endpoint {
        address: (workload.address, 8080).into(),
        weight: 1,
        max_requests: None,
        workload: Some(workload.name.clone()),
        remote_workload: None,
        account: Some(workload.service_account.clone()),
        node: workload.node.clone(),
        has_envoy: workload.proxy.is_envoy(),
    };
    let action = Arc::new(heddle_model::RouteAction {
        filters: Default::default(),
        outcome: Outcome::Forward(vec![Backend {
            weight: 1,
            target: BackendTarget::Service {
                service: ServiceName::parse("a/t").unwrap(),
                port: 80,
            },
            filters: Default::default(),
        }]),
        request_timeout_ms: None,
        backend_timeout_ms: None,
    });
    let rule = |prefix: &str| RouteRule {
        name: "a/r".into(),
        rule: 0,
        matcher: heddle_model::RouteMatch {
            path: heddle_model::PathMatch::Prefix(prefix.to_owned()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action: Arc::clone(&action),
    };
    let service = |name: &str, routes| Service {
        name: ServiceName::parse(name).unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Default::default(),
        balancing: Default::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: heddle_model::AppProtocol::Http,
            endpoints: vec![endpoint.clone()],
            routes,
            consumer_routes: Default::default(),
        }],
    };
    let mesh = Mesh {
        services: vec![
            service("a/s", Some(vec![rule("/a"), rule("/b")])).into(),
            service("a/t", None).into(),
        ],
        workloads: vec![workload.into()].into(),
        policies: vec![Arc::new(policy())],
        ..Mesh::default()
    };
    assert_eq!(mesh.check_invariants(), Ok(()));
    mesh
}

/// What node `n` makes of all resources of the small mesh but those of one type and name.
fn without(kind: Type, name: &str) -> Mesh {
    let all = sent(&small());
    let mut rest: Vec<&Resource> = all.iter().collect();
    rest.retain(|one| (one.kind(), one.name().as_str()) != (kind, name));
    assert_eq!(rest.len(), all.len() - 1, "{kind:?} {name}");
    join(rest, &node_named("n")).unwrap()
}

#[test]
fn without_settings_there_is_no_mesh() {
    let resources: Vec<Resource> = split(&small()).skip(1).collect();
    assert_eq!(join(&resources, &node_named("n")), None);
}

#[test]
fn a_workload_without_its_policy_refuses_every_call() {
    let mesh = without(Type::Policy, "AuthorizationPolicy/a/p");
    let workload = mesh.workload(&workload().name).expect("it is there");
    let guard = Guard::new(&mesh, workload);
    let decision = guard.decide(&Access::flow(None, 8080));
    assert!(!decision.allowed);
    assert_eq!(decision.by, Decider::PolicyMissing);
    let connect = guard.may_connect(None, 8080);
    assert_eq!(connect, Connect::Refused(Decider::PolicyMissing));
    assert_eq!(mesh.services.len(), 2);
}

#[test]
fn an_endpoint_without_its_service_is_left_out() {
    let mesh = without(Type::Service, "a/t");
    assert_eq!(mesh.services.len(), 1);
    assert_eq!(mesh.services[0].ports[0].endpoints.len(), 1);
}

#[test]
fn a_backend_without_its_service_is_unresolved() {
    let mesh = without(Type::Service, "a/t");
    assert_eq!(mesh.check_invariants(), Ok(()));
    assert_eq!(sharing(&mesh.services[0]), [0, 0]);
    let rules = mesh.services[0].ports[0].routes.as_ref().unwrap();
    let Outcome::Forward(backends) = &rules[0].action.outcome else {
        panic!("it redirects");
    };
    let BackendTarget::Unresolved { reason } = &backends[0].target else {
        panic!("it is resolved");
    };
    assert_eq!(reason, "the node does not know port 80 of the Service a/t");
}

#[test]
fn an_endpoint_without_its_workload_is_left_out() {
    let mesh = without(Type::Workload, "a/w");
    assert_eq!(mesh.check_invariants(), Ok(()));
    assert!(mesh.services[0].ports[0].endpoints.is_empty());
    assert!(mesh.policies.is_empty());
    // On another node the endpoint does not depend on it.
    let all = sent(&small());
    let other = join(&all, &node_named("other")).unwrap();
    let endpoint = &other.services[0].ports[0].endpoints[0];
    assert_eq!(endpoint.remote_workload, Some(workload().name));
    assert_eq!(endpoint.workload, None);
}

#[test]
fn a_further_address_brings_the_first_one() {
    let all = sent(&small());
    let first = workload().address;
    let further = workload().more_addresses[0];
    let rest = all.iter().filter(|one| one.name() != first.to_string());
    let mesh = join(rest, &node_named("other")).unwrap();
    assert_eq!(mesh.elsewhere, [first, further]);
    assert_eq!(mesh.further, [(further, first)]);
}

#[test]
fn what_has_an_identity_too_long_is_left_out() {
    let mut all = sent(&small());
    all.push(Resource::Node(Node {
        name: node_named(&["n"; 60].join(".")),
        address: ([10, 0, 0, 9], 1).into(),
    }));
    let mut joined = |labels: usize| {
        let domain = vec!["d"; labels].join(".");
        all[0] = Resource::MeshSettings(Settings {
            trust_domain: TrustDomain::parse(&domain).unwrap(),
            single_node: false,
            address_ranges: Vec::new(),
            forwarding: Shared::default(),
        });
        let mesh = join(&all, &node_named("n")).unwrap();
        assert_eq!(mesh.check_invariants(), Ok(()));
        let endpoints = mesh.services[0].ports[0].endpoints.len();
        (mesh.nodes.len(), mesh.workloads.len(), endpoints)
    };
    assert_eq!(joined(1), (1, 1, 1));
    assert_eq!(joined(100), (0, 1, 1));
    assert_eq!(joined(127), (0, 0, 0));
}

#[test]
fn a_cluster_address_of_two_services_is_that_of_the_first() {
    let mut all = sent(&small());
    for resource in &mut all {
        if let Resource::Service(service) = resource {
            service.addresses = vec![[10, 96, 0, 1].into()];
        }
    }
    let mesh = join(&all, &node_named("n")).unwrap();
    assert_eq!(mesh.services[0].addresses.len(), 1);
    assert!(mesh.services[1].addresses.is_empty());
    assert_eq!(mesh.check_invariants(), Ok(()));
}

use super::*;
use crate::Balancer;

#[test]
fn finds_a_service_by_name() {
    let service = |name: &str| Service {
        name: ServiceName::parse(name).unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::default(),
        balancing: crate::Balancing::default(),
        ports: Vec::new(),
    };
    let mesh = Mesh {
        generation: 1,
        services: vec![service("a/x").into(), service("b/x").into()],
        ..Mesh::default()
    };
    let found = mesh
        .service(&ServiceName::parse("b/x").unwrap())
        .map(|s| s.name.to_string());
    assert_eq!(found.as_deref(), Some("b/x"));
    assert!(mesh.service(&ServiceName::parse("b/y").unwrap()).is_none());
    assert!(
        mesh.workload(&WorkloadName::parse("b/x").unwrap())
            .is_none()
    );
}

fn placed(nodes: [Option<&str>; 2]) -> Mesh {
    let account = crate::ServiceAccountName::parse("a/default").unwrap();
    let policy = |name: &str| crate::PolicyName::parse(name).unwrap();
    let workload = |(n, node): (usize, Option<&str>)| Workload {
        name: WorkloadName::parse(&format!("a/w{n}")).unwrap(),
        labels: Default::default(),
        service_account: account.clone(),
        address: [127, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: node.map(|node| NodeName::parse(node).unwrap()),
        mode: crate::Mode::Strict,
        policies: vec![policy(&format!("TrafficTarget a/p{n}"))],
        probes: Vec::new(),
        qos: Default::default(),
        proxy: crate::Proxy::Node,
        command: None,
    };
    let workloads: Vec<_> = nodes
        .into_iter()
        .enumerate()
        .map(workload)
        .map(Shared::from)
        .collect();
    let endpoint = |(n, workload): (u16, &Shared<Workload>)| crate::Endpoint {
        address: (workload.address, 8000 + n).into(),
        weight: 1,
        max_requests: None,
        workload: Some(workload.name.clone()),
        remote_workload: None,
        account: Some(workload.service_account.clone()),
        node: workload.node.clone(),
        has_envoy: workload.proxy.is_envoy(),
    };
    let policies = workloads.iter().flat_map(|workload| &workload.policies);
    Mesh {
        services: vec![
            Service {
                name: ServiceName::parse("a/s").unwrap(),
                headless: false,
                addresses: Vec::new(),
                balancer: Balancer::default(),
                balancing: crate::Balancing::default(),
                ports: vec![crate::ServicePort {
                    name: None,
                    port: 80,
                    protocol: crate::AppProtocol::Http,
                    endpoints: (0..).zip(&workloads).map(endpoint).collect(),
                    routes: None,
                    consumer_routes: Default::default(),
                }],
            }
            .into(),
        ],
        policies: policies
            .map(|name| {
                Arc::new(Policy {
                    name: name.clone(),
                    action: crate::PolicyAction::Allow,
                    dry_run: false,
                    rules: Vec::new(),
                })
            })
            .collect(),
        workloads: workloads.into(),
        ..Mesh::default()
    }
}

#[test]
fn a_node_gets_its_own_workloads_and_all_endpoints() {
    let whole = placed([Some("n0"), Some("n1")]);
    assert_eq!(whole.check_invariants(), Ok(()));
    let own = whole.for_node(&NodeName::parse("n1").unwrap());
    assert_eq!(own.check_invariants(), Ok(()));
    assert!(own.workloads.iter().eq(whole.workloads.iter().skip(1)));
    assert_eq!(own.policies, whole.policies[1..]);
    let endpoints = &own.services[0].ports[0].endpoints;
    assert_eq!(endpoints[0].workload, None);
    let named = Some(&whole.workloads[0].name);
    assert_eq!(endpoints[0].remote_workload.as_ref(), named);
    assert!(endpoints[0].account.is_some() && endpoints[0].node.is_some());
    assert_eq!(endpoints[1], whole.services[0].ports[0].endpoints[1]);
    let other = whole.for_node(&NodeName::parse("n2").unwrap());
    assert_eq!(other.check_invariants(), Ok(()));
    assert!(other.workloads.is_empty() && other.policies.is_empty());
    // A node without workloads gets every Service nevertheless.
    let named: Vec<String> = other.services.iter().map(|s| s.name.to_string()).collect();
    assert_eq!(named, ["a/s"]);
    assert_eq!(other.services[0].ports[0].endpoints.len(), 2);
    assert_eq!(own.for_node(&NodeName::parse("n1").unwrap()), own);
}

#[test]
fn of_the_workloads_of_other_nodes_a_node_gets_the_addresses() {
    let mut whole = placed([Some("n0"), Some("n1")]);
    whole.workloads[0].more_addresses = vec![[10, 0, 0, 9].into()];
    whole.workloads[1].address = [10, 0, 0, 1].into();
    let part = |name: &str| whole.for_node(&NodeName::parse(name).unwrap());
    let elsewhere = |mesh: &Mesh| -> Vec<String> {
        let all = mesh.elsewhere.iter();
        all.map(ToString::to_string).collect()
    };
    assert_eq!(elsewhere(&part("n0")), ["10.0.0.1"]);
    assert_eq!(elsewhere(&part("n1")), ["10.0.0.9", "127.0.0.1"]);
    let again = part("n1").for_node(&NodeName::parse("n1").unwrap());
    assert_eq!(again.elsewhere, part("n1").elsewhere);
    assert!(elsewhere(&whole).is_empty());
    let first = whole.workloads[0].address;
    assert_eq!(part("n1").further, [([10, 0, 0, 9].into(), first)]);
    assert_eq!(again.further, part("n1").further);
    assert!(part("n0").further.is_empty());
    let places = |elsewhere| Mesh {
        elsewhere,
        further: part("n1").further,
        ..Mesh::default()
    };
    let known = places(part("n1").elsewhere);
    assert_eq!(known.check_invariants(), Ok(()));
    assert!(places(Vec::new()).check_invariants().is_err());
}

#[test]
fn without_node_names_there_is_one_node() {
    let node = NodeName::parse("n0").unwrap();
    let whole = placed([None, None]);
    assert_eq!(whole.for_node(&node), whole);
    // As soon as one workload names a node, the other is on no node.
    let mixed = placed([Some("n0"), None]);
    let own = mixed.for_node(&node);
    assert!(own.workloads.iter().eq(mixed.workloads.iter().take(1)));
    assert_eq!(own.services[0].ports[0].endpoints[1].workload, None);
    assert_eq!(own.check_invariants(), Ok(()));
}

#[test]
fn a_mesh_can_be_read_back() {
    let mesh = placed([Some("n0"), None]);
    let json = serde_json::to_string(&mesh).unwrap();
    assert_eq!(serde_json::from_str::<Mesh>(&json).unwrap(), mesh);
}

#[test]
fn nodes_without_an_address_are_known() {
    let names = [Some("a"), Some("b")];
    let part = placed(names).for_node(&NodeName::parse("a").unwrap());
    let unreached = |mesh: &Mesh| -> Vec<String> {
        let nodes = mesh.unreached_nodes();
        nodes.into_iter().map(ToString::to_string).collect()
    };
    assert_eq!(unreached(&part), ["b"]);
    let mut reached = part;
    reached.nodes = vec![Node {
        name: NodeName::parse("b").unwrap(),
        address: ([127, 0, 0, 1], 1).into(),
    }];
    assert!(unreached(&reached).is_empty());
}

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use heddle_model::{
    AppProtocol, Balancer, Mesh, Mode, Namespace, Service, ServiceAccountName, ServiceName,
    ServicePort, Workload, WorkloadName,
};

use super::{Changes, FORWARD_PROXY_PORT, Listeners, Most, in_brief};
use crate::status::{ListenerKind, ListenerStatus};

/// A Service with a name that no other test uses, so that tests do not meet at an address.
fn service(name: &str, ports: &[u16]) -> Service {
    let port = |port: &u16| ServicePort {
        name: None,
        port: *port,
        protocol: AppProtocol::Http,
        endpoints: Vec::new(),
        routes: None,
        consumer_routes: BTreeMap::new(),
    };
    Service {
        name: ServiceName::new("listeners", name).expect("a name"),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::default(),
        balancing: heddle_model::Balancing::default(),
        ports: ports.iter().map(port).collect(),
    }
}

fn workload(name: &str, address: [u8; 4]) -> Workload {
    Workload {
        name: WorkloadName::new("listeners", name).expect("a name"),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::new("listeners", "default").expect("a name"),
        address: IpAddr::from(address),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

fn most(set: usize) -> Most {
    Most {
        set,
        descriptors: 1_000,
    }
}

fn mesh(services: Vec<Service>, workloads: Vec<Workload>) -> Mesh {
    Mesh {
        generation: 1,
        services: services.into_iter().map(Into::into).collect(),
        workloads: workloads.into_iter().map(Into::into).collect(),
        ..Mesh::default()
    }
}

fn of<'a>(
    status: &'a [ListenerStatus],
    service: &str,
    caller: Option<&str>,
) -> Vec<&'a ListenerStatus> {
    let service = format!("listeners/{service}");
    let caller = caller.map(|caller| format!("listeners/{caller}"));
    status
        .iter()
        .filter(|l| l.service.as_ref() == Some(&service) && l.caller == caller)
        .collect()
}

#[track_caller]
fn opened(changes: &Changes) -> BTreeSet<u64> {
    assert_eq!(changes.problems, Vec::<String>::new());
    changes.open.iter().map(|(id, _, _)| *id).collect()
}

#[test]
fn a_workload_with_an_envoy_of_its_own_gets_no_listeners() {
    let mut listeners = Listeners::new(most(100));
    let mut envoy = workload("own-x", [127, 9, 0, 3]);
    envoy.proxy = heddle_model::Proxy::Envoy { lazy: true };
    let mesh = mesh(
        vec![service("own-a", &[18_080])],
        vec![workload("own-w", [127, 9, 0, 2]), envoy],
    );
    // One for all callers; the other workload's own one, and its forward proxy.
    assert_eq!(opened(&listeners.follow(&mesh)).len(), 3);
    let status = listeners.status(&Mesh::default());
    assert_eq!(of(&status, "own-a", Some("own-x")).len(), 0);
}

#[test]
fn each_caller_has_an_address_for_each_service_and_all_others_share_one() {
    let mut listeners = Listeners::new(most(100));
    let mesh = mesh(
        vec![
            service("each-a", &[18_080, 18_081]),
            service("each-b", &[18_080]),
        ],
        vec![
            workload("each-w", [127, 9, 0, 2]),
            workload("each-x", [127, 0, 0, 1]),
        ],
    );
    let changes = listeners.follow(&mesh);
    assert_eq!(opened(&changes).len(), 3 * 3 + 2);
    let status = listeners.status(&Mesh::default());
    let distinct: BTreeSet<SocketAddr> = status.iter().map(|l| l.address).collect();
    assert_eq!(distinct.len(), status.len());

    // The ports of a Service share an address; callers do not.
    let both = of(&status, "each-a", Some("each-w"));
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].address.ip(), both[1].address.ip());
    assert_ne!(
        of(&status, "each-a", None)[0].address.ip(),
        both[0].address.ip()
    );

    // A forward proxy is at its workload's own address unless that is 127.0.0.1.
    let proxy = |name: &str| {
        let caller = Some(format!("listeners/{name}"));
        let is = |l: &&ListenerStatus| l.kind == ListenerKind::ForwardProxy && l.caller == caller;
        status
            .iter()
            .find(is)
            .map(|l| l.address)
            .expect("a forward proxy")
    };
    assert_eq!(
        proxy("each-w"),
        SocketAddr::from(([127, 9, 0, 2], FORWARD_PROXY_PORT))
    );
    assert_ne!(proxy("each-x").ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(proxy("each-x").port(), FORWARD_PROXY_PORT);
}

#[test]
fn only_what_changed_is_opened_or_closed() {
    let mut listeners = Listeners::new(most(100));
    let (a, b) = (service("diff-a", &[18_080]), service("diff-b", &[18_080]));
    let first = listeners.follow(&mesh(vec![a.clone()], Vec::new()));
    let kept = opened(&first);

    let second = listeners.follow(&mesh(vec![a.clone(), b.clone()], Vec::new()));
    let added = opened(&second);
    assert_eq!((added.len(), second.close.len()), (1, 0));

    let third = listeners.follow(&mesh(vec![a, b.clone()], Vec::new()));
    assert_eq!((opened(&third).len(), third.close.len()), (0, 0));

    let fourth = listeners.follow(&mesh(vec![b], Vec::new()));
    assert_eq!(fourth.close.into_iter().collect::<BTreeSet<_>>(), kept);
    assert!(fourth.open.is_empty());
}

#[test]
fn a_new_port_of_a_service_joins_its_address() {
    let mut listeners = Listeners::new(most(100));
    let first = listeners.follow(&mesh(vec![service("join", &[18_080])], Vec::new()));
    let second = listeners.follow(&mesh(vec![service("join", &[18_080, 18_090])], Vec::new()));
    assert_eq!((opened(&second).len(), second.close.len()), (1, 0));
    let ips: BTreeSet<IpAddr> = listeners
        .status(&Mesh::default())
        .iter()
        .map(|l| l.address.ip())
        .collect();
    assert_eq!(ips.len(), 1);
    drop(first);
}

#[test]
fn an_address_that_another_process_has_is_exchanged() {
    let mesh = mesh(vec![service("taken", &[18_080])], Vec::new());
    let mut first = Listeners::new(most(100));
    let held = first.follow(&mesh);
    let mut second = Listeners::new(most(100));
    let changes = second.follow(&mesh);
    assert_eq!(opened(&changes).len(), 1);
    assert_ne!(
        first.status(&Mesh::default())[0].address.ip(),
        second.status(&Mesh::default())[0].address.ip()
    );
    assert_eq!(second.status(&Mesh::default())[0].address.port(), 18_080);
    drop(held);
}

#[test]
fn a_second_process_for_the_same_names_is_one_line() {
    let services = (0..5).map(|n| service(&format!("second-{n}"), &[18_080]));
    let mesh = mesh(services.collect(), Vec::new());
    let mut first = Listeners::new(most(100));
    let held = first.follow(&mesh);
    let mut second = Listeners::new(most(100));
    let changes = second.follow(&mesh);
    assert_eq!(changes.exchanged.len(), 5);
    let [line] = &in_brief(&changes.exchanged)[..] else {
        panic!("one line of {:?}", changes.exchanged);
    };
    assert!(
        line.starts_with("5 addresses are in use")
            && line.contains("listeners/second-0 is at 127."),
        "{line}"
    );
    assert_eq!(in_brief(&changes.exchanged[..2]), changes.exchanged[..2]);
    drop(held);
}

#[test]
fn a_port_that_a_process_has_everywhere_becomes_another_port() {
    let everywhere = TcpListener::bind("0.0.0.0:0").expect("a socket");
    let port = everywhere.local_addr().expect("an address").port();
    // A port above 55535 has no replacement: then a problem is reported, as it should be.
    let mut listeners = Listeners::new(most(100));
    let changes = listeners.follow(&mesh(vec![service("everywhere", &[port])], Vec::new()));
    match port.checked_add(10_000) {
        Some(instead) => {
            assert_eq!(opened(&changes).len(), 1);
            assert_eq!(
                listeners.status(&Mesh::default())[0].address.port(),
                instead
            );
            assert_eq!(listeners.status(&Mesh::default())[0].port, port);
        }
        None => assert_eq!(changes.problems.len(), 1),
    }
}

#[test]
fn a_forward_proxy_follows_its_workload() {
    let mut listeners = Listeners::new(most(100));
    let first = listeners.follow(&mesh(Vec::new(), vec![workload("moves", [127, 9, 1, 1])]));
    let second = listeners.follow(&mesh(Vec::new(), vec![workload("moves", [127, 9, 1, 2])]));
    assert_eq!(
        second.close.into_iter().collect::<BTreeSet<_>>(),
        opened(&first)
    );
    assert_eq!(
        listeners.status(&Mesh::default())[0].address.ip(),
        IpAddr::from([127, 9, 1, 2])
    );
}

#[test]
fn more_than_the_bound_are_not_opened_and_that_is_said() {
    let mut listeners = Listeners::new(most(3));
    let services = vec![service("bound-a", &[18_080]), service("bound-b", &[18_080])];
    let changes = listeners.follow(&mesh(services, vec![workload("bound-w", [127, 9, 2, 1])]));
    assert_eq!(changes.open.len(), 3);
    assert_eq!(changes.problems.len(), 1, "{:?}", changes.problems);
    // The listeners that remain reach everything: forward proxies and the addresses for all callers.
    assert!(
        listeners
            .status(&Mesh::default())
            .iter()
            .all(|l| l.service.is_none() || l.caller.is_none())
    );
}

#[test]
fn descriptors_bound_them_too_and_forward_proxies_come_first() {
    let mut listeners = Listeners::new(Most {
        set: 100,
        descriptors: 2,
    });
    let workloads = vec![
        workload("few-w", [127, 9, 3, 1]),
        workload("few-x", [127, 9, 3, 2]),
    ];
    let changes = listeners.follow(&mesh(vec![service("few", &[18_080])], workloads));
    assert_eq!(changes.open.len(), 2);
    let problem = &changes.problems[0];
    assert!(problem.contains("5 listeners are wanted"), "{problem}");
    assert!(problem.contains("ulimit -n"), "{problem}");
    let all = listeners.status(&Mesh::default());
    assert!(all.iter().all(|l| l.kind == ListenerKind::ForwardProxy));
}

#[test]
fn what_is_spoken_is_what_the_port_declares_or_its_routes_make_of_it() {
    let undeclared = |name: &str| {
        let mut service = service(name, &[18_080]);
        service.ports[0].protocol = AppProtocol::Undeclared;
        service
    };
    let mut bytes = service("spoken-bytes", &[18_080]);
    bytes.ports[0].protocol = AppProtocol::Tcp;
    let mut routed = undeclared("spoken-routed");
    routed.ports[0].routes = Some(Vec::new());
    let mut consumed = undeclared("spoken-consumed");
    let namespace = Namespace::parse("listeners").expect("a name");
    consumed.ports[0].consumer_routes = BTreeMap::from([(namespace, Vec::new())]);
    let services = vec![bytes, consumed, undeclared("spoken-plain"), routed];
    let mesh = mesh(services, vec![workload("spoken-w", [127, 9, 4, 1])]);
    let mut listeners = Listeners::new(most(100));
    let held = listeners.follow(&mesh);
    let all = listeners.status(&mesh);
    let spoken = |name: &str, caller| of(&all, name, caller)[0].protocol.as_str();
    for (name, caller, expected) in [
        ("spoken-bytes", None, "tcp"),
        ("spoken-plain", None, "undeclared"),
        ("spoken-routed", None, "http"),
        // Routes of a caller's own namespace are for that caller.
        ("spoken-consumed", None, "undeclared"),
        ("spoken-consumed", Some("spoken-w"), "http"),
    ] {
        assert_eq!(spoken(name, caller), expected, "{name} of {caller:?}");
    }
    let is_proxy = |l: &&ListenerStatus| l.kind == ListenerKind::ForwardProxy;
    assert!(all.iter().filter(is_proxy).all(|l| l.protocol == "http"));
    drop(held);
}

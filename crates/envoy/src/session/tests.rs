//! Sessions against a simulated Envoy, which does what a stock one was seen to do.

mod simulated;

use std::sync::Arc;

use heddle_model::{
    AppProtocol, Balancer, Endpoint, Forwarding, Mesh, Mode, Node, NodeName, Proxy, Qos, Service,
    ServiceAccountName, ServiceName, ServicePort, Shared, Workload, WorkloadName,
};
use heddle_xds::delta::Name;
use proptest::prelude::*;

use super::*;
use simulated::Envoy;

/// What happens next.
#[derive(Debug, Clone)]
enum Step {
    /// A Service is there with so many endpoints of that account, or is gone with none.
    Service(usize, u8, bool),
    /// A Service's balancer changes.
    Balancer(usize),
    /// The node is at another address.
    Node(u8),
    /// The Envoy shall know these Services; `None` for all.
    Uses(Option<Vec<usize>>),
    /// A message goes from the Envoy to the control plane.
    Ask,
    /// A message goes the other way.
    Tell,
    /// The only gateway is there, or not.
    Gateway(bool),
    /// The Envoy refuses the clusters of a Service from now on, or no longer.
    Refuse(usize, bool),
    /// The connection breaks, and another one takes its place.
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_usize, 0..3_u8, any::<bool>()).prop_map(|(at, n, other)| Step::Service(at, n, other)),
        1 => (0..4_usize).prop_map(Step::Balancer),
        1 => (1..4_u8).prop_map(Step::Node),
        1 => proptest::option::of(proptest::collection::vec(0..4_usize, 0..3)).prop_map(Step::Uses),
        8 => Just(Step::Ask),
        8 => Just(Step::Tell),
        1 => (0..4_usize, any::<bool>()).prop_map(|(at, is)| Step::Refuse(at, is)),
        1 => any::<bool>().prop_map(Step::Gateway),
        1 => Just(Step::Reconnect),
    ];
    proptest::collection::vec(step, 0..80)
}

struct World {
    mesh: Mesh,
    catalog: Catalog,
    session: Session,
    uses: Option<BTreeSet<Name>>,
    has_gateway: bool,
    envoy: Envoy,
}

fn service_name(at: usize) -> ServiceName {
    ServiceName::new("shop", &format!("s{at}")).expect("a name")
}

fn names(at: &[usize]) -> BTreeSet<Name> {
    let names = at
        .iter()
        .map(|at| Name::from(service_name(*at).to_string()));
    names.collect()
}

fn service(at: usize, endpoints: u8, is_other: bool) -> Service {
    let account = if is_other {
        "shop/other"
    } else {
        "shop/server"
    };
    let account = ServiceAccountName::parse(account).expect("a name");
    let endpoint = |number: u8, port: u16| Endpoint {
        address: ([10, 0, u8::try_from(at).expect("few"), number], port).into(),
        weight: 1,
        max_requests: None,
        workload: None,
        remote_workload: None,
        account: Some(account.clone()),
        node: Some(NodeName::parse("n1").expect("a name")),
        has_envoy: number == 1,
    };
    let port = |port: u16, protocol| ServicePort {
        name: None,
        port,
        protocol,
        endpoints: (0..endpoints)
            .map(|number| endpoint(number, port))
            .collect(),
        routes: None,
        consumer_routes: Default::default(),
    };
    Service {
        name: service_name(at),
        headless: false,
        addresses: vec![[10, 96, 0, u8::try_from(at).expect("few")].into()],
        balancer: Balancer::default(),
        balancing: Default::default(),
        ports: vec![port(80, AppProtocol::Http), port(81, AppProtocol::Tcp)],
    }
}

fn workload() -> Workload {
    Workload {
        name: WorkloadName::new("shop", "web").expect("a name"),
        labels: Default::default(),
        service_account: ServiceAccountName::parse("shop/web").expect("a name"),
        address: [10, 0, 9, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Qos::default(),
        proxy: Proxy::Envoy { lazy: false },
        command: None,
    }
}

impl World {
    fn new() -> World {
        let mut mesh = Mesh {
            generation: 1,
            forwarding: Shared::from(Forwarding {
                gateways: vec![ServiceAccountName::parse("shop/gateway").expect("a name")],
                lazy: Vec::new(),
            }),
            address_ranges: vec!["10.0.0.0/8".parse().expect("a range")],
            ..Mesh::default()
        };
        mesh.put_workload(Shared::from(workload()));
        let own = Own::new(workload().name);
        let mut world = World {
            mesh,
            catalog: Catalog::default(),
            session: Session::new(own),
            uses: None,
            has_gateway: false,
            envoy: Envoy::default(),
        };
        world.put_gateway(true);
        world.put_node(1);
        world.connect();
        world
    }

    fn connect(&mut self) {
        let own = Own::new(workload().name);
        self.session = Session::new(own);
        for (name, text) in [
            (crate::secret::LEAF, "leaf"),
            (crate::secret::ROOTS, "roots"),
        ] {
            let packed = crate::secret::roots(text.to_owned());
            self.session.put(Kind::Secret, name, packed);
        }
        self.envoy.connect();
    }

    fn put_gateway(&mut self, is_there: bool) {
        self.has_gateway = is_there;
        let mut gateway = workload();
        gateway.name = WorkloadName::new("shop", "gateway").expect("a name");
        gateway.address = [10, 0, 9, 2].into();
        if is_there {
            gateway.service_account = ServiceAccountName::parse("shop/gateway").expect("a name");
        }
        self.mesh.put_workload(Shared::from(gateway));
        self.changed();
    }

    fn put_node(&mut self, last: u8) {
        self.mesh.nodes = vec![Node {
            name: NodeName::parse("n1").expect("a name"),
            address: ([10, 1, 0, last], 15_008).into(),
        }];
        self.changed();
    }

    fn changed(&mut self) {
        let changed = self.catalog.follow(Arc::new(self.mesh.clone()));
        self.session.note(&changed);
    }

    fn put_service(&mut self, at: usize, change: impl FnOnce(Option<&Service>) -> Option<Service>) {
        let name = service_name(at);
        let before = self.mesh.service(&name).cloned();
        let services = &mut self.mesh.services;
        services.retain(|one| one.name != name);
        services.extend(change(before.as_ref()).map(Shared::from));
        services.sort_by(|a, b| a.name.cmp(&b.name));
        self.changed();
    }

    fn tell(&mut self) -> bool {
        let told = self
            .session
            .respond(&self.catalog)
            .expect("the workload is there");
        let Some((kind, response)) = told else {
            return false;
        };
        self.envoy.told(kind, response);
        self.envoy.check();
        true
    }

    fn ask(&mut self) -> bool {
        let Some((kind, request)) = self.envoy.says() else {
            return false;
        };
        let is_refusal = request.refused.is_some();
        let answer = self.session.receive(kind, request, &self.catalog);
        let is_refused = matches!(answer, Ok(Answer::Refused(_)));
        assert!(answer.is_ok() && is_refused == is_refusal, "{answer:?}");
        true
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Service(at, endpoints, is_other) => {
                if *endpoints == 0 && *is_other {
                    self.envoy.deleted.insert(service_name(*at).to_string());
                }
                self.put_service(*at, |before| match (before, endpoints) {
                    (Some(_), 0) if *is_other => None,
                    _ => Some(service(*at, *endpoints, *is_other)),
                });
            }
            Step::Balancer(at) => self.put_service(*at, |before| {
                let mut service = before?.clone();
                service.balancer = match service.balancer {
                    Balancer::RoundRobin => Balancer::LeastRequest,
                    _ => Balancer::RoundRobin,
                };
                Some(service)
            }),
            Step::Node(last) => self.put_node(*last),
            Step::Uses(uses) => {
                self.uses = uses.as_deref().map(names);
                let mut workload = workload();
                workload.proxy = Proxy::Envoy {
                    lazy: uses.is_some(),
                };
                let account = workload.service_account.clone();
                self.mesh.put_workload(Shared::from(workload));
                self.changed();
                let used = self.uses.clone().unwrap_or_default();
                let changed = self.catalog.set_learned(&account, used);
                self.session.note(&changed);
            }
            Step::Refuse(at, is_refused) => {
                let (service, refuses) = (service_name(*at).to_string(), &mut self.envoy.refuses);
                match is_refused {
                    true => drop(refuses.insert(service)),
                    false => drop(refuses.remove(&service)),
                }
            }
            Step::Gateway(is_there) => self.put_gateway(*is_there),
            Step::Ask => drop(self.ask()),
            Step::Tell => drop(self.tell()),
            Step::Reconnect => self.connect(),
        }
    }

    /// Goes on until there is nothing more to say, and checks what the Envoy has then.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let (asked, told) = (self.ask(), self.tell());
            if !asked && !told {
                return self.check();
            }
        }
        panic!("they never stop: {:?}", self.envoy);
    }

    fn check(&self) {
        let uses = self.uses.as_ref().filter(|_| self.has_gateway);
        let wanted: BTreeSet<Name> = match uses {
            None => self.catalog.names().cloned().collect(),
            Some(uses) => {
                let there = uses
                    .iter()
                    .filter(|name| self.catalog.service(name).is_some());
                there.cloned().collect()
            }
        };
        let mut expected: Vec<Vec<(Name, Packed)>> = vec![
            self.catalog.every(Kind::Cluster).to_vec(),
            self.catalog.every(Kind::Endpoints).to_vec(),
        ];
        let mut listeners: Vec<(Name, Packed)> = Vec::new();
        let is_known = |name: &str| !self.envoy.is_of_refused(&format!("{name}/"));
        for name in wanted.iter().filter(|name| is_known(name)) {
            let service = self.catalog.service(name).expect("it is there");
            expected[0].extend_from_slice(service.of(Kind::Cluster));
            expected[1].extend_from_slice(service.of(Kind::Endpoints));
            listeners.extend_from_slice(service.of(Kind::Listener));
        }
        for (kind, mut expected) in [Kind::Cluster, Kind::Endpoints].into_iter().zip(expected) {
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            let expected: Vec<(Name, Bytes)> = expected
                .into_iter()
                .map(|(name, packed)| (name, packed.content))
                .collect();
            let names = |list: &[(Name, Bytes)]| -> Vec<Name> {
                list.iter().map(|(name, _)| name.clone()).collect()
            };
            let mut has = self.envoy.has(kind);
            has.retain(|(name, _)| !self.envoy.is_of_refused(name));
            assert_eq!(names(&has), names(&expected), "{kind:?}");
            assert_eq!(has, expected, "{kind:?}");
        }
        let told = self.envoy.has(Kind::Listener);
        let told = told
            .iter()
            .filter(|(name, _)| name.starts_with("bytes/") && !self.envoy.is_of_refused(name));
        assert_eq!(told.count(), listeners.len());
        assert!(self.envoy.is_settled(), "{:?}", self.envoy);
    }
}

#[test]
fn an_envoy_that_starts_is_told_everything_and_uses_it() {
    let mut world = World::new();
    for at in 0..3 {
        world.step(&Step::Service(at, 2, false));
    }
    world.settle();
    assert_eq!(world.session.direct(), &names(&[0, 1, 2]));
}

#[test]
fn a_cluster_that_changes_has_its_endpoints_sent_again() {
    let mut world = World::new();
    world.step(&Step::Service(0, 2, false));
    world.settle();
    // Its endpoints are the same; the Envoy does not ask for them, and waits for them.
    world.step(&Step::Balancer(0));
    world.settle();
}

#[test]
fn what_is_not_used_any_more_goes_after_the_routes_to_it() {
    let mut world = World::new();
    world.step(&Step::Service(0, 2, false));
    world.step(&Step::Service(1, 2, false));
    world.settle();
    world.step(&Step::Uses(Some(vec![1])));
    world.settle();
    assert_eq!(world.session.direct(), &names(&[1]));
}

#[test]
fn without_a_gateway_a_lazy_envoy_is_told_everything() {
    let mut world = World::new();
    for at in 0..3 {
        world.step(&Step::Service(at, 2, false));
    }
    world.step(&Step::Uses(Some(vec![1])));
    world.settle();
    assert_eq!(world.session.direct(), &names(&[1]));
    world.step(&Step::Gateway(false));
    world.settle();
    assert_eq!(world.session.direct(), &names(&[0, 1, 2]));
    world.step(&Step::Gateway(true));
    world.settle();
    assert_eq!(world.session.direct(), &names(&[1]));
}

#[test]
fn an_envoy_that_connects_again_has_its_routes_all_the_while() {
    for is_changed in [false, true] {
        let mut world = World::new();
        for at in 0..3 {
            world.step(&Step::Service(at, 2, false));
        }
        world.settle();
        let before = world.envoy.refers_to();
        assert_eq!(before.len(), 6, "{before:?}");
        if is_changed {
            world.step(&Step::Balancer(1));
        }
        world.connect();
        for _ in 0..100 {
            world.ask();
            assert_eq!(world.envoy.refers_to(), before);
            world.tell();
            assert_eq!(world.envoy.refers_to(), before);
        }
        world.settle();
    }
}

#[test]
fn no_route_leads_to_a_cluster_that_is_refused_and_the_others_are_used() {
    let mut world = World::new();
    world.step(&Step::Refuse(1, true));
    for at in 0..3 {
        world.step(&Step::Service(at, 2, false));
    }
    world.settle();
    assert_eq!(world.session.direct(), &names(&[0, 2]));
    // A version that it accepts is used …
    world.step(&Step::Refuse(1, false));
    world.step(&Step::Balancer(1));
    world.settle();
    assert_eq!(world.session.direct(), &names(&[0, 1, 2]));
    // … also after one that it refuses.
    world.step(&Step::Refuse(1, true));
    world.step(&Step::Balancer(1));
    world.step(&Step::Balancer(2));
    world.settle();
    assert_eq!(world.session.direct(), &names(&[0, 1, 2]));
}

#[test]
fn a_workload_without_an_envoy_is_told_nothing_more() {
    let mut world = World::new();
    world.settle();
    let mut other = workload();
    other.proxy = Proxy::Node;
    world.mesh.put_workload(Shared::from(other));
    world.changed();
    let gone = world
        .session
        .respond(&world.catalog)
        .expect_err("it has no Envoy");
    assert!(gone.to_string().contains("shop/web"), "{gone}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_happens_an_envoy_gets_what_it_shall_have_and_never_refers_to_what_it_has_not(
        steps in steps()
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.settle();
    }
}

//! A node as a gateway: lazy Envoys ask it for destinations that they do not know.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Instant;

use heddle_model::{AppProtocol, Dependency, Forwarding, NodeName, PolicyAction, Shared};
use heddle_proxy::{Access, AccessSink, Asker, Entry, Protocol, Questions, Settings};

use super::{Caller, accept, own, pair_with_envoy, shown};
use crate::nodes::pair::{Pair, id};
use crate::policy::{account, allow, from, policy};
use crate::support::{GET, PATIENCE, Response, bounded, listener, mirror};

/// How a gateway with the account `shop` is asked for.
const GATEWAY: &str = "gateway.svc.shop.test.sa.cluster.local";
/// The cluster address of the echo Service.
const CLUSTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 9));

/// A pair whose calling node is a gateway for the callers `lazy` and `other`.
struct Gateway {
    pair: Pair,
    address: SocketAddr,
}

impl Gateway {
    fn of(mut pair: Pair) -> Self {
        let (socket, address) = listener();
        pair.calling.proxy.listen(2, socket, Entry::Mesh);
        pair.mesh.services[0].addresses = vec![CLUSTER];
        pair.mesh.forwarding = Shared::from(Forwarding {
            gateways: vec![account("shop")],
            lazy: vec![account("lazy"), account("other")],
        });
        pair.apply(&pair.mesh);
        Gateway { pair, address }
    }

    fn new(protocol: AppProtocol) -> Self {
        Self::of(Pair::new(mirror(), protocol))
    }

    /// The Envoy of this account asks the gateway.
    fn caller(&self, name: &str) -> Caller {
        self.caller_by(name, Protocol::StockHttp, GATEWAY)
    }

    fn caller_by(&self, name: &str, protocol: Protocol, sni: &str) -> Caller {
        super::caller_at(self.address, &own(&self.pair, name), protocol, sni)
    }
}

/// A request that was on its way to these addresses.
fn request_to(destinations: &[&str]) -> String {
    let lines: String = destinations
        .iter()
        .map(|to| format!("X-Heddle-Original-Dst: {to}\r\n"))
        .collect();
    format!("GET / HTTP/1.1\r\nHost: echo\r\n{lines}\r\n")
}

fn to_echo() -> String {
    request_to(&["10.96.0.9:80"])
}

/// What the workload has seen of a request.
fn seen(response: Response) -> String {
    assert_eq!(response.status(), 200);
    let seen = response.text().to_ascii_lowercase();
    assert!(!seen.contains("x-heddle-"), "{seen}");
    seen
}

#[test]
fn a_request_goes_to_where_its_caller_was_going_and_is_judged_as_that_callers() {
    let mut gateway = Gateway::new(AppProtocol::Http);
    let mut lazy = gateway.caller("lazy");
    let mut other = gateway.caller("other");
    seen(lazy.ask(to_echo()));
    gateway.pair.guard(allow("lazy"));
    seen(lazy.ask(to_echo()));
    assert_eq!(other.ask(to_echo()).verdict(), (403, "policy_denied"));
    // The gateway's own rights are nothing to its callers.
    gateway.pair.guard(allow("shop"));
    assert_eq!(lazy.ask(to_echo()).status(), 403);
    let deny = vec![policy("no", PolicyAction::Deny, vec![from("other")])];
    gateway.pair.guard(deny);
    seen(lazy.ask(to_echo()));
    assert_eq!(other.ask(to_echo()).status(), 403);
}

#[test]
fn what_a_caller_says_of_itself_is_not_believed() {
    let mut gateway = Gateway::new(AppProtocol::Http);
    gateway.pair.guard(allow("lazy"));
    let mut other = gateway.caller("other");
    for name in ["X-Heddle-Caller", "X_Heddle_Caller", "x.heddle.caller"] {
        let claim = format!("Host: echo\r\n{name}: {}", id("lazy"));
        let request = to_echo().replace("Host: echo", &claim);
        assert_eq!(other.ask(&request).status(), 403, "{name}");
        let nominated = request.replace("Host", &format!("Connection: {name}\r\nHost"));
        assert_eq!(other.ask(nominated).status(), 403, "{name}");
    }
    // A field that a proxy adds itself cannot be taken out by its client.
    let nominated = to_echo().replace("Host", "Connection: x-heddle-caller\r\nHost");
    seen(gateway.caller("lazy").ask(nominated));
}

#[test]
fn a_destination_that_no_service_has_is_not_found() {
    let gateway = Gateway::new(AppProtocol::Http);
    let mut lazy = gateway.caller("lazy");
    for destinations in [
        &[][..],
        &["10.96.0.9:80", "10.96.0.9:80"],
        &["10.96.0.9"],
        &["10.96.0.9:81"],
        &["10.96.0.8:80"],
        &["echo:80"],
        &[""],
    ] {
        let verdict = (404, "gateway_destination_unknown");
        let said = lazy.ask(request_to(destinations));
        assert_eq!(said.verdict(), verdict, "{destinations:?}");
    }
    seen(lazy.ask(to_echo()));
}

#[test]
fn only_lazy_callers_are_served_and_only_by_a_gateway() {
    let gateway = Gateway::new(AppProtocol::Http);
    let refused = |mut caller: Caller| {
        caller.send(to_echo());
        assert_eq!(caller.rest(), b"");
    };
    refused(gateway.caller("intruder"));
    refused(gateway.caller("shop"));
    // An account of this node that is no gateway's.
    let sni = "gateway.svc.intruder.test.sa.cluster.local";
    refused(gateway.caller_by("lazy", Protocol::StockHttp, sni));
    // Bytes have no request to name their destination.
    refused(gateway.caller_by("lazy", Protocol::StockBytes, GATEWAY));
    seen(gateway.caller("lazy").ask(to_echo()));
}

#[test]
fn a_caller_is_served_only_as_long_as_it_is_lazy_and_the_node_a_gateway() {
    let mut gateway = Gateway::new(AppProtocol::Http);
    let mut lazy = gateway.caller("lazy");
    seen(lazy.ask(to_echo()));
    let roles = gateway.pair.mesh.forwarding.clone();
    for (gateways, callers) in [(&["shop"][..], &["other"][..]), (&[], &[])] {
        let accounts = |names: &[&str]| names.iter().map(|name| account(name)).collect();
        gateway.pair.mesh.forwarding = Shared::from(Forwarding {
            gateways: accounts(gateways),
            lazy: accounts(callers),
        });
        gateway.pair.apply(&gateway.pair.mesh);
        assert_eq!(lazy.ask(to_echo()).verdict(), (403, "policy_denied"));
        gateway.pair.mesh.forwarding = roles.clone();
        gateway.pair.apply(&gateway.pair.mesh);
        seen(lazy.ask(to_echo()));
    }
}

#[test]
fn an_envoy_is_told_the_caller_by_the_gateway() {
    let (upstream, pair) = pair_with_envoy(AppProtocol::Http);
    let gateway = Gateway::of(pair);
    let mut lazy = gateway.caller("lazy").sending(to_echo());
    let mut called = accept(&gateway.pair, &upstream);
    let head = called.head();
    let (peer, _) = shown(&called);
    assert_eq!(peer.id, id("shop"));
    let claim = format!("x-heddle-caller: {}\r\n", id("lazy"));
    assert_eq!(head.matches(&claim).count(), 1, "{head}");
    assert!(
        !head.to_ascii_lowercase().contains("original-dst"),
        "{head}"
    );
    called.answer("ok");
    assert_eq!(lazy.response().status(), 200);
}

#[test]
fn a_workload_of_the_gateways_own_node_does_not_see_the_claim() {
    let mut gateway = Gateway::new(AppProtocol::Http);
    for workload in gateway.pair.mesh.workloads.iter_mut() {
        workload.node = Some(NodeName::parse("calling").unwrap());
    }
    let port = &mut gateway.pair.mesh.services[0].ports[0];
    port.endpoints[0].node = Some(NodeName::parse("calling").unwrap());
    gateway.pair.guard(allow("lazy"));
    seen(gateway.caller("lazy").ask(to_echo()));
    let denied = gateway.caller("other").ask(to_echo());
    assert_eq!(denied.verdict(), (403, "policy_denied"));
}

/// A request for a tunnel to the echo Service.
const CONNECT: &str = "CONNECT 10.96.0.9:80 HTTP/1.1\r\nHost: 10.96.0.9:80\r\n\
    X-Heddle-Original-Dst: 10.96.0.9:80\r\n\r\n";

#[test]
fn bytes_go_through_a_tunnel() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let gateway = Gateway::of(pair);
    // What the client sends with the request belongs to the tunnel.
    let mut lazy = gateway.caller("lazy").sending(format!("{CONNECT}ping"));
    let mut server = upstream.accept();
    assert!(lazy.head().starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(server.exact(4), b"ping");
    server.send("pong");
    assert_eq!(lazy.exact(4), b"pong");
    drop(server);
    assert_eq!(lazy.rest(), b"");
    // Not to nowhere, and not for callers that are no lazy ones.
    let nowhere = CONNECT.replace("Dst: 10.96.0.9:80", "Dst: 10.96.0.9:81");
    let said = gateway.caller("lazy").ask(nowhere);
    assert_eq!(said.verdict(), (404, "gateway_destination_unknown"));
    let mut intruder = gateway.caller("intruder");
    intruder.send(CONNECT);
    assert_eq!(intruder.rest(), b"");
    assert!(upstream.is_quiet());
}

/// Another node cannot know who sends bytes through a gateway.
#[test]
fn bytes_are_judged_by_the_policies_of_the_destination_as_those_of_their_caller() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let mut gateway = Gateway::of(pair);
    gateway.pair.guard(allow("lazy"));
    let tunnel = |gateway: &Gateway, name: &str| gateway.caller(name).sending(CONNECT);
    let mut other = tunnel(&gateway, "other");
    assert!(other.head().starts_with("HTTP/1.1 200 OK\r\n"));
    other.send("ping");
    assert_eq!(other.rest(), b"");
    assert!(upstream.is_quiet());
    let mut lazy = tunnel(&gateway, "lazy");
    lazy.head();
    lazy.send("ping");
    let mut server = upstream.accept();
    assert_eq!(server.exact(4), b"ping");
    // Another lazy caller may: the other node would let it go on.
    gateway.pair.guard(allow("other"));
    assert_eq!(lazy.rest(), b"");
    assert_eq!(server.rest(), b"");
    // An endpoint with an Envoy of its own, on the gateway's node or elsewhere.
    let (upstream, pair) = pair_with_envoy(AppProtocol::Tcp);
    let mut gateway = Gateway::of(pair);
    gateway.pair.guard(allow("lazy"));
    for node in ["called", "calling"] {
        for workload in gateway.pair.mesh.workloads.iter_mut() {
            workload.node = Some(
                NodeName::parse(match workload.name.name.as_str() {
                    "echo" => node,
                    _ => "calling",
                })
                .unwrap(),
            );
        }
        let port = &mut gateway.pair.mesh.services[0].ports[0];
        port.endpoints[0].node = Some(NodeName::parse(node).unwrap());
        gateway.pair.apply(&gateway.pair.mesh);
        let mut other = tunnel(&gateway, "other");
        other.head();
        assert_eq!(other.rest(), b"", "{node}");
        let mut lazy = tunnel(&gateway, "lazy").sending("ping");
        assert_eq!(accept(&gateway.pair, &upstream).exact(4), b"ping", "{node}");
        lazy.head();
    }
}

/// Policies may select a workload of which a gateway has only heard.
#[test]
fn nothing_goes_to_a_workload_that_the_gateway_cannot_read() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let mut gateway = Gateway::of(pair);
    let echo = gateway.pair.mesh.services[0].ports[0].endpoints[0].workload_name();
    gateway.pair.mesh.unreadable = vec![echo.cloned().unwrap()];
    gateway.pair.apply(&gateway.pair.mesh);
    let mut lazy = gateway.caller("lazy").sending(CONNECT);
    lazy.head();
    lazy.send("ping");
    assert_eq!(lazy.rest(), b"");
    assert!(upstream.is_quiet());
    gateway.pair.mesh.unreadable.clear();
    gateway.pair.apply(&gateway.pair.mesh);
    let _lazy = gateway.caller("lazy").sending(format!("{CONNECT}ping"));
    assert_eq!(upstream.accept().exact(4), b"ping");
}

#[test]
fn a_caller_with_many_tunnels_leaves_room_for_others() {
    let settings = bounded(|bounds| bounds.connections = 80);
    let gateway = Gateway::of(Pair::with(&settings, mirror(), AppProtocol::Http));
    let connect = |name: &str| {
        let mut caller = gateway.caller(name).sending(CONNECT);
        let head = caller.try_head();
        head.map(|_| caller)
    };
    let held: Vec<Caller> = (0..80).map_while(|_| connect("lazy")).collect();
    assert!((1..35).contains(&held.len()), "{}", held.len());
    gateway
        .pair
        .calling
        .expect("heddle_connections_over_share_total", &[], 1.0);
    seen(gateway.caller("other").ask(to_echo()));
    drop(held);
}

/// A caller that scans addresses uses up its own questions only.
#[test]
fn what_the_gateway_does_not_know_it_asks_in_the_name_of_the_caller() {
    let questions = Questions::default();
    let settings = Settings {
        questions: Some(questions.clone()),
        ..Settings::default()
    };
    let mut pair = Pair::with(&settings, mirror(), AppProtocol::Http);
    pair.mesh.named = Some(Shared::default());
    let gateway = Gateway::of(pair);
    let _callers = ["lazy", "other"].map(|name| {
        let caller = gateway.caller(name).sending(request_to(&["10.96.0.7:80"]));
        let deadline = Instant::now() + PATIENCE;
        let asked = loop {
            let asked = questions.take();
            if !asked.is_empty() {
                break asked;
            }
            assert!(Instant::now() < deadline, "nothing is asked");
            thread::yield_now();
        };
        let unknown = Dependency::Address(IpAddr::from([10, 96, 0, 7]));
        assert_eq!(asked, [(unknown, Asker::Lazy(account(name)))]);
        caller
    });
}

/// The account of a gateway may be that of any program.
#[test]
fn a_pod_with_the_account_of_a_gateway_has_no_rights_of_lazy_callers() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let mut gateway = Gateway::of(pair);
    gateway.pair.guard(allow("lazy"));
    let of_shop = |gateway: &Gateway| gateway.pair.sending("shop", "ping").rest();
    assert_eq!(of_shop(&gateway), b"");
    let port = &mut gateway.pair.mesh.services[0].ports[0];
    port.endpoints[0].node = Some(NodeName::parse("calling").unwrap());
    for workload in gateway.pair.mesh.workloads.iter_mut() {
        workload.node = Some(NodeName::parse("calling").unwrap());
    }
    gateway.pair.apply(&gateway.pair.mesh);
    assert_eq!(of_shop(&gateway), b"");
    assert!(upstream.is_quiet());
    gateway.pair.guard(allow("shop"));
    let _shop = gateway.pair.sending("shop", "ping");
    assert_eq!(upstream.accept().exact(4), b"ping");
}

#[test]
fn requests_in_a_tunnel_end_with_the_role_of_its_gateway() {
    let mut gateway = Gateway::new(AppProtocol::Http);
    let mut lazy = gateway.caller("lazy").sending(CONNECT);
    lazy.head();
    assert_eq!(lazy.ask(GET).status(), 200);
    gateway.pair.mesh.forwarding = Shared::default();
    gateway.pair.apply(&gateway.pair.mesh);
    assert_eq!(lazy.ask(GET).verdict(), (403, "policy_denied"));
}

#[test]
fn a_tunnel_ends_with_the_role_of_its_gateway() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let mut gateway = Gateway::of(pair);
    let mut lazy = gateway.caller("lazy").sending(format!("{CONNECT}ping"));
    let mut server = upstream.accept();
    assert_eq!(server.exact(4), b"ping");
    lazy.head();
    gateway.pair.mesh.forwarding = Shared::from(Forwarding {
        gateways: vec![account("shop")],
        lazy: vec![account("other")],
    });
    gateway.pair.apply(&gateway.pair.mesh);
    assert_eq!(lazy.rest(), b"");
    assert_eq!(server.rest(), b"");
}

#[test]
fn what_callers_use_is_told() {
    let (sink, mut told) = AccessSink::new();
    let settings = Settings {
        accesses: Some(sink),
        ..Settings::default()
    };
    let pair = Pair::with(&settings, mirror(), AppProtocol::Http);
    let gateway = Gateway::of(pair);
    let mut lazy = gateway.caller("lazy");
    for _ in 0..3 {
        seen(lazy.ask(to_echo()));
    }
    assert_eq!(lazy.ask(request_to(&["10.96.0.8:80"])).status(), 404);
    let access = Access {
        caller: account("lazy"),
        address: CLUSTER,
    };
    assert_eq!(told.try_recv(), Ok(access));
    assert!(told.try_recv().is_err(), "only once, and no other");
    // What a node's own pods use is nothing to tell.
    assert_eq!(gateway.pair.ask("shop", GET).status(), 200);
    assert!(told.try_recv().is_err());
}

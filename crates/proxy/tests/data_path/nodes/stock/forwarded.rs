//! A gateway's Envoy forwards in the name of lazy callers.

use heddle_model::{AppProtocol, Forwarding, Policy, PolicyAction, Shared};
use heddle_proxy::Protocol;

use super::{Caller, ECHO, caller};
use crate::balancing::{WAITING, line};
use crate::nodes::pair::{Pair, id};
use crate::policy::{account, allow, from, policy};
use crate::support::{Client, GET, Upstream, mirror};

/// Makes `gate` a gateway for the lazy callers `shop` and `intruder`.
fn with_gateway(pair: &mut Pair) {
    with_gateway_for(pair, &["intruder", "shop"]);
}

fn with_gateway_for(pair: &mut Pair, lazy: &[&str]) {
    pair.mesh.forwarding = Shared::from(Forwarding {
        gateways: vec![account("gate")],
        lazy: lazy.iter().map(|name| account(name)).collect(),
    });
    pair.apply(&pair.mesh);
}

fn allow_both() -> Vec<Policy> {
    vec![policy(
        "allowed",
        PolicyAction::Allow,
        vec![from("intruder"), from("shop")],
    )]
}

fn request_of(callers: &[&str]) -> String {
    let claims: String = callers
        .iter()
        .map(|name| format!("X-Heddle-Caller: {}\r\n", id(name)))
        .collect();
    format!("GET / HTTP/1.1\r\nHost: echo\r\n{claims}\r\n")
}

#[test]
fn a_request_is_judged_by_the_lazy_caller_that_a_gateway_names() {
    let mut pair = Pair::new(mirror(), AppProtocol::Http);
    pair.guard(allow("shop"));
    with_gateway(&mut pair);
    let mut gate = caller(&pair, "gate", Protocol::StockHttp, ECHO);
    for (claims, expected) in [
        (&["shop"][..], 200),
        (&["intruder"], 403),
        (&["shop"], 200),
        // None, one that is not lazy, and two of which servers may believe either.
        (&[], 403),
        (&["echo"], 403),
        (&["shop", "shop"], 403),
        (&["shop"], 200),
    ] {
        let said = gate.ask(request_of(claims));
        assert_eq!(said.status(), expected, "{claims:?}");
        // The workload does not see it.
        let seen = said.text().to_ascii_lowercase();
        assert!(!seen.contains("x-heddle-caller"), "{seen}");
    }
    // A DENY policy is about the lazy caller too, and without ALLOW policies others pass.
    pair.guard(vec![policy("no", PolicyAction::Deny, vec![from("shop")])]);
    assert_eq!(gate.ask(request_of(&["shop"])).status(), 403);
    assert_eq!(gate.ask(request_of(&["intruder"])).status(), 200);
    assert_eq!(gate.ask(GET).status(), 200);
}

#[test]
fn nothing_but_a_gateway_is_believed() {
    let mut pair = Pair::new(mirror(), AppProtocol::Http);
    pair.guard(allow("shop"));
    with_gateway(&mut pair);
    let mut shop = caller(&pair, "shop", Protocol::StockHttp, ECHO);
    let mut intruder = caller(&pair, "intruder", Protocol::StockHttp, ECHO);
    // The claim is what is refused, of one that may call in its own name too.
    assert_eq!(shop.ask(GET).status(), 200);
    assert_eq!(
        shop.ask(request_of(&["shop"])).verdict(),
        (403, "policy_denied")
    );
    assert_eq!(
        intruder.ask(request_of(&["shop"])).verdict(),
        (403, "policy_denied")
    );
    // A node takes what its own pods say out of their requests.
    let said = pair.ask("shop", request_of(&["intruder"]));
    assert_eq!(said.status(), 200);
    assert!(!said.text().to_ascii_lowercase().contains("x-heddle-caller"));
    assert_eq!(pair.ask("intruder", request_of(&["shop"])).status(), 403);
    // One that is no gateway any more, and one that is no lazy caller any more.
    let mut gate = caller(&pair, "gate", Protocol::StockHttp, ECHO);
    assert_eq!(gate.ask(request_of(&["shop"])).status(), 200);
    with_gateway_for(&mut pair, &["intruder"]);
    assert_eq!(gate.ask(request_of(&["shop"])).status(), 403);
    pair.mesh.forwarding = Shared::default();
    pair.apply(&pair.mesh);
    let mut gate = caller(&pair, "gate", Protocol::StockHttp, ECHO);
    assert_eq!(gate.ask(request_of(&["shop"])).status(), 403);
    assert_eq!(shop.ask(request_of(&["intruder"])).status(), 403);
    assert_eq!(shop.ask(GET).status(), 200);
    // Without policies it does not matter who calls, and the workload still sees no claim.
    pair.guard(Vec::new());
    let said = gate.ask(request_of(&["shop"]));
    assert_eq!(said.status(), 200);
    assert!(!said.text().to_ascii_lowercase().contains("x-heddle-caller"));
}

#[test]
fn another_spelling_of_the_claim_is_one_too() {
    let mut pair = Pair::new(mirror(), AppProtocol::Http);
    pair.guard(allow("shop"));
    with_gateway(&mut pair);
    let mut shop = caller(&pair, "shop", Protocol::StockHttp, ECHO);
    for name in ["X_Heddle_Caller", "x.heddle-caller", "X-HEDDLE-CALLER"] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: e\r\n{name}: {}\r\n\r\n",
            id("shop")
        );
        assert_eq!(shop.ask(&request).status(), 403, "{name}");
        let nominated = request.replace("Host", &format!("Connection: {name}\r\nHost"));
        assert_eq!(shop.ask(nominated).status(), 403, "{name}");
    }
}

#[test]
fn bytes_of_a_gateway_pass_where_some_lazy_caller_may_send_them() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Tcp);
    let gate = |pair: &Pair| caller(pair, "gate", Protocol::StockBytes, ECHO).sending("ping");
    pair.guard(allow("shop"));
    assert_eq!(gate(&pair).rest(), b"", "it is no gateway yet");
    with_gateway(&mut pair);
    let mut forwarded = gate(&pair);
    let mut server = upstream.accept();
    assert_eq!(server.exact(4), b"ping");
    server.send("pong");
    assert_eq!(forwarded.exact(4), b"pong");
    // No lazy caller may any more: what is under way ends too.
    pair.guard(allow("echo"));
    assert_eq!(forwarded.rest(), b"");
    assert_eq!(gate(&pair).rest(), b"");
    // What is refused to the gateway itself stays refused.
    let mut both = allow("shop");
    both.push(policy("no", PolicyAction::Deny, vec![from("gate")]));
    pair.guard(both);
    assert_eq!(gate(&pair).rest(), b"");
    assert!(upstream.is_quiet());
}

/// Requests and upgraded connections that a gateway has forwarded in the name of each of these.
fn under_way(pair: &Pair, upstream: &Upstream, names: &[&str]) -> Vec<(Caller, Client)> {
    let upgrade = "\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n";
    let mut flows = Vec::new();
    for name in names {
        let plain = request_of(&[name]);
        let upgraded = format!("{}{upgrade}", plain.trim_end());
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun";
        let tunnel =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nbegun";
        for (request, answer) in [(plain, whole), (upgraded, tunnel)] {
            let mut gate = caller(pair, "gate", Protocol::StockHttp, ECHO).sending(request);
            let server = upstream.replying(answer);
            gate.head();
            assert_eq!(gate.exact(5), b"begun");
            flows.push((gate, server));
        }
    }
    flows
}

fn expect_ended(flows: Vec<(Caller, Client)>) {
    for (mut gate, mut server) in flows {
        assert_eq!(gate.rest(), b"");
        assert_eq!(server.rest(), b"");
    }
}

#[test]
fn what_is_under_way_ends_with_the_lazy_caller_in_whose_name_it_was_forwarded() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Http);
    pair.guard(allow_both());
    with_gateway(&mut pair);
    let of_shop = under_way(&pair, &upstream, &["shop"]);
    let mut of_intruder = under_way(&pair, &upstream, &["intruder"]);
    // Another lazy caller still may.
    pair.guard(allow("intruder"));
    expect_ended(of_shop);
    for (gate, server) in &mut of_intruder {
        server.send("on");
        assert_eq!(gate.exact(2), b"on");
    }
    // The policies allow it, but the gateway may not name it any more.
    with_gateway_for(&mut pair, &["shop"]);
    expect_ended(of_intruder);
}

#[test]
fn a_request_that_waits_is_judged_by_the_claims_that_are_believed_now() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Http);
    let service = &mut pair.mesh.services[0];
    service.balancing.line = line(10, 10_000);
    service.ports[0].endpoints[0].max_requests = Some(1);
    pair.guard(allow_both());
    with_gateway(&mut pair);
    let gate = || caller(&pair, "gate", Protocol::StockHttp, ECHO);
    let mut first = gate().sending(request_of(&["shop"]));
    let mut server = upstream.asked();
    let mut second = gate().sending(request_of(&["intruder"]));
    pair.called.expect(WAITING, &[], 1.0);
    with_gateway_for(&mut pair, &["shop"]);
    server.answer("ok");
    assert_eq!(first.response().status(), 200);
    assert_eq!(second.response().verdict(), (403, "policy_revoked"));
}

#[test]
fn metrics_name_the_lazy_caller_and_not_its_gateway() {
    let mut pair = Pair::new(mirror(), AppProtocol::Http);
    with_gateway_for(&mut pair, &["intruder", "shop"]);
    let mut gate = caller(&pair, "gate", Protocol::StockHttp, ECHO);
    let asked = [
        &["shop"][..],
        &["intruder"],
        &["shop"],
        &[],
        &["echo"],
        &["shop"],
    ];
    for claims in asked {
        gate.ask(request_of(claims));
    }
    for (name, count) in [("shop", 3.0), ("intruder", 1.0), ("gate", 2.0)] {
        let principal = format!("source_principal=\"{}\"", id(name));
        pair.called
            .expect("heddle_http_requests_total", &[&principal], count);
    }
}

//! A stock proxy calls a node.

use std::time::Instant;

use heddle_model::{AppProtocol, PolicyAction};
use heddle_proxy::{Protocol, Settings};
use heddle_transport::fixture::{Authority, DAY, NOW};
use heddle_transport::{Denied, Trust};

use super::{ECHO, caller, caller_with, own, with_envoy};
use crate::nodes::pair::{Pair, domain, id};
use crate::nodes::refused::preface;
use crate::nodes::trust::denied;
use crate::policy::{allow, from, guarded, policy};
use crate::support::{Client, GET, Upstream, mirror, serve};

const HTTP: Protocol = Protocol::StockHttp;
const BYTES: Protocol = Protocol::StockBytes;

#[test]
fn many_requests_of_a_connection_reach_the_endpoint_and_policies_judge_the_certificate() {
    let mut pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let mut shop = caller(&pair, "shop", HTTP, ECHO);
    let mut intruder = caller(&pair, "intruder", HTTP, ECHO);
    for _ in 0..20 {
        assert_eq!(shop.ask(GET).text(), "ok");
        assert_eq!(intruder.ask(GET).status(), 200);
    }
    let deny = policy("no", PolicyAction::Deny, vec![from("intruder")]);
    for policies in [allow("shop"), vec![deny]] {
        pair.guard(policies);
        assert_eq!(shop.ask(GET).text(), "ok");
        assert_eq!(intruder.ask(GET).verdict(), (403, "policy_denied"));
        let mut fresh = caller(&pair, "intruder", HTTP, ECHO);
        assert_eq!(fresh.ask(GET).verdict(), (403, "policy_denied"));
    }
}

#[test]
fn it_is_believed_no_more_than_a_client() {
    let pair = Pair::new(mirror(), AppProtocol::Http);
    let mut shop = caller(&pair, "shop", HTTP, ECHO);
    let claims = "X-Forwarded-For: 10.9.9.9\r\nX-Forwarded-Proto: https\r\nForwarded: for=a\r\n\
                  Connection: Secret\r\nSecret: 1\r\n";
    let sent = shop.ask(format!("GET / HTTP/1.1\r\nHost: echo\r\n{claims}\r\n"));
    let sent = sent.text().to_ascii_lowercase();
    assert!(sent.contains("x-forwarded-for: 127.0.0.1\r\n"), "{sent}");
    assert!(sent.contains("x-forwarded-proto: http\r\n"), "{sent}");
    for gone in ["10.9.9.9", "https", "for=a", "secret"] {
        assert!(!sent.contains(gone), "{gone} in {sent}");
    }
    let stripped = "heddle_forwarding_headers_stripped_total";
    pair.called.expect(stripped, &[], 3.0);
    // Two lengths are two messages to some programs.
    let mut smuggling = caller(&pair, "shop", HTTP, ECHO);
    let both = "POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(smuggling.ask(both).status(), 400);
    // The words of a node mean nothing here: what follows the handshake is a request.
    let mut naming = caller(&pair, "shop", HTTP, ECHO);
    naming.send(preface(1, ([127, 0, 0, 1], 1).into(), "echo"));
    naming.send(GET);
    let answer = String::from_utf8_lossy(&naming.rest()).into_owned();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
}

#[test]
fn bytes_go_both_ways_without_a_word_of_the_nodes() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Tcp);
    let mut shop = caller(&pair, "shop", BYTES, ECHO).sending("ping");
    let mut server = upstream.accept();
    assert_eq!(server.exact(4), b"ping");
    server.send("pong");
    assert_eq!(shop.exact(4), b"pong");
    drop(server);
    assert_eq!(shop.rest(), b"");
    pair.guard(allow("shop"));
    assert_eq!(
        caller(&pair, "intruder", BYTES, ECHO)
            .sending("ping")
            .rest(),
        b""
    );
    pair.called.expect_rejected("policy_denied", 1.0);
    assert!(upstream.is_quiet());
}

#[test]
fn where_nothing_of_that_name_is_here_a_request_is_answered_and_bytes_are_cut() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    for sni in [
        "81.echo.test.svc.echo.test.sa.cluster.local",
        "80.other.test.svc.echo.test.sa.cluster.local",
    ] {
        let mut shop = caller(&pair, "shop", HTTP, sni);
        assert_eq!(shop.ask(GET).status(), 503, "{sni}");
    }
    let (_upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let other = "81.echo.test.svc.echo.test.sa.cluster.local";
    // Nothing is known of that port's protocol; these bytes do not begin a request.
    let said = caller(&pair, "shop", BYTES, other)
        .sending(b"\0ping")
        .rest();
    assert!(
        said.is_empty() || said.starts_with(b"HTTP/1.1 "),
        "{said:?}"
    );
    // The endpoint has an Envoy of its own: this node does not stand before it.
    let upstream = Upstream::new();
    let pair = Pair::of(
        &Settings::default(),
        with_envoy(&upstream, AppProtocol::Http),
    );
    let mut shop = caller(&pair, "shop", HTTP, ECHO);
    assert_eq!(shop.ask(GET).verdict(), (503, "endpoint_gone"));
    let upstream = Upstream::new();
    let pair = Pair::of(
        &Settings::default(),
        with_envoy(&upstream, AppProtocol::Tcp),
    );
    assert_eq!(caller(&pair, "shop", BYTES, ECHO).sending("x").rest(), b"");
    assert!(upstream.is_quiet());
}

#[test]
fn each_endpoint_of_the_node_has_its_turn_and_another_takes_over() {
    let mut mesh = guarded(serve(|_| "one".into()), AppProtocol::Http);
    let both = mesh.clone();
    let endpoints = &mut mesh.services[0].ports[0].endpoints;
    let mut other = endpoints[0].clone();
    other.address = serve(|_| "two".into());
    endpoints.push(other);
    endpoints.sort_by_key(|endpoint| endpoint.address);
    let mut pair = Pair::of(&Settings::default(), mesh);
    let mut callers: Vec<_> = (0..10).map(|_| caller(&pair, "shop", HTTP, ECHO)).collect();
    let answers: Vec<_> = callers.iter_mut().map(|one| one.ask(GET).text()).collect();
    let ones = answers.iter().filter(|body| *body == "one").count();
    assert_eq!(ones, 5, "{answers:?}");
    // One of them goes: its connections are served by the other one.
    pair.mesh.services[0].ports[0]
        .endpoints
        .retain(|one| one.address == both.services[0].ports[0].endpoints[0].address);
    pair.apply(&pair.mesh);
    for one in &mut callers {
        assert_eq!(one.ask(GET).text(), "one");
    }
}

#[test]
fn trust_counts_for_it_as_for_a_node() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let join = |who: &str| {
        let client = caller(&pair, who, BYTES, ECHO).sending(who);
        let mut server = upstream.accept();
        server.exact(who.len());
        (client, server)
    };
    let (mut shop, mut shops) = join("shop");
    let (mut intruder, _intruders) = join("intruder");
    let began = Instant::now();
    pair.called_trusts(&pair.trust(&[&pair.authority], denied(&id("intruder"))));
    assert_eq!(intruder.rest(), b"");
    assert!(began.elapsed().as_secs() < 5);
    pair.called.expect_rejected("identity_revoked", 1.0);
    assert_eq!(
        caller(&pair, "intruder", BYTES, ECHO).sending("x").rest(),
        b""
    );
    pair.called.expect_handshakes_refused("denied", 1.0);
    shop.send("more");
    assert_eq!(shops.exact(4), b"more");
    // Another root only.
    let other = Authority::new();
    let roots = [other.root];
    let trust = Trust::new(domain(), &roots, Denied::default()).unwrap();
    pair.called_trusts(&trust.into());
    assert_eq!(shop.rest(), b"");
    let expired = pair
        .authority
        .leaf_for(None, &id("shop"), NOW - 2 * DAY, NOW - DAY);
    pair.called_trusts(&pair.trust(&[&pair.authority], Denied::default()));
    assert_eq!(
        caller_with(&pair, &expired, BYTES, ECHO)
            .sending("x")
            .rest(),
        b""
    );
    pair.called.expect_handshakes_refused("expired", 1.0);
}

#[test]
fn certificates_and_names_of_another_kind_are_refused() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let marked = pair.authority.leaf(&id("shop"), NOW - DAY, NOW + DAY);
    for (count, protocol) in (1..).zip(Protocol::STOCK) {
        let mut node = caller_with(&pair, &marked, protocol, ECHO).sending(GET);
        assert_eq!(node.rest(), b"");
        pair.called
            .expect_handshakes_refused("not_a_workload", f64::from(count));
    }
    let plain = "echo.test.sa.cluster.local";
    for (count, protocol) in (1..).zip(Protocol::NODES) {
        let mut shop = caller(&pair, "shop", protocol, plain);
        let _refused = std::io::Write::write_all(&mut shop.stream, GET.as_bytes());
        assert_eq!(shop.rest(), b"", "{protocol:?}");
        pair.called
            .expect_handshakes_refused("not_a_node", f64::from(count));
    }
    let leaf = own(&pair, "shop");
    for sni in [plain, "080.echo.test.svc.echo.test.sa.cluster.local"] {
        let mut shop = caller_with(&pair, &leaf, HTTP, sni);
        assert!(std::io::Write::write_all(&mut shop.stream, GET.as_bytes()).is_err());
    }
    pair.called.expect_handshakes_refused("unknown_server", 2.0);
    // None of it hurts a node.
    assert_eq!(pair.get("shop").status(), 200);
    drop(Client::connect(pair.mesh_address));
}

//! Destinations about which this node has to ask first.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use heddle_model::{AppProtocol, Cidr, Dependency, DependencyState, Mesh, ServiceName};
use heddle_proxy::{Asker, Entry, Questions, Reason};

use super::bed::{ECHO, SERVICE, Steered, mesh, name};
use crate::support::{Client, GET, PATIENCE, Upstream, open, serve_at};

/// Long enough that no test waits for it in vain.
const LONG: Duration = Duration::from_secs(60);

/// The mesh of a node that has named nothing, and knows no Service.
fn empty(whole: &Mesh) -> Mesh {
    Mesh {
        services: Vec::new(),
        named: Some(Vec::new().into()),
        ..whole.clone()
    }
}

/// The whole mesh as that of a node that has named these, in this state.
fn naming(whole: &Mesh, named: &[(Dependency, DependencyState)]) -> Mesh {
    Mesh {
        generation: whole.generation + 1,
        named: Some(named.to_vec().into()),
        ..whole.clone()
    }
}

/// Waits for the next questions, which all workloads of the test ask.
fn asked(questions: &Questions) -> Vec<Dependency> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let asked = questions.take();
        if !asked.is_empty() {
            return asked
                .into_iter()
                .map(|(dependency, _)| dependency)
                .collect();
        }
        assert!(Instant::now() < patience, "nothing is asked");
        std::thread::yield_now();
    }
}

fn at(address: IpAddr) -> Dependency {
    Dependency::Address(address)
}

fn echo() -> Dependency {
    Dependency::Service(ServiceName::parse("test/echo").unwrap())
}

#[test]
fn a_connection_is_held_until_its_destination_is_known() {
    for protocol in [AppProtocol::Http, AppProtocol::Undeclared, AppProtocol::Tcp] {
        let upstream = Upstream::at(ECHO);
        let whole = mesh(upstream.address, protocol);
        let (steered, questions) = Steered::asking(&empty(&whole), &["shop", "echo"], LONG);
        let mut client = steered.dial("shop", SERVICE).sending(GET);
        assert_eq!(asked(&questions), [at(SERVICE.ip())]);
        // Another configuration is no answer.
        let mut other = empty(&whole);
        other.generation = 2;
        steered.apply(&other);
        // A call to what is known is carried after all that the configuration has woken.
        let known = steered.dial("shop", upstream.address).sending("hello");
        assert_eq!(upstream.accept().exact(5), b"hello");
        drop(known);
        assert!(upstream.is_quiet());
        steered.apply(&Mesh {
            generation: 3,
            ..naming(&whole, &[(at(SERVICE.ip()), DependencyState::Absent)])
        });
        let mut server = upstream.accept();
        assert!(server.head().starts_with("GET / HTTP/1.1"), "{protocol:?}");
        server.answer("ok");
        assert_eq!(client.response().text(), "ok");
        // From now on it costs nothing.
        drop(client);
        let mut client = steered.dial("shop", SERVICE).sending(GET);
        if protocol != AppProtocol::Http {
            server = upstream.accept();
        }
        assert!(server.head().starts_with("GET / HTTP/1.1"), "{protocol:?}");
        server.answer("ok");
        assert_eq!(client.response().text(), "ok");
        assert_eq!(questions.take(), []);
    }
}

#[test]
fn an_endpoint_and_what_is_outside_are_asked_for_as_well() {
    let (own, outside) = (Upstream::at(ECHO), Upstream::at("127.30.0.100:0"));
    let whole = mesh(own.address, AppProtocol::Tcp);
    let (steered, questions) = Steered::asking(&empty(&whole), &["shop", "echo"], LONG);
    let client = steered.dial("shop", outside.address).sending("hello");
    assert_eq!(asked(&questions), [at(outside.address.ip())]);
    // An answer about something else does not lead outside.
    let named = [(at(SERVICE.ip()), DependencyState::Absent)];
    steered.apply(&naming(&whole, &named));
    drop(steered.dial("shop", own.address).sending("hello"));
    assert_eq!(own.accept().exact(5), b"hello");
    assert!(outside.is_quiet());
    let mut mesh = naming(
        &whole,
        &[
            (at(SERVICE.ip()), DependencyState::Absent),
            (at(outside.address.ip()), DependencyState::Absent),
        ],
    );
    mesh.generation = 3;

    steered.apply(&mesh);
    assert_eq!(outside.accept().exact(5), b"hello");
    drop(client);
    // The workload of this node, and the cluster address of a Service that is known.
    for going in [own.address, SERVICE] {
        drop(steered.dial("shop", going).sending("hello"));
        assert_eq!(own.accept().exact(5), b"hello");
    }
    assert_eq!(questions.take(), []);
}

#[test]
fn outside_of_the_ranges_of_the_mesh_nothing_is_asked() {
    let (own, outside) = (Upstream::at(ECHO), Upstream::at("127.30.0.100:0"));
    let mut whole = mesh(own.address, AppProtocol::Tcp);
    let inside = [SERVICE.ip(), own.address.ip()];
    whole.address_ranges = inside
        .map(|address| Cidr::new(address, 32).expect("the whole address"))
        .to_vec();
    whole.address_ranges.sort();
    let (steered, questions) = Steered::asking(&empty(&whole), &["shop", "echo"], LONG);
    drop(steered.dial("shop", outside.address).sending("hello"));
    assert_eq!(outside.accept().exact(5), b"hello");
    assert_eq!(questions.take(), []);
    let waiting = steered.dial("shop", SERVICE).sending("hello");
    assert_eq!(asked(&questions), [at(SERVICE.ip())]);
    // What the control plane has said of an address counts before the ranges.
    let unreadable = [(at(outside.address.ip()), DependencyState::Unreadable)];
    steered.apply(&naming(&empty(&whole), &unreadable));
    let mut refused = steered.dial("shop", outside.address).sending("hello");
    assert_eq!(refused.rest(), b"");
    steered.expect_rejected("destination_unreadable", 1.0);
    // With other ranges that address may be of the mesh.
    let mut wider = empty(&whole);
    wider.generation = 3;
    wider.address_ranges = Vec::new();
    steered.apply(&wider);
    let second = steered.dial("shop", outside.address).sending("hello");
    assert_eq!(asked(&questions), [at(outside.address.ip())]);
    assert!(outside.is_quiet());
    drop((waiting, second));
}

#[test]
fn a_further_address_leads_to_the_first_one_of_its_workload() {
    let (upstream, first) = (Upstream::at(ECHO), IpAddr::from([127, 30, 1, 9]));
    let mut whole = mesh(upstream.address, AppProtocol::Tcp);
    let further: SocketAddr = "[fd00::9]:80".parse().unwrap();
    whole.elsewhere = vec![first, further.ip()];
    whole.further = vec![(further.ip(), first)];
    let (steered, questions) = Steered::asking(&empty(&whole), &["shop", "echo"], LONG);
    let mut client = steered.dial("shop", further);
    assert_eq!(asked(&questions), [at(further.ip())]);
    let there = |address| (at(address), DependencyState::There);
    steered.apply(&naming(&whole, &[there(further.ip())]));
    assert_eq!(asked(&questions), [at(first)]);
    let mut all = naming(&whole, &[there(first), there(further.ip())]);
    all.generation = 3;
    steered.apply(&all);
    assert_eq!(client.rest(), b"");
    steered.expect_rejected("port_of_no_service", 1.0);
}

#[test]
fn without_an_answer_nothing_is_let_through() {
    let outside = Upstream::at("127.30.0.100:0");
    let going = outside.address;
    let whole = mesh(serve_at(ECHO, |_| "ok".into()), AppProtocol::Http);
    let (steered, questions) =
        Steered::asking(&empty(&whole), &["shop"], Duration::from_millis(20));
    assert_eq!(steered.dial("shop", going).sending(GET).rest(), b"");
    steered.expect_rejected("discovery_timeout", 1.0);
    questions.take();
    drop(steered);
    let (steered, questions) = Steered::asking(&empty(&whole), &["shop"], LONG);
    let mut client = steered.dial("shop", going).sending(GET);
    assert_eq!(asked(&questions), [at(going.ip())]);
    questions.refuse(
        &at(going.ip()),
        &Asker::Workload(name("shop")),
        Reason::DiscoveryOverflow,
    );
    assert_eq!(client.rest(), b"");
    steered.expect_rejected("discovery_overflow", 1.0);
    let mut client = steered.dial("shop", going).sending(GET);
    asked(&questions);
    questions.set_away(true);
    assert_eq!(client.rest(), b"");
    assert_eq!(steered.dial("shop", going).sending(GET).rest(), b"");
    steered.expect_rejected("discovery_unavailable", 2.0);
    let unreadable = [(at(going.ip()), DependencyState::Unreadable)];
    steered.apply(&naming(&empty(&whole), &unreadable));
    assert_eq!(steered.dial("shop", going).sending(GET).rest(), b"");
    steered.expect_rejected("destination_unreadable", 1.0);
    assert!(outside.is_quiet());
}

#[test]
fn a_forward_proxy_asks_for_names() {
    let whole = mesh(serve_at(ECHO, |_| "ok".into()), AppProtocol::Http);
    let (steered, questions) = Steered::asking(&empty(&whole), &["shop", "echo"], LONG);
    let caller = name("shop");
    let proxy = open(&steered.proxy, 99, Entry::ForwardProxy { caller });
    let ask = |host: &str| {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        Client::connect(proxy).sending(request)
    };
    let mut held = ask("echo");
    assert_eq!(asked(&questions), [echo()]);
    steered.apply(&naming(&whole, &[(echo(), DependencyState::There)]));
    assert_eq!(held.response().status(), 200);
    assert_eq!(ask("echo.test.svc.cluster.local").response().status(), 200);
    // A port that a known Service does not have is no question.
    assert_eq!(ask("echo:81").response().status(), 502);
    // A name that no Service can have, neither.
    assert_eq!(ask("www.example.com").response().status(), 502);
    assert_eq!(questions.take(), []);
    let mut held = ask("none.other");
    let none = Dependency::Service(ServiceName::parse("other/none").unwrap());
    assert_eq!(asked(&questions), std::slice::from_ref(&none));
    let mut named = naming(
        &whole,
        &[
            (none, DependencyState::Absent),
            (echo(), DependencyState::There),
        ],
    );
    named.generation = 3;
    steered.apply(&named);
    let answer = held.response();
    assert_eq!(answer.verdict(), (502, "unknown_host"));
    assert_eq!(ask("none.other").response().status(), 502);
    assert_eq!(questions.take(), []);
}

#[test]
fn a_kept_connection_asks_again_for_a_service_that_was_forgotten() {
    let whole = mesh(serve_at(ECHO, |_| "ok".into()), AppProtocol::Http);
    let there = [(at(SERVICE.ip()), DependencyState::Absent)];
    let (steered, questions) = Steered::asking(&naming(&whole, &there), &["shop", "echo"], LONG);
    let mut client = steered.dial("shop", SERVICE);
    assert_eq!(client.ask(GET).status(), 200);
    let mut forgotten = empty(&whole);
    forgotten.generation = 3;
    steered.apply(&forgotten);
    client.send(GET);
    assert_eq!(asked(&questions), [echo()]);
    let mut again = naming(&whole, &[(echo(), DependencyState::There)]);
    again.generation = 4;
    steered.apply(&again);
    assert_eq!(client.response().status(), 200);
    // It is gone for good.
    let mut gone = empty(&whole);
    gone.generation = 5;
    gone.named = Some(vec![(echo(), DependencyState::Absent)].into());
    steered.apply(&gone);
    assert_eq!(client.ask(GET).status(), 503);
    steered.expect_rejected("service_gone", 1.0);
}

#[test]
fn what_is_used_is_told() {
    let whole = mesh(serve_at(ECHO, |_| "ok".into()), AppProtocol::Http);
    let unused = at([10, 9, 9, 9].into());
    let mut named = vec![
        (echo(), DependencyState::There),
        (unused, DependencyState::Absent),
        (at(SERVICE.ip()), DependencyState::Absent),
    ];
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    let (steered, questions) = Steered::asking(&naming(&whole, &named), &["shop", "echo"], LONG);
    let used = |questions: &Questions| questions.take_used().into_iter().collect::<Vec<_>>();
    assert_eq!(used(&questions), []);
    let mut client = steered.dial("shop", SERVICE);
    for _ in 0..2 {
        assert_eq!(client.ask(GET).status(), 200);
        // A request on a kept connection as well as the look-up of an address.
        assert_eq!(used(&questions), [echo(), at(SERVICE.ip())]);
        assert_eq!(used(&questions), []);
    }
    // It is not lost with a configuration that is replaced.
    assert_eq!(client.ask(GET).status(), 200);
    let mut next = naming(&whole, &named);
    next.generation = 3;
    steered.apply(&next);
    assert_eq!(used(&questions), [echo(), at(SERVICE.ip())]);
}

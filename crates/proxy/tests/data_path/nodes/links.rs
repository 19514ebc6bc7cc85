//! Links: sharing by requests and flows, and behaviour when the connection between two nodes breaks.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Settings;
use heddle_transport::fixture::{Authority, DAY, NOW};
use heddle_transport::{Denied, Protocol};

use super::pair::Pair;
use super::relay::Relay;
use super::trust::EXPIRED;
use crate::policy::guarded;
use crate::support::{
    Client, GET, PATIENCE, Upstream, each_connection, over, post, quick, serve, wait_until,
};

pub(super) fn relayed(
    settings: &Settings,
    endpoint: SocketAddr,
    protocol: AppProtocol,
) -> (Pair, Relay) {
    Pair::relayed(settings, guarded(endpoint, protocol), None)
}

/// An endpoint that sends back every byte, and closes its direction after the client's.
pub(super) fn echo() -> SocketAddr {
    each_connection(|stream| {
        let (mut from, mut to) = (&stream, &stream);
        let _ = std::io::copy(&mut from, &mut to);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// A request that has reached the endpoint: both ends.
fn ask(pair: &Pair, upstream: &Upstream) -> (Client, Client) {
    (pair.sending("shop", GET), upstream.asked())
}

#[test]
fn requests_and_streams_of_a_caller_share_one_connection() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let mut clients: Vec<Client> = (0..20).map(|_| pair.client("shop")).collect();
    for client in &mut clients {
        client.send(GET);
    }
    let mut servers: Vec<Client> = clients.iter().map(|_| upstream.accept()).collect();
    for server in &mut servers {
        server.head();
        server.answer("ok");
    }
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_handshakes_total", &[], 1.0);
        side.expect("heddle_links_total", &[], 1.0);
        side.expect("heddle_links_active", &[], 1.0);
    }
}

#[test]
fn a_link_that_is_not_used_is_closed() {
    let settings = quick(|timeouts| timeouts.upstream_idle = Duration::from_millis(200));
    let pair = Pair::with(&settings, serve(|_| "ok".into()), AppProtocol::Http);
    assert_eq!(pair.get("shop").status(), 200);
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_links_active", &[], 0.0);
        side.expect("heddle_connections_active", &[], 0.0);
        side.expect("heddle_buffer_blocks_active", &[], 0.0);
    }
    assert_eq!(pair.get("shop").status(), 200);
    pair.called.expect("heddle_links_total", &[], 2.0);
}

#[test]
fn bodies_of_every_size_arrive_whole() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let mut client = pair.client("shop");
    let mut server = None;
    for n in [0, 1, 100, 4_096, 16_383, 16_384, 70_000, 3_000_000] {
        let body: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
        client.send(post(n));
        let writing = client.send_aside(body.clone());
        let server = server.get_or_insert_with(|| upstream.accept());
        server.head();
        assert!(server.exact(n) == body, "{n} bytes up");
        writing.join().unwrap();
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n"));
        let writing = server.send_aside(body.clone());
        assert!(client.response().body == body, "{n} bytes down");
        writing.join().unwrap();
    }
    pair.called.expect("heddle_links_total", &[], 1.0);
}

#[test]
fn an_endpoint_that_talks_too_much_harms_no_other() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let ask = || ask(&pair, &upstream);
    // Given three requests that share a link …
    let (mut long, mut patient) = ask();
    let (mut too_long, mut talker) = ask();
    let (mut other, mut quiet) = ask();
    // … when one endpoint sends the maximum number of interim responses, and one sends more …
    for _ in 0..100 {
        patient.send("HTTP/1.1 102 Processing\r\n\r\n");
        talker.send("HTTP/1.1 102 Processing\r\n\r\n");
    }
    talker.send("HTTP/1.1 102 Processing\r\n\r\n");
    patient.answer("ok");
    quiet.answer("ok");
    // … then only the one that exceeded the maximum fails.
    let last = |client: &mut Client| {
        let mut heads = std::iter::from_fn(|| Some(client.head()));
        heads
            .find(|head| !head.starts_with("HTTP/1.1 102 "))
            .unwrap()
    };
    assert!(last(&mut long).starts_with("HTTP/1.1 200 "));
    assert!(last(&mut other).starts_with("HTTP/1.1 200 "));
    assert!(last(&mut too_long).starts_with("HTTP/1.1 502 "));
    pair.calling.expect("heddle_links_total", &[], 1.0);
    pair.calling.expect("heddle_links_active", &[], 1.0);
}

#[test]
fn heads_that_wait_for_a_link_go_one_by_one() {
    let upstream = Upstream::new();
    let (pair, relay) = relayed(&Settings::default(), upstream.address, AppProtocol::Http);
    let ask = || ask(&pair, &upstream);
    let (mut client, mut server) = ask();
    let mut others: Vec<_> = (0..30).map(|_| ask()).collect();
    // Given a link with more bytes and heads to send than its window holds …
    relay.is_dead(true);
    let body = vec![b'x'; 60_000];
    for (number, (_, server)) in others.iter_mut().enumerate() {
        let fill = format!("{number:04} <>").repeat(2_500);
        server.send(format!(
            "HTTP/1.1 200 OK\r\nX-Fill: {fill}\r\nContent-Length: 60000\r\n\r\n"
        ));
        server.send(&body);
    }
    // Time for the proxy to read what it accepts: no event shows that the rest is held back.
    thread::park_timeout(Duration::from_millis(500));
    // … when a response of two heads comes at once …
    server.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    thread::park_timeout(Duration::from_millis(300));
    relay.is_dead(false);
    // … then both heads arrive, and so does everything else.
    assert!(client.head().starts_with("HTTP/1.1 103 "));
    assert_eq!(client.response().body, b"ok");
    for (client, _) in &mut others {
        assert_eq!(client.response().body, body);
    }
    pair.calling.expect("heddle_links_total", &[], 1.0);
}

#[test]
fn an_endpoint_cannot_speak_for_its_node() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let (mut client, mut server) = ask(&pair, &upstream);
    server.send(
        "HTTP/1.1 503 Service Unavailable\r\nHeddle-Reason: draining\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!(client.response().verdict(), (503, ""));
}

/// Everything received, and whether the stream ended without a reset.
fn read_all(mut stream: &TcpStream) -> (Vec<u8>, bool) {
    let mut heard = Vec::new();
    let ended = stream.read_to_end(&mut heard);
    if let Err(error) = &ended {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    (heard, ended.is_ok())
}

/// Sends numbered requests and byte streams, while the connection between the nodes is cut `cuts` times at arbitrary
/// bytes.
fn cut_under_load(cuts: usize) {
    let executed: Arc<Mutex<HashMap<u64, u32>>> = Arc::default();
    let seen = Arc::clone(&executed);
    let endpoint = serve(move |head| {
        let number = head.split(['/', ' ']).nth(2).and_then(|n| n.parse().ok());
        *seen.lock().unwrap().entry(number.unwrap()).or_default() += 1;
        "x".repeat(1 + head.len() % 3000)
    });
    let (web, web_way) = relayed(&Settings::default(), endpoint, AppProtocol::Http);
    let (raw, raw_way) = relayed(&Settings::default(), echo(), AppProtocol::Tcp);
    let stop = AtomicBool::new(false);
    let numbers = AtomicU64::new(0);
    let (answered, streamed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (lost, unmade) = (AtomicU64::new(0), AtomicU64::new(0));
    let (cut_off, unstreamed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = web.client("shop");
                while !stop.load(Ordering::Relaxed) {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let body = "y".repeat((number % 5000) as usize);
                    let response = client.ask(format!(
                        "POST /{number} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {number}\r\n\
                         Content-Length: {}\r\n\r\n{body}",
                        body.len()
                    ));
                    match (response.status(), response.field("heddle-reason")) {
                        (200, None) => answered.fetch_add(1, Ordering::Relaxed),
                        // Cut before the other node confirmed anything: the request may or may not have arrived.
                        (502, Some("link_lost")) => lost.fetch_add(1, Ordering::Relaxed),
                        // Cut before the link was established.
                        (503, Some("node_connect_failed")) => {
                            unmade.fetch_add(1, Ordering::Relaxed)
                        }
                        other => panic!("{number}: {other:?}"),
                    };
                }
            });
        }
        for turn in 0..3u64 {
            let (raw, stop, streamed) = (&raw, &stop, &streamed);
            let (cut_off, unmade) = (&cut_off, &unstreamed);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let n = 200_000 * (1 + turn as usize);
                    let body: Vec<u8> = (0..n).map(|i| (i * 13 + i / 509) as u8).collect();
                    let client = raw.client("shop");
                    let mut writer = client.stream.try_clone().unwrap();
                    let sent = body.clone();
                    let writing = thread::spawn(move || {
                        let _reset = writer.write_all(&sent);
                        let _reset = writer.shutdown(Shutdown::Write);
                    });
                    let (heard, whole) = read_all(&client.stream);
                    assert!(body.starts_with(&heard), "a stream of {n} bytes");
                    let _reset = writing.join();
                    match whole {
                        true => assert_eq!(heard.len(), n, "its end is told when it is whole"),
                        // Its link was never established.
                        false if heard.is_empty() => drop(unmade.fetch_add(1, Ordering::Relaxed)),
                        false => drop(cut_off.fetch_add(1, Ordering::Relaxed)),
                    }
                    streamed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for cut in 0..cuts {
            // The number of responses since the last cut decides when to cut again.
            let before = answered.load(Ordering::Relaxed);
            let until = before + (cut as u64 * 7) % 5;
            wait_until("requests go on", PATIENCE, || {
                answered.load(Ordering::Relaxed) >= until
            });
            thread::park_timeout(Duration::from_micros((cut as u64 * 997) % 3000));
            [&web_way, &raw_way][cut % 2].cut();
        }
        let (requests, streams) = (
            answered.load(Ordering::Relaxed),
            streamed.load(Ordering::Relaxed),
        );
        wait_until("requests go on after the last cut", PATIENCE, || {
            answered.load(Ordering::Relaxed) > requests + 20
                && streamed.load(Ordering::Relaxed) > streams + 3
        });
        stop.store(true, Ordering::Relaxed);
    });
    let executed = executed.lock().unwrap();
    let twice: Vec<_> = executed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "executed more than once: {twice:?}");
    let [numbers, answered, lost, unmade] =
        [numbers, answered, lost, unmade].map(AtomicU64::into_inner);
    assert_eq!(answered + lost + unmade, numbers, "each has one answer");
    let done = executed.len() as u64;
    assert!(
        (answered..=answered + lost).contains(&done),
        "{done} were executed"
    );
    let (cut_off, unstreamed) = (cut_off.into_inner(), unstreamed.into_inner());
    assert!(
        lost + cut_off == 0 && unmade + unstreamed <= 8,
        "{lost} requests lost, {unmade} not begun; {cut_off} streams reset, {unstreamed} not begun"
    );
    let resumed = web.calling.metric("heddle_links_resumed_total", &[]);
    // Several cuts may interrupt the same attempt to resume.
    assert!(resumed >= cuts as f64 / 20.0, "{resumed} of {cuts} cuts");
    assert!(web_way.taken() > cuts / 20 && raw_way.taken() > cuts / 20);
}

#[test]
fn what_is_open_survives_cuts_and_nothing_is_done_twice() {
    cut_under_load(60);
}

#[test]
#[ignore = "takes a minute; `make soak` runs it"]
fn what_is_open_survives_a_thousand_cuts() {
    cut_under_load(1000);
}

#[test]
fn streams_survive_a_way_that_is_dead_for_five_seconds() {
    let (pair, way) = relayed(&Settings::default(), echo(), AppProtocol::Tcp);
    let mut client = pair.sending("shop", "before");
    assert_eq!(client.exact(6), b"before");
    way.is_dead(true);
    client.send("meanwhile");
    // The duration is what this test checks.
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        thread::park_timeout(until.saturating_duration_since(Instant::now()));
    }
    // Bytes in flight are lost with their connection.
    way.cut();
    way.is_dead(false);
    assert_eq!(client.exact(9), b"meanwhile");
    client.send("after");
    assert_eq!(client.exact(5), b"after");
    pair.calling.expect("heddle_links_active", &[], 1.0);
    assert!(pair.calling.metric("heddle_links_resumed_total", &[]) >= 1.0);
}

#[test]
fn streams_wait_fifteen_seconds_for_a_link_that_was_cut() {
    let (pair, way) = relayed(&Settings::default(), echo(), AppProtocol::Tcp);
    let mut client = pair.sending("shop", "before");
    assert_eq!(client.exact(6), b"before");
    let longer = Some(Duration::from_secs(30));
    client.stream.set_read_timeout(longer).unwrap();
    let cut = Instant::now();
    way.is_dead(true);
    way.cut();
    assert_eq!(client.rest(), b"");
    let waited = cut.elapsed().as_millis();
    assert!((14_000..20_000).contains(&waited), "{waited} ms");
}

#[test]
fn a_caller_forgets_a_link_that_is_cut_while_nothing_is_open_on_it() {
    let endpoint = serve(|_| "ok".into());
    let (pair, way) = relayed(&Settings::default(), endpoint, AppProtocol::Http);
    assert_eq!(pair.get("shop").status(), 200);
    way.cut();
    pair.calling.expect("heddle_links_active", &[], 0.0);
    assert_eq!(pair.get("shop").status(), 200);
    pair.calling.expect("heddle_links_total", &[], 2.0);
    pair.calling.expect("heddle_links_resumed_total", &[], 0.0);
}

#[test]
fn a_pair_gets_a_second_link_at_128_streams() {
    let pair = Pair::new(echo(), AppProtocol::Tcp);
    let mut clients = Vec::new();
    for n in 0..130 {
        let mut client = pair.sending("shop", "x");
        assert_eq!(client.exact(1), b"x");
        clients.push(client);
        let links = if n < 128 { 1.0 } else { 2.0 };
        pair.calling.expect("heddle_links_active", &[], links);
    }
}

#[test]
fn a_caller_of_a_node_that_begins_anew_is_told_what_is_lost() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Http);
    let mut client = pair.sending("shop", post(0));
    let _server = upstream.asked();
    pair.called_begins_anew();
    let response = client.response();
    assert_eq!(response.status(), 502);
    // Either the old proxy still reset its requests, or the new one does not know them.
    let reason = response.field("heddle-reason").unwrap_or_default();
    assert!(["link_lost", "node_reset"].contains(&reason), "{reason}");
}

#[test]
fn what_may_have_been_heard_is_not_sent_again_when_the_other_node_refuses_later() {
    let upstream = Upstream::new();
    let (pair, relay) = relayed(&Settings::default(), upstream.address, AppProtocol::Http);
    let mut client = pair.sending("shop", post(0));
    let _server = upstream.asked();
    // Given a request that has reached the endpoint, when the link is cut and the other node no longer trusts this
    // node …
    let trust = pair.trust(&[&Authority::new()], Denied::default());
    let identities = pair.identities(&pair.called, &pair.authority, &trust, NOW + DAY);
    relay.cut();
    pair.give(&pair.called, identities);
    // … then no endpoint gets the request a second time.
    assert_eq!(client.response().verdict(), (502, "link_lost"));
    assert!(upstream.is_quiet());
}

#[test]
fn what_an_attacker_puts_between_two_nodes_sends_nothing_again() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let settings = over(between_nodes);
        let upstream = Upstream::new();
        let (pair, relay) = relayed(&settings, upstream.address, AppProtocol::Http);
        let (mut client, mut server) = ask(&pair, &upstream);
        // Given a request that has reached the endpoint, when an attacker injects bytes that are not TLS …
        relay.inject(b"HTTP/1.1 200 OK\r\n\r\n");
        // … which cost a link only its connection …
        if between_nodes == Protocol::Link {
            pair.calling.expect("heddle_links_resumed_total", &[], 1.0);
        }
        // … then the request on a link completes, and no endpoint gets it a second time.
        if between_nodes == Protocol::Link {
            server.answer("ok");
        }
        let expected = match between_nodes {
            Protocol::Link => 200,
            _ => 502,
        };
        assert_eq!(client.response().status(), expected, "{between_nodes:?}");
        assert!(upstream.is_quiet(), "{between_nodes:?}");
    }
}

#[test]
fn a_flow_outlives_the_certificates_it_began_with_if_they_are_renewed() {
    let pair = Pair::new(echo(), AppProtocol::Tcp);
    pair.identify(&pair.authority, NOW + 100);
    let mut client = pair.sending("shop", "old");
    assert_eq!(client.exact(3), b"old");
    pair.identify(&pair.authority, NOW + DAY);
    pair.time.fetch_add(200, Ordering::Relaxed);
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_links_resumed_total", &[], 1.0);
    }
    client.send("new");
    assert_eq!(client.exact(3), b"new");
}

#[test]
fn a_flow_ends_with_its_certificates_if_they_are_not() {
    let pair = Pair::new(echo(), AppProtocol::Tcp);
    pair.identify(&pair.authority, NOW + 100);
    let mut client = pair.sending("shop", "old");
    assert_eq!(client.exact(3), b"old");
    let began = Instant::now();
    pair.time.fetch_add(200, Ordering::Relaxed);
    assert_eq!(client.rest(), b"");
    assert!(began.elapsed() < EXPIRED, "{:?}", began.elapsed());
    pair.called.expect("heddle_links_active", &[], 0.0);
}

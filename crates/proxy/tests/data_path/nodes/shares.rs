//! The share of a node's connections that another node may use with links.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::{Peer, Protocol};
use heddle_wire::link::Code;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::by_hand::Caller;
use super::pair::Pair;
use super::refused::{Intruder, intruder, preface};
use super::shown::shows;
use crate::support::{Client, GET, PATIENCE, bounded, each_connection, get, serve};

const OVER_SHARE: &str = "heddle_connections_over_share_total";

fn wait_for(pair: &Pair, links: usize) {
    pair.called.expect("heddle_links_active", &[], links as f64);
}

#[test]
fn links_of_one_node_leave_connections_for_others() {
    let settings = bounded(|bounds| bounds.connections = 80);
    let pair = Pair::with(&settings, serve(|_| "ok".into()), AppProtocol::Http);
    // Given a node that makes as many links as it can, and keeps each busy with an unanswered stream …
    let mut held = Vec::new();
    for _ in 0..100 {
        let Some(mut caller) = Caller::of(&pair) else {
            continue;
        };
        let _serial = caller.session.open_flow(b"nowhere");
        caller.send();
        held.push(caller);
    }
    // … then it gets its share of the connections, without the reserved eighth …
    wait_for(&pair, 35);
    pair.called.expect("heddle_connections_active", &[], 0.0);
    // … and others find room.
    for caller in ["intruder", "unidentified"] {
        assert_eq!(pair.get(caller).status(), 200, "{caller}");
    }
    drop(held);
}

/// An HTTP/2 connection, after the first bytes of the other node, or after the node has closed it.
fn http2(pair: &Pair, who: &str) -> Intruder {
    let mut caller = intruder(pair, who, Protocol::Http2);
    caller.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    caller.hear();
    caller
}

/// Requests a path on stream 1, with the shortest HPACK encoding (RFC 7541 appendix A, section 6.2.2).
fn ask_http2(caller: &mut Intruder, path: &str, endpoint: SocketAddr) {
    const HEADERS: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;
    let destination: String = preface(1, endpoint, "echo")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // GET and http by index; path and authority with indexed names; and one field with a literal name.
    let mut block = vec![0x82, 0x86];
    let mut text = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend_from_slice(value.as_bytes());
    };
    text(&[0x04], path);
    text(&[0x01], "a");
    text(b"\0\x12heddle-destination", &destination);
    let length = u8::try_from(block.len()).unwrap();
    let head = [0, 0, length, HEADERS, END_STREAM_AND_HEADERS, 0, 0, 0, 1];
    caller.send(&[&head[..], &block].concat());
}

/// The types of the received frames.
fn kinds(mut heard: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = *heard {
        kinds.push(kind);
        let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
        heard = heard.get(length..).unwrap_or_default();
    }
    kinds
}

/// An endpoint that answers all requests but `/hold`.
fn holding() -> SocketAddr {
    serve(|head| {
        while head.starts_with("GET /hold ") {
            thread::park();
        }
        "ok".into()
    })
}

#[test]
fn connections_of_http2_have_the_share_of_links() {
    let settings = bounded(|bounds| bounds.connections = 80);
    let pair = Pair::with(&settings, serve(|_| "ok".into()), AppProtocol::Http);
    // Given a node that opens as many connections as it can and sends no requests, its oldest connections make room
    // for its new ones …
    let held: Vec<Intruder> = (0..60).map(|_| http2(&pair, "shop")).collect();
    assert!(held.iter().all(|caller| !caller.heard.is_empty()));
    pair.called.expect("heddle_connections_active", &[], 35.0);
    // … and for other callers.
    assert_eq!(pair.get("intruder").status(), 200);
    pair.called.expect(OVER_SHARE, &[], 0.0);
    drop(held);
    pair.called.expect("heddle_connections_active", &[], 1.0);
}

#[test]
fn a_connection_of_http2_that_is_idle_makes_room() {
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    let settings = bounded(|bounds| bounds.links = 2);
    let endpoint = holding();
    let pair = Pair::with(&settings, endpoint, AppProtocol::Http);
    let active = |requests| {
        pair.called.expect("heddle_requests_active", &[], requests);
    };
    // Given a Worker whose four places have connections, three of them with a request and one idle …
    let mut held = Vec::new();
    let mut idle = http2(&pair, "shop");
    for (asked, who) in [(1.0, "shop"), (2.0, "one"), (3.0, "other")] {
        let mut caller = http2(&pair, who);
        ask_http2(&mut caller, "/hold", endpoint);
        active(asked);
        held.push(caller);
    }
    // … when another connection comes, the idle one gets GOAWAY, and its later requests are ignored …
    let mut late = http2(&pair, "shop");
    assert!(!late.heard.is_empty());
    ask_http2(&mut idle, "/hold", endpoint);
    let said = kinds(&idle.rest());
    assert!(
        said.contains(&GOAWAY) && said.contains(&RST_STREAM),
        "{said:?}"
    );
    active(3.0);
    ask_http2(&mut late, "/hold", endpoint);
    active(4.0);
    pair.called.expect(OVER_SHARE, &[], 0.0);
    // … and if all of them have requests, the new connection is closed.
    assert!(http2(&pair, "shop").heard.is_empty());
    pair.called.expect(OVER_SHARE, &[], 1.0);
    drop((held, late));
}

#[test]
fn a_link_that_was_cut_gives_its_place_up_at_once() {
    let settings = bounded(|bounds| bounds.links = 2);
    let (upstream, pair) = Pair::scripted_with(&settings, AppProtocol::Http);
    let here = preface(1, upstream.address, "echo");
    // Given a Worker whose four places have links, three of them with a request and one cut …
    let cut = Caller::named(&pair, "shop").unwrap();
    let token = cut.session.token();
    let held = Caller::served(&pair, &upstream, &["shop", "one", "other"]);
    drop(cut);
    let from = Peer::From([127, 0, 0, 1].into());
    shows(&pair.called, from, "one is cut", |shown| {
        (shown.links_up, shown.links_cut) == (3, 1)
    });
    // … when another link comes, then it gets that place, long before the cut link's timeout.
    let mut late = Caller::named(&pair, "shop").unwrap();
    assert!(late.session.token() != token);
    late.ask(&here);
    late.send();
    let _served = upstream.accept();
    pair.called.expect(OVER_SHARE, &[], 0.0);
    wait_for(&pair, 4);
    drop(held);
}

#[test]
fn of_a_pair_there_are_so_many_links_and_what_serves_nothing_makes_room() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let here = preface(1, upstream.address, "echo");
    let ask = |destination: &[u8]| Caller::asking(&pair, "shop", destination);
    // Given the maximum number of links, each with a request except one …
    let mut held: Vec<Caller> = (0..63).map(|_| ask(&here)).collect();
    let servers: Vec<_> = (0..63).map(|_| upstream.accept()).collect();
    let mut idle = ask(b"nowhere");
    wait_for(&pair, 64);
    // … when another link comes, the idle one is closed …
    held.push(ask(&here));
    assert_eq!(idle.farewell(), Some(Code::IDLE));
    let last = upstream.accept();
    wait_for(&pair, 64);
    pair.called.expect(OVER_SHARE, &[], 0.0);
    // … and if all of them have requests, the new link is closed with a code, and its requests are not executed.
    let mut late = Caller::of(&pair).unwrap();
    assert_eq!(late.farewell(), Some(Code::OVERLOAD));
    pair.called.expect(OVER_SHARE, &[], 1.0);
    while !late.intruder.closed {
        late.hear();
    }
    assert!(upstream.is_quiet());
    drop((servers, last));
}

#[test]
fn a_caller_that_is_refused_a_link_is_told_and_asks_no_endpoint() {
    let settings = bounded(|bounds| bounds.links = 2);
    let (upstream, pair) = Pair::scripted_with(&settings, AppProtocol::Http);
    // Given a Worker whose four places have links with requests, two of them of one caller …
    let mut held = Caller::served(&pair, &upstream, &["shop", "shop", "one", "other"]);
    wait_for(&pair, 4);
    // … then a request that needs another link fails with a reason that says that no endpoint has seen it.
    assert_eq!(pair.get("intruder").verdict(), (503, "node_connect_failed"));
    assert!(upstream.is_quiet());
    assert!(pair.called.metric(OVER_SHARE, &[]) >= 1.0);
    // After one request is answered there is room, even if its client does not end the stream.
    let (caller, server) = held.last_mut().unwrap();
    server.head();
    server.answer("ok");
    while !caller.told.ended {
        assert!(!caller.intruder.closed);
        caller.hear();
    }
    let mut client = pair.sending("intruder", GET);
    // The upstream connection is reused only for requests of the same caller, so this one opens another.
    let _server = upstream.answering("ok");
    assert_eq!(client.response().status(), 200);
}

#[test]
fn refused_links_are_closed_at_once_while_a_sixteenth_of_the_connections_wait_to_be_closed() {
    let settings = bounded(|bounds| {
        bounds.links = 2;
        bounds.connections = 64;
    });
    let (upstream, pair) = Pair::scripted_with(&settings, AppProtocol::Http);
    // Given a Worker whose places all have links with requests …
    let _held = Caller::served(&pair, &upstream, &["shop", "shop", "one", "other"]);
    wait_for(&pair, 4);
    // … then of many other links at once, four in a second are told, and the rest is closed before it begins.
    let late: Vec<_> = (0..40).map(|_| Caller::named(&pair, "intruder")).collect();
    assert!(late.iter().any(Option::is_none), "all are told");
    let told: Vec<_> = late.into_iter().flatten().collect();
    assert!(told.len() >= 4, "{}", told.len());
    for mut told in told {
        assert_eq!(told.farewell(), Some(Code::OVERLOAD));
    }
}

#[test]
fn a_link_whose_streams_are_reset_all_the_time_is_given_up() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let nowhere: SocketAddr = ([127, 0, 0, 9], 9).into();
    let destination = preface(1, nowhere, "echo");
    let mut caller = Caller::of(&pair).unwrap();
    let mut reset = 0;
    while !caller.intruder.closed {
        for _ in 0..100 {
            if let Some(serial) = caller.ask(&destination) {
                caller.session.reset(serial, Code::CANCELLED);
                reset += 1;
            }
        }
        caller.send();
        caller.hear();
        assert!(reset < 100_000, "the link is still there");
    }
    assert!(reset > 2_000, "{reset}");
    wait_for(&pair, 0);
    assert!(pair.called.metric("heddle_links_total", &[]) == 1.0);
    assert_eq!(pair.get("intruder").status(), 200);
}

/// An endpoint with endless responses, except for `/short`.
fn endless() -> SocketAddr {
    each_connection(|stream| {
        let mut client = Client::of(stream);
        let Some(head) = client.try_head() else {
            return;
        };
        if head.starts_with("GET /short ") {
            return client.answer("ok");
        }
        client.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            1_u64 << 40
        ));
        while client.stream.write_all(&[b'x'; 16_384]).is_ok() {}
    })
}

#[test]
fn downloads_that_are_not_read_leave_blocks_for_others() {
    const BLOCKS: usize = 256;
    let settings = bounded(|bounds| bounds.blocks = BLOCKS);
    let pair = Pair::with(&settings, endless(), AppProtocol::Http);
    // Given a workload that downloads more than there are blocks for, reads fast for a while, and then stops …
    let downloads: Vec<Client> = (0..32)
        .map(|_| {
            let mut client = pair.client("shop");
            set_socket_recv_buffer_size(&client.stream, 65_536).unwrap();
            client.send(get("/long"));
            // A download that finds no block fails alone.
            let _head = client.head();
            client
        })
        .collect();
    for client in &downloads {
        let mut stream = &client.stream;
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let _goes_on = (0..8).all(|_| stream.read_exact(&mut [0; 65_536]).is_ok());
    }
    // … when everything that fits has arrived …
    let in_use = || pair.calling.metric("heddle_buffer_blocks_active", &[]);
    let (mut last, patience) = (-1.0, Instant::now() + PATIENCE);
    while last != in_use() || last < BLOCKS as f64 / 4.0 {
        assert!(Instant::now() < patience, "{last} blocks");
        last = in_use();
        thread::park_timeout(Duration::from_millis(1_200));
    }
    // … then free blocks are left, and others are served.
    assert!(last <= BLOCKS as f64 * 0.75, "{last} blocks");
    for _ in 0..20 {
        let response = pair.ask("intruder", get("/short"));
        assert_eq!(response.status(), 200, "{last} blocks in use");
    }
    drop(downloads);
    pair.calling.expect("heddle_buffer_blocks_active", &[], 0.0);
}

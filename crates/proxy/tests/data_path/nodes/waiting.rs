//! Full links: new requests and flows wait for room.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{AppProtocol, ServiceName, WorkloadName};
use heddle_proxy::{Entry, Settings};
use heddle_transport::Denied;
use heddle_transport::fixture::Authority;

use super::links::echo;
use super::pair::Pair;
use super::relay::Relay;
use crate::policy::guarded;
use crate::support::{Client, PATIENCE, count, open, quick, serve};

/// Bytes of a request's head and body.
const HEAD: usize = 20_000;
const BODY: usize = 40_000;
/// More requests than a link's window holds; their heads alone exceed the buffer for waiting heads.
const REQUESTS: u64 = 40;

/// A pair with a relay between its nodes; the echo Service has an HTTP port and a TCP port.
struct Bed {
    pair: Pair,
    relay: Relay,
    /// The shop's listener for the TCP port.
    bytes: SocketAddr,
}

impl Bed {
    fn with(settings: &Settings) -> Bed {
        let mut mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
        let mut port = mesh.services[0].ports[0].clone();
        (port.port, port.protocol) = (81, AppProtocol::Tcp);
        port.endpoints[0].address = echo();
        mesh.services[0].ports.push(port);
        let (pair, relay) = Pair::relayed(settings, mesh, None);
        let entry = Entry::Service {
            caller: Some(WorkloadName::new("test", "shop").unwrap()),
            service: ServiceName::parse("test/echo").unwrap(),
            port: 81,
        };
        let bytes = open(&pair.calling.proxy, 20, entry);
        Bed { pair, relay, bytes }
    }

    /// Stalls the relay, and sends requests until the link is full. Some of them have not begun then.
    fn fill(&self) -> Vec<Client> {
        assert_eq!(self.pair.get("shop").status(), 200);
        self.relay.is_dead(true);
        let requests = (0..REQUESTS).map(|number| {
            let mut client = self.pair.client("shop");
            let noise = noise(number);
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\nX-Noise: {noise}\r\nContent-Length: {BODY}\r\n\r\n"
            ));
            client.send([b'x'; BODY]);
            client
        });
        let requests = requests.collect();
        let sent = || {
            let registry = &self.pair.calling.registry;
            count(registry, "heddle_node_bytes_total", &["sent"])
        };
        let (mut last, patience) = (-1.0, Instant::now() + PATIENCE);
        while last != sent() || last < 500_000.0 {
            assert!(Instant::now() < patience, "{last} bytes");
            last = sent();
            thread::park_timeout(Duration::from_millis(300));
        }
        requests
    }

    fn failed(&self, reason: &str) -> f64 {
        let name = "heddle_tcp_connections_failed_total";
        self.pair.calling.metric(name, &[reason])
    }
}

/// A header value that template compression cannot shorten.
fn noise(seed: u64) -> String {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'a' + (state >> 59) as u8 % 26)
    };
    (0..HEAD).map(|_| next()).collect()
}

#[test]
fn a_flow_waits_for_room_on_its_link_as_requests_do() {
    // Given a full link, with requests that wait to begin …
    let bed = Bed::with(&Settings::default());
    let mut requests = bed.fill();
    // … when a TCP flow begins on it, too …
    let mut flow = Client::connect(bed.bytes).sending("hello");
    // The flow waits in the proxy without any visible event.
    thread::park_timeout(Duration::from_millis(300));
    bed.relay.is_dead(false);
    // … then the flow continues as soon as there is room, and so does everything else.
    assert_eq!(flow.exact(5), b"hello");
    for client in &mut requests {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(bed.failed("reason"), 0.0);
    bed.pair.calling.expect("heddle_links_total", &[], 1.0);
}

#[test]
fn a_flow_for_which_there_is_no_room_in_time_says_so() {
    let settings = quick(|timeouts| timeouts.connect = Duration::from_millis(1_500));
    let bed = Bed::with(&settings);
    let mut requests = bed.fill();
    let mut flow = Client::connect(bed.bytes).sending("hello");
    assert_eq!(flow.rest(), b"");
    let calling = &bed.pair.calling;
    let reason = ["reason=\"link_full\""];
    calling.expect("heddle_tcp_connections_failed_total", &reason, 1.0);
    // That is not a failure of the endpoint, and the requests continue.
    calling.expect("heddle_upstream_connect_failures_total", &[], 0.0);
    bed.relay.is_dead(false);
    for client in &mut requests {
        assert_eq!(client.response().status(), 200);
    }
    let mut flow = Client::connect(bed.bytes).sending("again");
    assert_eq!(flow.exact(5), b"again");
}

#[test]
fn a_request_that_waits_for_room_on_a_link_that_is_given_up_is_told() {
    let bed = Bed::with(&Settings::default());
    let mut requests = bed.fill();
    let pair = &bed.pair;
    // When the other node no longer trusts this node …
    let trust = pair.trust(&[&Authority::new()], Denied::default());
    pair.called_trusts(&trust);
    bed.relay.cut();
    bed.relay.is_dead(false);
    // … then each response says whether the request may have reached the other node.
    let mut unheard = 0;
    for client in &mut requests {
        match client.response().verdict() {
            (502, "link_lost") => {}
            (503, "node_connect_failed" | "peer_refused") => unheard += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(unheard > 0);
}

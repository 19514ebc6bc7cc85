//! The share of a node's connections for one pod, or for one client outside the mesh that connects to one pod.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Bounds;

use super::bed::{ECHO, SERVICE, Steered, going_to, mesh};
use crate::support::{Client, PATIENCE, allow_descriptors, serve_at};

/// Connection limit of the node.
const BOUND: usize = 4_096;
/// The share of the only source: half of the limit without the reserved eighth.
const SHARE: usize = BOUND * 7 / 8 / 2;
/// Latency limit of a request during a flood.
const SOON: Duration = Duration::from_secs(2);

/// Counters of connections that the proxy has accepted or refused.
const SEEN: [&str; 2] = [
    "heddle_connections_total",
    "heddle_connections_refused_total",
];
/// Connections opened at once: fewer than the backlog of a listener.
const AT_A_TIME: usize = 100;

/// Opens connections; returns those that were not reset at once, when the proxy has accepted or refused all of them.
fn flood(steered: &Steered, address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let before = steered.sum(&SEEN);
    let mut held = Vec::new();
    for opened in 1..=count {
        held.extend(TcpStream::connect(address));
        if opened % AT_A_TIME == 0 || opened == count {
            let patience = Instant::now() + PATIENCE;
            while steered.sum(&SEEN) < before + opened as f64 {
                assert!(
                    Instant::now() < patience,
                    "{opened} are not taken or refused"
                );
                std::thread::yield_now();
            }
        }
    }
    held
}

/// Opens a connection; whether it is reset.
fn is_reset(address: SocketAddr) -> bool {
    let read = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read(&mut [0])
    });
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

fn bounds() -> Bounds {
    Bounds {
        connections: BOUND,
        ..Bounds::default()
    }
}

/// Sends requests, each over its own connection, and expects each response in time.
fn goes_on(steered: &Steered, address: SocketAddr) {
    for _ in 0..100 {
        let began = Instant::now();
        assert_eq!(steered.get(Client::connect(address), "/"), 200);
        let took = began.elapsed();
        assert!(took < SOON, "{took:?}");
    }
}

#[test]
fn a_flood_of_one_pod_or_at_one_pod_leaves_room_for_the_others() {
    allow_descriptors();
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let mesh = mesh(endpoint, AppProtocol::Http);
    for workers in [1, 2] {
        let steered = Steered::bounded(workers, bounds(), &mesh, &["echo", "shop"]);
        let over_share =
            |count: usize| steered.expect("heddle_connections_over_share_total", &[], count as f64);
        let held = |count: usize| steered.expect("heddle_connections_active", &[], count as f64);
        let (_, shop) = steered.outbound("shop", Some(SERVICE));
        let (_, intruder) = steered.outbound("intruder", Some(SERVICE));
        // Given a pod that holds its whole share, and tries for more …
        let own = flood(&steered, intruder, SHARE + 500);
        over_share(500);
        held(SHARE);
        assert!(is_reset(intruder));
        goes_on(&steered, shop);
        // … and clients outside the mesh that do the same at another pod …
        let (_, arriving) = steered.arriving("echo", endpoint);
        let strangers = flood(&steered, arriving, SHARE);
        goes_on(&steered, shop);
        // … then requests of others are served, none is refused, and all connections become available again.
        drop((own, strangers));
        held(0);
        let again = flood(&steered, intruder, SHARE);
        held(SHARE);
        drop(again);
        held(0);
    }
}

#[test]
fn a_share_may_be_fixed() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let bounds = Bounds {
        connections_per_pod: Some(3),
        ..bounds()
    };
    let steered = Steered::bounded(1, bounds, &mesh(endpoint, AppProtocol::Http), &["echo"]);
    let (_, shop) = steered.outbound("shop", None);
    going_to(shop, SERVICE);
    let held = flood(&steered, shop, 5);
    steered.expect("heddle_connections_refused_total", &[], 2.0);
    steered.expect("heddle_connections_over_share_total", &[], 2.0);
    steered.expect("heddle_connections_active", &[], 3.0);
    drop(held);
    steered.expect("heddle_connections_active", &[], 0.0);
    assert_eq!(steered.get(Client::connect(shop), "/"), 200);
}

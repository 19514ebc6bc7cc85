//! What one pod, or a client that calls one pod from outside of the mesh, may take of a node's connections.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Bounds;

use super::bed::{ECHO, SERVICE, Steered, going_to, mesh};
use crate::support::{Client, PATIENCE, allow_descriptors, serve_at};

/// Connections of a node.
const BOUND: usize = 4_096;
/// What one source gets of them, when no other source has any: half of all but the eighth that is kept.
const SHARE: usize = BOUND * 7 / 8 / 2;
/// How long a request may take beside a flood.
const SOON: Duration = Duration::from_secs(2);

/// Connections of which the proxy has decided what becomes of them.
const SEEN: [&str; 2] = [
    "heddle_connections_total",
    "heddle_connections_refused_total",
];
/// Opened at a time: fewer than wait in a listener's queue.
const AT_A_TIME: usize = 100;

/// Opens connections and holds those that are not reset before one could look at them. When it returns all have been
/// taken or refused.
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

/// Opens one that is reset.
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

/// Asks over a connection of its own each time, and finds an answer in time.
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
        // Given a pod that holds all it gets, and tries for more …
        let own = flood(&steered, intruder, SHARE + 500);
        over_share(500);
        held(SHARE);
        assert!(is_reset(intruder));
        goes_on(&steered, shop);
        // … and strangers at another who do the same …
        let (_, arriving) = steered.arriving("echo", endpoint);
        let strangers = flood(&steered, arriving, SHARE);
        goes_on(&steered, shop);
        // … then the others' requests go on, none of them was refused, and all of it comes back.
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

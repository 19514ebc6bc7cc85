//! Connections that wait in the accept queue, and the share of connections that one client may hold.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use heddle_model::AppProtocol;
use heddle_proxy::Bounds;

use crate::support::{PATIENCE, allow_descriptors};
use crate::{FLOODER, OTHER, alone, bed, connect_from, queue, reset, serve};

/// More connections than two Workers accept at once.
const CROWD: usize = 1_500;

/// Whether a request on a connection gets a response.
fn is_answered(mut stream: &TcpStream) -> bool {
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: echo.test\r\n\r\n");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 12];
    asked.and_then(|()| stream.read_exact(&mut answer)).is_ok() && answer == *b"HTTP/1.1 200"
}

#[test]
fn what_was_reset_in_the_queue_costs_no_work() {
    let _alone = alone();
    for workers in [1, 2] {
        let bed = bed(workers, AppProtocol::Undeclared, Bounds::default());
        let (queue, address) = queue();
        // Given an accept queue with many reset connections and one live connection …
        for _ in 0..CROWD / 2 {
            reset(connect_from(FLOODER, address).unwrap());
        }
        let patient = connect_from(OTHER, address).unwrap();
        for _ in 0..CROWD / 2 {
            reset(connect_from(FLOODER, address).unwrap());
        }
        // … then the live one is served, and almost no upstream connections were opened for the others.
        serve(&bed, queue, None);
        assert!(is_answered(&patient));
        assert!(is_answered(&connect_from(OTHER, address).unwrap()));
        let gone = bed.metric("heddle_connections_abandoned_total", &[]);
        assert!(
            gone > 0.9 * CROWD as f64,
            "{gone} of {CROWD} were seen to be gone"
        );
        let begun = bed.metric("heddle_upstream_connections_total", &[]);
        assert!(
            begun < 0.1 * CROWD as f64,
            "the endpoint was called {begun} times"
        );
    }
}

#[test]
fn a_crowd_for_which_workers_have_no_room_waits_and_is_served() {
    let _alone = alone();
    allow_descriptors();
    let bed = bed(2, AppProtocol::Http, Bounds::default());
    let (queue, address) = queue();
    let crowd: Vec<TcpStream> = (0..CROWD)
        .map(|_| connect_from(OTHER, address).unwrap())
        .collect();
    serve(&bed, queue, None);
    for stream in &crowd {
        assert!(is_answered(stream));
    }
    assert_eq!(bed.metric("heddle_connections_refused_total", &[]), 0.0);
    assert_eq!(bed.metric("heddle_connections_unplaced_total", &[]), 0.0);
}

/// Tries to hold `count` connections; returns those that are served. The others are reset or closed.
fn hold(source: IpAddr, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let held = (0..count).filter_map(|_| connect_from(source, to).ok());
    held.filter(is_answered).collect()
}

#[test]
fn one_client_without_a_pod_leaves_connections_to_others() {
    let _alone = alone();
    const BOUND: usize = 512;
    const SHARE: usize = BOUND * 7 / 8 / 2;
    allow_descriptors();
    let bounds = Bounds {
        connections: BOUND,
        ..Bounds::default()
    };
    for caller in [None, Some("shop")] {
        let bed = bed(1, AppProtocol::Http, bounds);
        let (queue, address) = queue();
        serve(&bed, queue, caller);
        // Given a client that opens and holds as many connections as it can …
        let held = hold(FLOODER, address, BOUND + 50);
        assert_eq!(held.len(), SHARE, "{caller:?}");
        // … then others still get connections: from another address, or on another listener.
        let (to, few) = match caller {
            None => (address, 100),
            Some(_) => (bed.address, 100),
        };
        let others = hold(OTHER, to, few);
        assert_eq!(others.len(), few, "{caller:?}");
        let over = bed.metric("heddle_connections_over_share_total", &[]);
        assert_eq!(over, (BOUND + 50 - SHARE) as f64);
        // All connections become available again.
        drop((held, others));
        bed.expect("heddle_connections_active", &[], 0.0);
        assert_eq!(hold(OTHER, address, SHARE).len(), SHARE);
    }
}

use std::net::TcpListener;

use heddle_telemetry::Registry;
use tokio::net::TcpStream;

use super::*;
use crate::failure::Reason;

/// Opens and gives back as many connections as are allowed, for one of so many Workers. Returns how
/// many could be opened, and how many were kept.
async fn kept(bounds: Bounds, workers: usize) -> (usize, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stats = Registry::new().worker(Reason::CODES, &[]);
    let upstreams = Upstreams::new(bounds, 0, Arc::clone(&stats));
    upstreams.share(workers);
    let endpoint = upstreams.endpoint(&Place::here(address));
    let mut opened = Vec::new();
    while let Some(place) = upstreams.reserve(&endpoint) {
        let stream = TcpStream::connect(address).await.unwrap();
        opened.push(upstreams.opened(&endpoint, place, Side::new(stream)));
    }
    let count = opened.len();
    for upstream in opened {
        upstreams.give_back(&endpoint, upstream, 0);
    }
    let kept = usize::try_from(stats.upstream_connections_idle.get()).unwrap();
    assert_eq!(stats.upstream_connections_active.get(), kept as i64);
    (count, kept)
}

#[tokio::test]
async fn workers_share_what_an_endpoint_may_have() {
    for (connections, idle, workers, expected) in [
        (8, 4, 1, (8, 4)),
        (8, 4, 2, (4, 2)),
        (8, 4, 3, (3, 2)),
        (8, 4, 64, (1, 1)),
        (8, 0, 2, (4, 0)),
        (2, 256, 1, (2, 2)),
    ] {
        let bounds = Bounds {
            connections_per_endpoint: connections,
            idle_per_endpoint: idle,
            ..Bounds::default()
        };
        let found = kept(bounds, workers).await;
        assert_eq!(found, expected, "{connections}, {idle}, {workers} workers");
    }
}

#[tokio::test]
async fn no_endpoint_takes_all_the_room_for_idle_connections() {
    let stats = Registry::new().worker(Reason::CODES, &[]);
    // Room for four.
    let bounds = Bounds {
        connections: 16,
        ..Bounds::default()
    };
    let upstreams = Upstreams::new(bounds, 0, Arc::clone(&stats));
    let listeners: Vec<TcpListener> = (0..4)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    for (listener, expected) in listeners.iter().zip([2, 3, 4, 4]) {
        let address = listener.local_addr().unwrap();
        let endpoint = upstreams.endpoint(&Place::here(address));
        for _ in 0..4 {
            let place = upstreams.reserve(&endpoint).unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            let upstream = upstreams.opened(&endpoint, place, Side::new(stream));
            upstreams.give_back(&endpoint, upstream, 0);
        }
        assert_eq!(stats.upstream_connections_idle.get(), expected);
        assert_eq!(stats.upstream_connections_active.get(), expected);
    }
}

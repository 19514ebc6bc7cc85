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

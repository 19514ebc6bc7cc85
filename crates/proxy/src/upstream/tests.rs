use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime};

use heddle_telemetry::Registry;
use tokio::net::TcpStream;

use heddle_model::Class;

use super::*;
use crate::clock::{Clock, Millis};
use crate::env::WorkKey;
use crate::place::Place;
use crate::side::Side;

/// Opens and gives back as many connections as are allowed, for one of `workers` Workers. Returns how many could be
/// opened, and how many were kept.
async fn kept(bounds: Bounds, workers: usize) -> (usize, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stats = Registry::new().worker(&[]);
    let upstreams = Upstreams::new(bounds, 0, Arc::clone(&stats));
    let limits = LimitShare::of_worker(Class::Online, [workers, 0]);
    upstreams.share(workers, limits);
    let endpoint = upstreams.endpoint(&Place::here(address));
    let mut opened = Vec::new();
    while let Some(place) = upstreams.reserve(&endpoint) {
        let stream = TcpStream::connect(address).await.unwrap();
        opened.push(upstreams.opened(&endpoint, place, Side::new(stream)));
    }
    let count = opened.len();
    for upstream in opened {
        upstreams.give_back(&endpoint, upstream, WorkKey::OWN, 0);
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
    let stats = Registry::new().worker(&[]);
    // Room for four idle connections.
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
            upstreams.give_back(&endpoint, upstream, WorkKey::OWN, 0);
        }
        assert_eq!(stats.upstream_connections_idle.get(), expected);
        assert_eq!(stats.upstream_connections_active.get(), expected);
    }
}

/// Idle connections to one endpoint.
struct KeptSide {
    upstreams: Upstreams,
    endpoint: Rc<Endpoint>,
    listener: TcpListener,
}

impl KeptSide {
    fn new(idle_per_endpoint: usize) -> KeptSide {
        let stats = Registry::new().worker(&[]);
        let bounds = Bounds {
            idle_per_endpoint,
            ..Bounds::default()
        };
        let upstreams = Upstreams::new(bounds, 0, stats);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = upstreams.endpoint(&Place::here(listener.local_addr().unwrap()));
        KeptSide {
            upstreams,
            endpoint,
            listener,
        }
    }

    /// Gives back a new connection that a caller has used. Returns the connection's local port.
    async fn give(&self, caller: u32) -> u16 {
        self.give_at(caller, 0).await
    }

    async fn give_at(&self, caller: u32, now: Millis) -> u16 {
        let address = self.listener.local_addr().unwrap();
        let place = self.upstreams.reserve(&self.endpoint).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let port = stream.local_addr().unwrap().port();
        let upstream = (self.upstreams).opened(&self.endpoint, place, Side::new(stream));
        let caller = WorkKey::of(caller);
        self.upstreams
            .give_back(&self.endpoint, upstream, caller, now);
        port
    }

    /// Takes a connection for a caller. Returns its local port.
    fn take(&self, caller: u32) -> Option<u16> {
        self.take_at(caller, 0)
    }

    fn take_at(&self, caller: u32, now: Millis) -> Option<u16> {
        let asking = Asking {
            key: WorkKey::of(caller),
            account: None,
            may_repeat: true,
        };
        let start = Instant::now();
        let clock = Clock::new(start, SystemTime::UNIX_EPOCH);
        clock.set(start + Duration::from_millis(now));
        let upstream = (self.upstreams).take_idle(&self.endpoint, &asking, &clock)?;
        let socket = upstream.side.socket().unwrap();
        Some(socket.local_addr().unwrap().port())
    }
}

#[tokio::test]
async fn callers_share_no_connection_and_the_one_used_last_goes_first() {
    let kept = KeptSide::new(16);
    let own = [kept.give(1).await, kept.give(1).await];
    let other = kept.give(2).await;
    assert_eq!(kept.take(1), Some(own[1]));
    assert_eq!(kept.take(1), Some(own[0]));
    assert_eq!(kept.take(1), None, "what is left is another caller's");
    assert_eq!(kept.take(2), Some(other));
}

#[tokio::test]
async fn no_caller_takes_more_than_half_of_the_room_from_others() {
    let kept = KeptSide::new(8);
    for _ in 0..8 {
        kept.give(1).await;
    }
    for _ in 0..20 {
        kept.give(2).await;
    }
    let count = |caller| std::iter::from_fn(|| kept.take(caller)).count();
    assert_eq!((count(1), count(2)), (4, 4));
}

#[tokio::test]
async fn an_endpoint_that_spoke_out_of_turn_gets_a_connection_for_each_request_for_a_minute() {
    let [kept, of_another_worker] = [(); 2].map(|()| KeptSide::new(16));
    let spoke = 1_000;
    kept.give_at(1, spoke).await;
    kept.endpoint.spoke_out_of_turn(spoke);
    assert_eq!(kept.take_at(1, spoke + 59_999), None, "one that waited");
    kept.give_at(1, spoke + 59_999).await;
    assert!(kept.endpoint.idle.borrow().is_empty(), "none is kept");
    let port = kept.give_at(1, spoke + 60_000).await;
    assert_eq!(kept.take_at(1, spoke + 60_000), Some(port));
    let port = of_another_worker.give_at(1, spoke).await;
    assert_eq!(of_another_worker.take_at(1, spoke), Some(port));
}

#[test]
fn an_endpoint_that_fails_is_avoided_twice_as_long_each_time_up_to_half_a_minute() {
    let kept = KeptSide::new(4);
    let mut now = 1_000;
    for expected in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
        kept.upstreams.failed(&kept.endpoint, now, &"refused");
        assert_eq!(kept.endpoint.avoided_for(now), expected);
        now += expected;
    }
    kept.upstreams.failed(&kept.endpoint, now, &"refused");
    kept.upstreams.reached(&kept.endpoint);
    assert_eq!(kept.endpoint.avoided_for(now), 0);
    kept.upstreams.failed(&kept.endpoint, now, &"refused");
    assert_eq!(kept.endpoint.avoided_for(now), 500, "it begins anew");
}

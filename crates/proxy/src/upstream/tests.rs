use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
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
    let used = stats.upstream_connections_idle.get();
    let all = if bounds.idle_per_endpoint == 0 {
        0
    } else {
        count as i64
    };
    assert_eq!(used, all, "what was used a moment ago is kept");
    upstreams.sweep(1_000, Instant::now());
    assert_eq!(stats.upstream_connections_idle.get(), all);
    upstreams.sweep(1_001, Instant::now());
    let kept = usize::try_from(stats.upstream_connections_idle.get()).unwrap();
    assert_eq!(stats.upstream_connections_active.get(), kept as i64);
    (count, kept)
}

#[test]
fn the_table_of_endpoints_gives_back_its_room() {
    let stats = Registry::new().worker(&[]);
    let upstreams = Upstreams::new(Bounds::default(), 0, stats);
    let place = |port| Place::here((std::net::Ipv4Addr::LOCALHOST, port).into());
    let used = upstreams.endpoint(&place(1));
    for port in 2..=10_000 {
        upstreams.endpoint(&place(port));
    }
    assert!(upstreams.forget_unused(), "most of them");
    assert!(!upstreams.forget_unused());
    let table = upstreams.by_place.borrow();
    assert_eq!(table.len(), 1);
    assert!(table.capacity() < 100, "{} places", table.capacity());
    assert!(Rc::ptr_eq(&table[&place(1)], &used));
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
        KeptSide::with(Bounds {
            idle_per_endpoint,
            ..Bounds::default()
        })
    }

    fn with(bounds: Bounds) -> KeptSide {
        let stats = Registry::new().worker(&[]);
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
    for turn in 0..28 {
        // Each is idle for longer than a moment when the next one comes.
        kept.give_at(if turn < 8 { 1 } else { 2 }, turn * 2_000)
            .await;
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

/// Polls a turn once.
fn has_turn(upstreams: &Upstreams, turn: &Turn) -> bool {
    let cx = Context::from_waker(Waker::noop());
    upstreams.poll_turn(&cx, turn).is_ready()
}

#[tokio::test]
async fn no_caller_overtakes_those_that_wait() {
    let kept = KeptSide::with(Bounds {
        connections_per_endpoint: 1,
        ..Bounds::default()
    });
    let KeptSide {
        upstreams,
        endpoint,
        ..
    } = &kept;
    assert!(upstreams.has_room(endpoint));
    let only = upstreams.reserve(endpoint).unwrap();
    assert!(!upstreams.has_room(endpoint) && upstreams.load(endpoint, 0).avoid);
    let turns = [(); 3].map(|()| upstreams.wait_for(endpoint).unwrap());
    for turn in &turns {
        assert!(!has_turn(upstreams, turn));
    }
    drop(only);
    // There is room, for the first one only: neither a newcomer nor the others may use it.
    assert!(!upstreams.has_room(endpoint));
    assert!(!has_turn(upstreams, &turns[1]) && has_turn(upstreams, &turns[0]));
    let [first, second, third] = turns;
    drop(second);
    let only = upstreams.reserve(endpoint).unwrap();
    drop(first);
    assert!(!has_turn(upstreams, &third));
    drop(only);
    assert!(has_turn(upstreams, &third));
    drop(third);
    assert!(upstreams.has_room(endpoint));
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn the_first_that_waits_is_woken_by_all_that_makes_room() {
    let kept = KeptSide::with(Bounds {
        connections_per_endpoint: 2,
        ..Bounds::default()
    });
    let KeptSide {
        upstreams,
        endpoint,
        listener,
    } = &kept;
    let all = upstreams.limits.get();
    let half = LimitShare::of_worker(Class::Online, [2, 0]);
    let address = listener.local_addr().unwrap();
    let used = async || {
        let permit = upstreams.reserve(endpoint).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        upstreams.opened(endpoint, permit, Side::new(stream))
    };
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let cx = Context::from_waker(&waker);
    upstreams.share(2, half);
    let first = used().await;
    let turn = upstreams.wait_for(endpoint).unwrap();
    let after = |times: usize, makes_room: &mut dyn FnMut()| {
        assert!(upstreams.poll_turn(&cx, &turn).is_pending());
        makes_room();
        assert_eq!(bell.0.load(Ordering::Relaxed), times);
        assert!(upstreams.poll_turn(&cx, &turn).is_ready());
    };
    after(1, &mut || upstreams.share(1, all));
    let second = used().await;
    let mut first = Some(first);
    after(2, &mut || drop(first.take()));
    let third = used().await;
    let mut second = Some(second);
    after(3, &mut || {
        let upstream = second.take().unwrap();
        upstreams.give_back(endpoint, upstream, WorkKey::OWN, 0);
    });
    drop(third);
}

#[test]
fn no_more_callers_wait_than_the_limit() {
    let kept = KeptSide::new(1);
    let mut turns = Vec::new();
    while let Some(turn) = kept.upstreams.wait_for(&kept.endpoint) {
        assert!(has_turn(&kept.upstreams, &turn) == turns.is_empty());
        turns.push(turn);
    }
    assert_eq!(turns.len(), super::turn::MAX_WAITING);
    let stats = &kept.upstreams.stats;
    assert_eq!(stats.upstream_requests_waiting.get(), turns.len() as i64);
    drop(turns);
    assert_eq!(stats.upstream_requests_waiting.get(), 0);
}

#[tokio::test]
async fn more_connections_than_a_fallen_limit_allows_are_no_room() {
    let kept = KeptSide::with(Bounds {
        connections_per_endpoint: 4,
        ..Bounds::default()
    });
    let (upstreams, endpoint) = (&kept.upstreams, &kept.endpoint);
    let mut used = Vec::from([(); 3].map(|()| upstreams.reserve(endpoint)));
    kept.give(1).await;
    upstreams.share(2, LimitShare::of_worker(Class::Online, [2, 0]));
    // One of four is idle, and two may be open: closing the idle one would not be enough.
    for in_use in [3, 2] {
        assert_eq!(used.len(), in_use);
        assert!(!upstreams.has_room(endpoint));
        used.pop();
    }
    assert!(upstreams.has_room(endpoint));
    assert!(upstreams.reserve(endpoint).is_some());
}

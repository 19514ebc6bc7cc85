//! Several Workers: connections that move between Workers, and a changing number of Workers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Settings;

use crate::support::{
    Bed, Client, GET, PATIENCE, Upstream, connect_from, field, mesh, serve, speaking, wait_until,
    workers,
};

/// Number of this process's Workers, of any proxy, that are pinned to this CPU.
fn kept_on(cpu: usize) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |task: &std::fs::DirEntry, file| {
        // The thread may have ended meanwhile.
        std::fs::read_to_string(task.path().join(file)).unwrap_or_default()
    };
    let workers = tasks.filter(|task| of(task, "comm").starts_with("worker-"));
    let kept = format!("Cpus_allowed_list:\t{cpu}\n");
    workers
        .filter(|task| of(task, "status").contains(&kept))
        .count()
}

/// Workers are pinned to the given CPUs in turn; one Worker more than CPUs goes to the first named CPU again.
#[test]
fn workers_stay_on_the_processors_that_they_are_given() {
    let allowed = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let allowed = field(&allowed, "Cpus_allowed_list").unwrap();
    let cpu = |text: &str| text.parse::<usize>().unwrap();
    let first = cpu(allowed.split(['-', ',']).next().unwrap());
    let last = cpu(allowed.rsplit(['-', ',']).next().unwrap());
    if first == last {
        heddle_skips::skipped("there is one processor, which everything is on");
        return;
    }
    assert_eq!((kept_on(first), kept_on(last)), (0, 0));
    let settings = Settings {
        cpus: vec![last, first],
        ..workers(3, 3)
    };
    let bed = Bed::with(settings, &mesh(&[serve(|_| "ok".into())], None));
    assert_eq!(bed.ask(GET).status(), 200);
    wait_until("Workers are where they were told to be", PATIENCE, || {
        (kept_on(first), kept_on(last)) == (1, 2)
    });
}

#[test]
fn an_idle_connection_moves_and_takes_its_upstream_along() {
    let (upstream, bed) = Bed::scripted_with(workers(2, 2));
    let mut client = bed.client();
    let mut server = None;
    for round in 0..50 {
        client.send(GET);
        let server = server.get_or_insert_with(|| upstream.accept());
        server.head();
        server.answer("ok");
        assert_eq!(client.response().status(), 200);
        rotated(&bed, f64::from(round + 1));
    }
    assert!(
        upstream.is_quiet(),
        "one connection to the endpoint is enough"
    );
    bed.expect("heddle_connections_total", &[], 1.0);
    bed.expect("heddle_connections_active", &[], 1.0);
    bed.expect("heddle_upstream_connections_active", &[], 1.0);
}

#[test]
fn a_connection_on_which_neither_side_has_spoken_moves_and_counts_once() {
    let upstream = Upstream::new();
    let mesh = speaking(AppProtocol::Undeclared, &[upstream.address]);
    let bed = Bed::with(workers(2, 2), &mesh);
    let mut client = bed.client();
    let mut server = upstream.accept();
    for round in 0..3 {
        rotated(&bed, f64::from(round + 1));
    }
    client.send("EHLO me\r\n");
    assert_eq!(server.exact(9), b"EHLO me\r\n");
    assert!(upstream.is_quiet(), "the endpoint was connected once");
    bed.expect("heddle_upstream_connections_total", &[], 1.0);
    bed.expect("heddle_upstream_connections_active", &[], 1.0);
    bed.expect("heddle_connections_total", &[], 1.0);
    bed.expect("heddle_tcp_connections_total", &[], 1.0);
}

/// Timers keep their deadlines: moving does not extend the life of an idle connection.
#[test]
fn a_wait_that_is_too_long_ends_however_often_the_connection_moves() {
    for protocol in [AppProtocol::Http, AppProtocol::Tcp, AppProtocol::Undeclared] {
        // A busy machine may make only few moves within a timeout; then a longer one is tried.
        let limits = [400, 2_000, 5_000].map(Duration::from_millis);
        let mut moves = limits.iter().map(|limit| moves_in_a_wait(protocol, *limit));
        assert!(moves.any(|times| times > 3.0), "{protocol:?} hardly moves");
    }
}

/// How often a connection moves while it waits in vain for `limit`, until it is closed.
fn moves_in_a_wait(protocol: AppProtocol, limit: Duration) -> f64 {
    let upstream = Upstream::new();
    let mesh = speaking(protocol, &[upstream.address]);
    let mut settings = workers(2, 2);
    settings.timeouts.client_idle = limit;
    settings.timeouts.tcp_idle = limit;
    let bed = Bed::with(settings, &mesh);
    let began = turned(&bed);
    let mut client = bed.client();
    let before = bed.metric("heddle_connections_moved_total", &[]);
    let ended = thread::spawn(move || client.rest());
    while !ended.is_finished() {
        assert!(
            began.elapsed() < limit + PATIENCE,
            "{protocol:?} does not end"
        );
        bed.proxy.rotate();
        thread::yield_now();
    }
    assert_eq!(ended.join().unwrap(), b"");
    assert!(began.elapsed() >= limit, "{protocol:?} ended too early");
    bed.metric("heddle_connections_moved_total", &[]) - before
}

/// A time that every Worker's clock has passed: later events are later by each Worker's clock, too. A Worker reads
/// its clock before each piece of work, and may get no CPU for long in between.
fn turned(bed: &Bed) -> Instant {
    let client = bed.client();
    let began = Instant::now();
    let moves = bed.metric("heddle_connections_moved_total", &[]);
    // To the other Worker, back, and to the other again.
    rotated(bed, moves + 3.0);
    drop(client);
    bed.expect("heddle_connections_active", &[], 0.0);
    began
}

#[test]
fn requests_under_way_stay_and_their_connections_move_after_them() {
    let (upstream, bed) = Bed::scripted_with(workers(2, 2));
    let mut client = bed.sending(GET);
    let mut server = upstream.asked();
    bed.proxy.rotate();
    // An idle connection moves at once.
    let idle = bed.client();
    bed.expect("heddle_connections_active", &[], 2.0);
    bed.proxy.rotate();
    moved(&bed, 1.0);
    drop(idle);
    bed.expect("heddle_connections_active", &[], 1.0);
    let before = bed.metric("heddle_connections_moved_total", &[]);
    server.answer("ok");
    assert_eq!(client.response().status(), 200);
    moved(&bed, before + 1.0);
}

/// Lets connections move until they have moved `times` times. The order is repeated, since a connection that is
/// between two Workers misses it.
fn rotated(bed: &Bed, times: f64) {
    let patience = Instant::now() + PATIENCE;
    let moved = || bed.metric("heddle_connections_moved_total", &[]);
    while moved() < times {
        assert!(Instant::now() < patience, "{} of {times} moves", moved());
        bed.proxy.rotate();
        let again = Instant::now() + Duration::from_millis(100);
        while moved() < times && Instant::now() < again {
            thread::yield_now();
        }
    }
}

/// Waits until connections have moved this many times.
fn moved(bed: &Bed, times: f64) {
    let patience = Instant::now() + PATIENCE;
    while bed.metric("heddle_connections_moved_total", &[]) < times {
        assert!(Instant::now() < patience, "it did not move {times} times");
        thread::yield_now();
    }
}

#[test]
fn a_stream_is_moved_while_it_flows_and_no_byte_is_lost() {
    const SIZE: u64 = 256 << 20;
    stream_through_moves(SIZE, 200);
}

/// Long: run by `make soak`.
#[test]
#[ignore = "takes minutes"]
fn ten_gigabytes_pass_while_the_stream_is_moved_a_thousand_times() {
    stream_through_moves(10 << 30, 1_000);
}

/// Sends `size` bytes both ways while the connection is moved at least `moves` times.
fn stream_through_moves(size: u64, moves: u32) {
    let upstream = Upstream::new();
    let mesh = speaking(AppProtocol::Tcp, &[upstream.address]);
    let bed = Bed::with(workers(3, 3), &mesh);
    let client = bed.client().stream;
    let server = upstream.accept().stream;
    // Bytes that the sender may have sent: in proportion to the moves, and some ahead.
    let allowed = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (allowed, done) = (&allowed, &done);
            scope.spawn(move || send_numbers(from, size, allowed));
            scope.spawn(move || {
                expect_numbers(to, size);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        while done.load(Ordering::Relaxed) < 2 {
            bed.proxy.rotate();
            let moved = bed.metric("heddle_connections_moved_total", &[]) as u64;
            let part = size / u64::from(moves);
            allowed.store((moved + 2) * part, Ordering::Relaxed);
            thread::yield_now();
        }
    });
    moved(&bed, f64::from(moves - 3));
    bed.expect("heddle_tcp_received_bytes_total", &[], size as f64);
    bed.expect("heddle_tcp_sent_bytes_total", &[], size as f64);
    bed.expect("heddle_tcp_connections_total", &[], 1.0);
}

/// Sends a stream in which every eight bytes hold their own position.
fn send_numbers(mut to: &std::net::TcpStream, size: u64, allowed: &AtomicU64) {
    let mut block = Vec::with_capacity(64 << 10);
    let mut at = 0;
    while at < size {
        while at > allowed.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        block.clear();
        while block.len() < 64 << 10 && at < size {
            block.extend_from_slice(&at.to_le_bytes());
            at += 8;
        }
        to.write_all(&block).unwrap();
    }
}

fn expect_numbers(mut from: &std::net::TcpStream, size: u64) {
    let mut block = vec![0; 64 << 10];
    let mut at = 0;
    while at < size {
        let want = block.len().min(usize::try_from(size - at).unwrap());
        from.read_exact(&mut block[..want]).unwrap();
        for number in block[..want].chunks_exact(8) {
            assert_eq!(u64::from_le_bytes(number.try_into().unwrap()), at);
            at += 8;
        }
    }
}

/// A moving flow may hold more than the new Worker has blocks for.
#[test]
fn flows_that_move_to_a_worker_without_blocks_are_whole() {
    const SIZE: u64 = 4 << 20;
    let upstream = Upstream::new();
    let mesh = speaking(AppProtocol::Tcp, &[upstream.address]);
    let mut settings = workers(2, 2);
    // 16 blocks of 8 KiB and two of 64 KiB for each Worker.
    settings.bounds.blocks = 32;
    let bed = Bed::with(settings, &mesh);
    bed.expect("heddle_workers_active", &[], 2.0);
    let pairs: Vec<_> = (0..8)
        .map(|_| (bed.client().stream, upstream.accept().stream))
        .collect();
    thread::scope(|scope| {
        for (_, server) in &pairs {
            let allowed = AtomicU64::new(SIZE);
            scope.spawn(move || {
                send_numbers(server, SIZE, &allowed);
                server.shutdown(Shutdown::Write).unwrap();
            });
        }
        // The clients do not read meanwhile.
        for round in 1..=20 {
            rotated(&bed, f64::from(round * 8));
        }
        for (client, _) in &pairs {
            scope.spawn(move || expect_numbers(client, SIZE));
        }
    });
    assert_eq!(bed.metric("heddle_requests_rejected_total", &[]), 0.0);
}

/// Clients that send request after request until `stop` is set.
fn browse(bed: &Bed, clients: usize, stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<Client>> {
    (0..clients)
        .map(|_| {
            let (mut client, stop) = (bed.client(), Arc::clone(stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.ask(GET).status(), 200);
                }
                client
            })
        })
        .collect()
}

#[test]
fn workers_come_with_the_load_and_go_with_it_while_connections_stay() {
    let bed = Bed::with(workers(1, 2), &mesh(&[serve(|_| "ok".into())], None));
    for cycle in 0..2 {
        let patience = Instant::now() + 2 * PATIENCE;
        let stop = Arc::new(AtomicBool::new(false));
        let clients = browse(&bed, 16, &stop);
        while bed.metric("heddle_workers_active", &[]) < 2.0 {
            assert!(Instant::now() < patience, "cycle {cycle}: no second worker");
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        let clients: Vec<Client> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        bed.expect("heddle_workers_active", &[], 1.0);
        // No client has to disconnect, and all of them are still served.
        while bed.proxy.status().workers.len() > 1 {
            assert!(Instant::now() < patience, "cycle {cycle}: it did not end");
            thread::yield_now();
        }
        bed.expect("heddle_connections_active", &[], 16.0);
        // An ended Worker no longer reports a configuration.
        bed.expect("heddle_worker_config_generation", &[], 1.0);
        for mut client in clients {
            assert_eq!(client.ask(GET).status(), 200);
        }
    }
    assert!(bed.metric("heddle_workers_retired_total", &[]) >= 2.0);
    assert_eq!(bed.metric("heddle_workers_died_total", &[]), 0.0);
}

#[test]
fn the_bound_of_connections_holds_for_all_workers_together() {
    const BOUND: usize = 20;
    let mut settings = workers(4, 4);
    settings.bounds.connections = BOUND;
    let bed = Bed::with(settings, &mesh(&[serve(|_| "ok".into())], None));
    bed.expect("heddle_workers_active", &[], 4.0);
    // All at once, so that some wait for a Worker while others are counted; from many addresses, since each has only
    // a share.
    let clients: Vec<TcpStream> = (1..=100)
        .filter_map(|last| connect_from([127, 0, 2, last].into(), bed.address).ok())
        .collect();
    let refused = || bed.metric("heddle_connections_refused_total", &[]);
    let patience = Instant::now() + PATIENCE;
    while refused() < (clients.len() - BOUND) as f64 {
        assert!(Instant::now() < patience, "{} were refused", refused());
        bed.proxy.rotate();
        thread::yield_now();
    }
    bed.expect("heddle_connections_active", &[], BOUND as f64);
    drop(clients);
    bed.expect("heddle_connections_active", &[], 0.0);
    assert_eq!(bed.ask(GET).status(), 200);
}

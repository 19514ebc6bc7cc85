//! One client connects and resets as fast as it can, while others send requests.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Bounds;

use crate::support::PATIENCE;
use crate::{FLOODER, OTHER, alone, bed, connect_from, queue, reset, serve};

/// Threads of the other clients: enough that a slow request does not delay the next one.
const ASKERS: u32 = 40;
/// Threads of the flooder: a connect to a full accept queue takes a second.
const FLOODERS: u32 = 4;
/// Latency that the scheduler of a busy machine may cause even without a flood.
const SOON: Duration = Duration::from_millis(2);

/// Outcome of the other clients' requests.
#[derive(Debug, Default)]
struct Asked {
    took: Vec<Duration>,
    failed: usize,
}

impl Asked {
    fn p99(&self) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = took.len() * 99 / 100;
        took.get(at).copied().unwrap_or_default()
    }
}

/// Connects and resets `rate` times a second until `stop` is set; returns how often.
fn flood(to: SocketAddr, rate: u32, stop: &AtomicBool) -> u64 {
    let began = Instant::now();
    let mut done = 0;
    while !stop.load(Relaxed) {
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while done < due && !stop.load(Relaxed) {
            if let Ok(stream) = connect_from(FLOODER, to) {
                reset(stream);
            }
            done += 1;
        }
        thread::park_timeout(Duration::from_micros(200));
    }
    done
}

/// Sends `rate` requests a second, each over its own connection, as one of several clients that start one after the
/// other. The latency of a request counts from its planned time, even if the one before delayed it.
fn ask(to: SocketAddr, rate: u32, turn: u32, lasts: Duration) -> Asked {
    let began = Instant::now() + Duration::from_secs(1) * turn / (rate * ASKERS);
    let mut asked = Asked::default();
    for number in 0.. {
        let due = began + Duration::from_secs(1) * number / rate;
        if due >= began + lasts {
            break;
        }
        while Instant::now() < due {
            thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        match one(to) {
            Ok(()) => asked.took.push(due.elapsed()),
            Err(_) => asked.failed += 1,
        }
    }
    asked
}

fn one(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = connect_from(OTHER, to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: echo.test\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Requests of others to `to` during a flood of `flooded`; also returns the flood's actual rate per second.
fn beside(flooded: SocketAddr, to: SocketAddr, rate: u32, lasts: Duration) -> (Asked, f64) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let began = Instant::now();
        let flooders: Vec<_> = (0..FLOODERS)
            .map(|_| scope.spawn(|| flood(flooded, rate / FLOODERS, &stop)))
            .collect();
        let askers: Vec<_> = (0..ASKERS)
            .map(|number| scope.spawn(move || ask(to, 200 / ASKERS, number, lasts)))
            .collect();
        let mut all = Asked::default();
        for asker in askers {
            let one = asker.join().unwrap();
            all.took.extend(one.took);
            all.failed += one.failed;
        }
        stop.store(true, Relaxed);
        let done: u64 = flooders.into_iter().map(|one| one.join().unwrap()).sum();
        (all, done as f64 / began.elapsed().as_secs_f64())
    })
}

/// A listener that accepts and closes at once.
fn bare() -> SocketAddr {
    let (socket, address) = queue();
    thread::spawn(move || while socket.accept().is_ok() {});
    address
}

/// Number of accept queue overflows on the whole machine.
fn overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut named = names.split(' ').zip(values.split(' '));
    let found = named.find(|(name, _)| *name == "ListenOverflows");
    found.unwrap().1.parse().unwrap()
}

/// Floods the proxy and a bare listener in turns, for the same time in total, and compares the latency of other
/// clients.
fn compare(workers: usize, protocol: AppProtocol, rate: u32, lasts: Duration) {
    const ROUNDS: u32 = 6;
    let bed = bed(workers, protocol, Bounds::default());
    let (queue, address) = queue();
    serve(&bed, queue, None);
    let bare = bare();
    let (idle, _) = beside(bare, address, 0, lasts / ROUNDS);
    let [mut beside_bare, mut beside_own] = [(); 2].map(|()| (Asked::default(), 0.0));
    let before = overflows();
    for _ in 0..ROUNDS {
        for (flooded, (asked, rates)) in [(bare, &mut beside_bare), (address, &mut beside_own)] {
            let (now, rate) = beside(flooded, address, rate, lasts / ROUNDS);
            asked.took.extend(now.took);
            asked.failed += now.failed;
            *rates += rate / f64::from(ROUNDS);
        }
    }
    let says = |(asked, rate): &(Asked, f64)| {
        let all = asked.took.len() + asked.failed;
        let p99 = asked.p99();
        format!(
            "{all} asked, {} failed, p99 {p99:?} beside {rate:.0}/s",
            asked.failed
        )
    };
    let count = |name: &str| bed.metric(&format!("heddle_connections_{name}_total"), &[]);
    println!(
        "{workers} workers, {protocol:?}: {}; of a bare listener: {}; no flood: p99 {:?}; refused {}, abandoned {}, \
         queues overflowed {}",
        says(&beside_own),
        says(&beside_bare),
        idle.p99(),
        count("refused"),
        count("abandoned"),
        overflows() - before,
    );
    assert_eq!(beside_own.0.failed, 0);
    let (own, bare) = (beside_own.0.p99(), beside_bare.0.p99());
    assert!(
        own <= 2 * bare.max(SOON),
        "{own:?}, and {bare:?} beside a bare listener"
    );
}

#[test]
#[ignore = "two minutes: `make soak`"]
fn a_flood_of_connections_that_are_reset_costs_others_nothing() {
    let _alone = alone();
    for workers in [1, 2] {
        for protocol in [AppProtocol::Http, AppProtocol::Undeclared] {
            compare(workers, protocol, 10_000, Duration::from_secs(12));
        }
    }
}

//! Memory after a flood of connections has gone.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Bounds;
use heddle_telemetry::process::Probe;

use crate::support::allow_descriptors;
use crate::{alone, bed, connect_from, queue, serve};

const MIB: u64 = 1024 * 1024;
/// Connections from each source address, far fewer than its share.
const EACH: usize = 250;
/// Timeout until the memory of a flood is freed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that has sent half a request head, so that the proxy holds a block for it.
fn client(number: usize, to: SocketAddr) -> TcpStream {
    let last = u8::try_from(1 + number / EACH).unwrap();
    let mut stream = connect_from(IpAddr::from([127, 0, 1, last]), to).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ech").unwrap();
    stream
}

fn expect(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// Opens `count` connections, closes 99 of 100, and expects that at most `left` bytes of their memory stay allocated.
fn flood(workers: usize, count: usize, left: u64) {
    allow_descriptors();
    let bounds = Bounds {
        connections: 20_000,
        ..Bounds::default()
    };
    let bed = bed(workers, AppProtocol::Http, bounds);
    let (queue, address) = queue();
    serve(&bed, queue, None);
    // The first connection allocates everything that is allocated only once.
    let mut first = client(0, address);
    first
        .write_all(b"o.test\r\nConnection: close\r\n\r\n")
        .unwrap();
    first.read_to_end(&mut Vec::new()).unwrap();

    let resident = || Probe::open().read().resident_bytes.unwrap();
    let before = resident();
    let held: Vec<TcpStream> = (0..count).map(|number| client(number, address)).collect();
    expect("all are there", || {
        bed.metric("heddle_buffer_blocks_active", &[]) >= count as f64
    });
    let at_most = resident();
    let took = at_most.saturating_sub(before);
    let survivors: Vec<TcpStream> = held.into_iter().step_by(100).collect();
    let gone = Instant::now();
    expect("what they took is given back", || {
        resident() <= before + left
    });
    println!(
        "{workers} workers: {count} connections took {} MiB, of which {} KiB are left after {:.1} s",
        took / MIB,
        resident().saturating_sub(before) / 1024,
        gone.elapsed().as_secs_f64()
    );
    assert!(took > 2 * left, "it was a flood: {took}");
    drop(survivors);
}

#[test]
fn what_a_flood_took_is_given_back() {
    let _alone = alone();
    flood(1, 2_000, 5 * MIB);
}

#[test]
#[ignore = "half a minute: `make soak`"]
fn what_floods_of_nine_thousand_took_is_given_back() {
    let _alone = alone();
    for workers in [1, 2] {
        flood(workers, 9_000, 10 * MIB);
    }
}

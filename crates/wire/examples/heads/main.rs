//! The size of heads on a link, compared with HTTP/2, in bytes; and the time to encode and decode them.
//! `cargo run --release -p heddle-wire --example heads`

use std::hint::black_box;
use std::time::Instant;

use heddle_wire::link::heads::{Decoder, Encoder, HeadLimits};

mod hpack;
mod traffic;

use hpack::Hpack;
use traffic::{DESTINATION, Exchange, KINDS, MAKERS, Maker, Traffic};

/// Exchanges before the measurement, and exchanges in it.
const WARM: u64 = 20;
const COUNTED: u64 = 200;

/// The head of a link's frame, and the length of the block in it. One frame carries block and body.
const LINK_FRAME: usize = 8 + 1;
/// The frame heads of HEADERS and DATA (RFC 9113 section 4.1).
const HTTP2_FRAMES: usize = 9 + 9;

fn main() {
    println!("bytes for each exchange, after {WARM}; request + response");
    println!(
        "                       blocks of a link   HPACK at best   with frames: link / HTTP/2"
    );
    for (name, make) in MAKERS {
        for (kind, traffic) in KINDS {
            bytes(&format!("{name}, {kind}"), *make, *traffic);
        }
    }
    println!("\nnanoseconds, the best of many rounds: encode, decode, together");
    for (name, make) in MAKERS {
        for (kind, traffic) in KINDS {
            let requests: Vec<_> = (0..256).map(|n| make(*traffic, n).request).collect();
            time(&format!("{name}, {kind}, request"), &requests, DESTINATION);
            let responses: Vec<_> = (0..256).map(|n| make(*traffic, n).response).collect();
            time(&format!("{name}, {kind}, response"), &responses, b"");
        }
    }
}

fn bytes(name: &str, make: Maker, traffic: Traffic) {
    let mut link = [(); 2].map(|()| Encoder::new(&HeadLimits::DEFAULT));
    let mut http2 = [(); 2].map(|()| Hpack::default());
    let mut on_link = [0; 2];
    let mut in_http2 = [0; 2];
    for number in 0..WARM + COUNTED {
        let Exchange { request, response } = make(traffic, number);
        for (way, head) in [request, response].iter().enumerate() {
            let destination = if way == 0 { DESTINATION } else { b"" };
            let mut block = Vec::new();
            link[way].encode(1, destination, head, &mut block);
            let compressed = http2[way].count(head);
            if number >= WARM {
                on_link[way] += block.len();
                in_http2[way] += compressed;
            }
        }
    }
    let each = |sum: usize| sum as f64 / COUNTED as f64;
    let sum = |ways: [usize; 2]| each(ways[0] + ways[1]);
    let whole = sum(on_link) + 2.0 * LINK_FRAME as f64;
    let whole_http2 = sum(in_http2) + 2.0 * HTTP2_FRAMES as f64;
    println!(
        "{name:20}  {:4.1} + {:4.1} = {:4.1}  {:4.1} + {:4.1} = {:5.1}   {whole:5.1} / {whole_http2:5.1} = {:.2}",
        each(on_link[0]),
        each(on_link[1]),
        sum(on_link),
        each(in_http2[0]),
        each(in_http2[1]),
        sum(in_http2),
        whole / whole_http2
    );
}

fn time(name: &str, heads: &[Vec<u8>], destination: &[u8]) {
    let mut encoder = Encoder::new(&HeadLimits::DEFAULT);
    let mut decoder = Decoder::new(&HeadLimits::DEFAULT);
    let mut blocks = vec![Vec::new(); heads.len()];
    let mut out = Vec::with_capacity(4096);
    let mut best = [f64::INFINITY; 2];
    for _ in 0..400 {
        let started = Instant::now();
        for (head, block) in heads.iter().zip(&mut blocks) {
            block.clear();
            encoder.encode(1, black_box(destination), black_box(head), block);
        }
        let encoded = Instant::now();
        for block in &blocks {
            out.clear();
            let decoded = decoder.decode(black_box(block), &mut out);
            assert!(black_box(decoded).is_ok(), "what was encoded");
        }
        let spent = [encoded - started, encoded.elapsed()];
        for (best, spent) in best.iter_mut().zip(spent) {
            *best = best.min(spent.as_nanos() as f64 / heads.len() as f64);
        }
    }
    let [encode, decode] = best;
    println!(
        "{name:28} {encode:6.0} {decode:6.0} {:6.0}",
        encode + decode
    );
}

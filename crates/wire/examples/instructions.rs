//! The cost of the codec and the buffers, in instructions and in time.
//!
//! ```text
//! instructions --list          the operations
//! instructions OPERATION N     does one of them N times: what scripts/instructions.sh counts
//! instructions --time          nanoseconds for each, the best of many rounds
//! ```
//!
//! Instruction counts are the same in every run, so they are kept in `crates/wire/instructions.txt` and compared. Times
//! are only a rough indication.

use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut};
use std::time::Instant;

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::http1::{
    BodyTracker, Edits, Framing, Limits, Method, RequestHead, ResponseHead, authority, path,
};
use heddle_wire::link::heads::{Decoder, Encoder, HeadLimits};

#[path = "heads/traffic.rs"]
mod traffic;

#[path = "link/ends.rs"]
mod ends;

use ends::Ends;
use traffic::{DESTINATION, MAKERS, Traffic};

/// 500 bytes, 12 fields, as from a browser.
const REQUEST: &[u8] = b"GET /reviews/7?details=full&lang=en HTTP/1.1\r\n\
Host: reviews.bookstore.example:8080\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
Accept: text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8\r\n\
Accept-Language: en-GB,en;q=0.5\r\n\
Accept-Encoding: gzip, br\r\n\
Connection: keep-alive\r\n\
Referer: http://shop.example/\r\n\
Cookie: session=4f9c2b7e61d84a0c\r\n\
Cache-Control: no-cache\r\n\
X-Request-Id: 7d3b0a51-1c52-4be0-93a\r\n\
X-Forwarded-For: 10.11.12.13\r\n\
TE: trailers\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Date: Mon, 06 Jul 2026 10:11:12 GMT\r\n\
Server: reviews/2\r\n\
Content-Type: application/json; charset=utf-8\r\n\
Content-Length: 128\r\n\
Cache-Control: max-age=60\r\n\
ETag: \"5f2b-61d84a0c\"\r\n\
Vary: Accept-Encoding\r\n\
Connection: keep-alive\r\n\r\n";

/// Bytes that each buffer operation moves through a chain.
const MOVED_BYTES: usize = 64 * 1024;

/// The data of all operations, prepared once.
struct Bench {
    limits: Limits,
    request: RequestHead,
    request_bytes: usize,
    response: ResponseHead,
    edits: Edits,
    out: Vec<u8>,
    text: Vec<u8>,
    chunked: Vec<u8>,
    small_chunks: Vec<u8>,
    data: Vec<u8>,
    pools: Vec<Pool>,
    chain: Chain,
    /// Heads that repeat, heads that change, and responses to them.
    links: [Link; 3],
    /// Two ends of a link.
    ends: Ends,
}

/// The heads of a link and their blocks, with both ends warmed up.
struct Link {
    destination: &'static [u8],
    heads: Vec<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
    encoder: Encoder,
    decoder: Decoder,
    next: usize,
}

impl Link {
    fn new(destination: &'static [u8], heads: Vec<Vec<u8>>) -> Self {
        let limits = HeadLimits::DEFAULT;
        let mut link = Self {
            destination,
            blocks: vec![Vec::new(); heads.len()],
            heads,
            encoder: Encoder::new(&limits),
            decoder: Decoder::new(&limits),
            next: 0,
        };
        let mut out = Vec::new();
        for _ in 0..2 * link.heads.len() {
            link.encode();
            out.clear();
            link.decode(&mut out);
            link.next += 1;
        }
        link
    }

    fn encode(&mut self) {
        let at = self.next % self.heads.len();
        self.blocks[at].clear();
        let head = black_box(&self.heads[at]);
        let block = &mut self.blocks[at];
        self.encoder.encode(1, self.destination, head, block);
    }

    fn decode(&mut self, out: &mut Vec<u8>) {
        let at = self.next % self.heads.len();
        let decoded = self.decoder.decode(black_box(&self.blocks[at]), out);
        assert!(black_box(decoded).is_ok(), "what was encoded");
    }
}

type Operation = fn(&mut Bench);

const OPERATIONS: &[(&str, Operation)] = &[
    ("request_parse", request_parse),
    ("request_edit", request_edit),
    ("request_write", request_write),
    ("path_and_authority", path_and_authority),
    ("response_parse", response_parse),
    ("response_edit_and_write", response_edit_and_write),
    ("link_head_encode_constant", |bench| encode(bench, 0)),
    ("link_head_decode_constant", |bench| decode(bench, 0)),
    ("link_head_encode_changing", |bench| encode(bench, 1)),
    ("link_head_decode_changing", |bench| decode(bench, 1)),
    ("link_head_of_response_both", |bench| {
        encode(bench, 2);
        bench.links[2].next -= 1;
        decode(bench, 2);
    }),
    ("link_head_define_both", define),
    ("link_exchange_at_both_ends", link_exchange),
    ("chunked_body_of_16_x_4096_bytes", |bench| {
        track(Framing::Chunked, &bench.chunked);
    }),
    ("chunked_body_of_16_x_16_bytes", |bench| {
        track(Framing::Chunked, &bench.small_chunks);
    }),
    ("length_body_of_65536_bytes", |bench| {
        track(Framing::Length(65536), &bench.data);
    }),
    ("chain_of_500_bytes", |bench| {
        through_chain(bench, 3, 500);
    }),
    ("chain_of_65536_bytes_in_blocks_of_64", |bench| {
        through_chain(bench, 0, MOVED_BYTES);
    }),
    ("chain_of_65536_bytes_in_blocks_of_1024", |bench| {
        through_chain(bench, 1, MOVED_BYTES);
    }),
    ("chain_of_65536_bytes_in_blocks_of_4096", |bench| {
        through_chain(bench, 2, MOVED_BYTES);
    }),
    ("chain_of_65536_bytes_in_blocks_of_8192", |bench| {
        through_chain(bench, 3, MOVED_BYTES);
    }),
    ("chain_of_65536_bytes_in_blocks_of_16384", |bench| {
        through_chain(bench, 4, MOVED_BYTES);
    }),
    ("chain_of_65536_bytes_in_blocks_of_32768", |bench| {
        through_chain(bench, 5, MOVED_BYTES);
    }),
];

const BLOCK_SIZES: [usize; 6] = [64, 1024, 4096, 8192, 16384, 32768];

fn request_parse(bench: &mut Bench) {
    let length = bench.request.parse(black_box(REQUEST), &bench.limits);
    bench.request_bytes = length.ok().flatten().expect("a whole head");
    black_box(&bench.request);
}

fn request_edit(bench: &mut Bench) {
    let Bench { request, edits, .. } = bench;
    edits.clear();
    request.strip_hop_by_hop(REQUEST, edits);
    for field in request
        .fields
        .iter()
        .filter(|field| field.kind.is_forwarding())
    {
        edits.cut(field.line);
    }
    edits.replace(request.path, b"/v2/reviews/7");
    edits.append(b"X-Forwarded-For", b"10.0.0.1");
    edits.append(b"X-Forwarded-Proto", b"http");
    black_box(&edits);
}

fn request_write(bench: &mut Bench) {
    bench.out.clear();
    bench
        .edits
        .write_to(black_box(&REQUEST[..bench.request_bytes]), &mut bench.out);
    black_box(&bench.out);
}

fn path_and_authority(bench: &mut Bench) {
    let path = black_box(&b"/reviews/7/of/some/book"[..]);
    black_box(path::canonicalise(path, &mut bench.out, true)).expect("canonical");
    let host = black_box(&b"reviews.bookstore.example:8080"[..]);
    black_box(authority::canonicalise(host, 80, &mut bench.text)).expect("canonical");
}

fn response_parse(bench: &mut Bench) {
    let length = bench
        .response
        .parse(black_box(RESPONSE), &bench.limits, Method::Get);
    assert!(length.is_ok_and(|length| length.is_some()), "a whole head");
    black_box(&bench.response);
}

fn response_edit_and_write(bench: &mut Bench) {
    bench.edits.clear();
    bench.response.strip_hop_by_hop(RESPONSE, &mut bench.edits);
    bench.out.clear();
    bench.edits.write_to(black_box(RESPONSE), &mut bench.out);
    black_box(&bench.out);
}

fn encode(bench: &mut Bench, link: usize) {
    bench.links[link].encode();
    bench.links[link].next += 1;
}

fn decode(bench: &mut Bench, link: usize) {
    bench.out.clear();
    bench.links[link].decode(&mut bench.out);
    bench.links[link].next += 1;
}

/// A small request and its response through two ends of a link, between their owners.
fn link_exchange(bench: &mut Bench) {
    let (request, response) = (black_box(REQUEST), black_box(RESPONSE));
    bench.ends.exchange(request, response, &[b'x'; 128]);
}

/// The first head on a new link.
fn define(bench: &mut Bench) {
    let Bench { links, out, .. } = bench;
    let limits = HeadLimits::DEFAULT;
    out.clear();
    Encoder::new(&limits).encode(1, DESTINATION, black_box(&links[1].heads[0]), out);
    let block = out.len();
    let mut head = Vec::with_capacity(1024);
    let mut decoder = Decoder::new(&limits);
    let decoded = decoder.decode(black_box(&out[..block]), &mut head);
    assert!(black_box(decoded).is_ok(), "what was encoded");
}

/// Tracks a body that arrives in reads of 16 KiB.
fn track(framing: Framing, body: &[u8]) {
    let mut tracker = BodyTracker::from_framing(framing);
    for piece in body.chunks(16 * 1024) {
        black_box(tracker.advance(black_box(piece))).expect("a sound body");
    }
    assert!(tracker.is_done(), "a whole body");
}

/// Reads `bytes` into a chain, at most 16 blocks or 16 KiB at a time as with `readv` but without the copy, and writes
/// them out.
fn through_chain(bench: &mut Bench, pool: usize, bytes: usize) {
    let Bench { chain, pools, .. } = bench;
    let read_bytes = (16 * BLOCK_SIZES[pool]).min(16 * 1024);
    let mut left = bytes;
    while left > 0 {
        let room = chain
            .reserve(&pools[pool], left.min(read_bytes))
            .min(left)
            .min(read_bytes);
        let mut slots = [(); 16].map(|()| IoSliceMut::new(&mut []));
        black_box(chain.spare_slices(&mut slots));
        chain.commit(room);
        left -= room;
    }
    while !chain.is_empty() {
        let mut slots = [IoSlice::new(&[]); 16];
        let count = black_box(&*chain).slices(&mut slots);
        let bytes = slots[..count].iter().map(|slot| slot.len()).sum();
        chain.consume(bytes);
    }
    chain.release_spare();
}

fn chunked_body(chunk: &[u8], times: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..times {
        body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

fn main() {
    assert_eq!(REQUEST.len(), 500);
    let mut bench = Bench {
        limits: Limits::DEFAULT,
        request: RequestHead::new(),
        request_bytes: 0,
        response: ResponseHead::new(),
        edits: Edits::new(),
        out: Vec::new(),
        text: Vec::new(),
        chunked: chunked_body(&[b'x'; 4096], 16),
        small_chunks: chunked_body(&[b'x'; 16], 16),
        data: vec![b'x'; MOVED_BYTES],
        pools: BLOCK_SIZES.map(|size| Pool::new(size, 2048)).to_vec(),
        chain: Chain::new(),
        links: links(),
        ends: Ends::new(),
    };
    request_parse(&mut bench);
    request_edit(&mut bench);
    response_parse(&mut bench);

    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [list] if list == "--list" => {
            for (name, _) in OPERATIONS {
                println!("{name}");
            }
        }
        [time] if time == "--time" => {
            for (name, operation) in OPERATIONS {
                println!("{:>10.1} ns  {name}", nanoseconds(*operation, &mut bench));
            }
        }
        [name, times] => {
            let known = OPERATIONS.iter().find(|(known, _)| known == name);
            let (_, operation) = known.expect("an operation of --list");
            for _ in 0..times.parse().expect("a number of times") {
                operation(&mut bench);
            }
        }
        _ => eprintln!("usage: instructions --list | --time | OPERATION N"),
    }
}

fn links() -> [Link; 3] {
    let (_, browser) = MAKERS[0];
    let requests = |traffic, n| (0..n).map(|n| browser(traffic, n).request).collect();
    let responses = (0..64).map(|n| browser(Traffic::Changing, n).response);
    [
        Link::new(DESTINATION, requests(Traffic::Constant, 1)),
        Link::new(DESTINATION, requests(Traffic::Changing, 64)),
        Link::new(b"", responses.collect()),
    ]
}

/// The best of 200 rounds of 500: the time without disturbance.
fn nanoseconds(operation: Operation, bench: &mut Bench) -> f64 {
    const TIMES: u32 = 500;
    let round = |bench: &mut Bench| {
        let started = Instant::now();
        for _ in 0..TIMES {
            operation(bench);
        }
        started.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    (0..200).map(|_| round(bench)).fold(f64::INFINITY, f64::min)
}

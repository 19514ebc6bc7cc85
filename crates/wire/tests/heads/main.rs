//! Header blocks: their size on the wire, and the memory of their two ends.

use heddle_counting::{Counting, Heap};
use heddle_wire::link::heads::{Decoder, Encoder, HeadLimits};

#[path = "../../examples/heads/traffic.rs"]
mod traffic;

use traffic::{DESTINATION, Exchange, MAKERS, Maker, Traffic};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Both directions of a link.
struct Link {
    ends: [(Encoder, Decoder); 2],
    block: Vec<u8>,
    head: Vec<u8>,
}

impl Link {
    fn new(limits: &HeadLimits) -> Self {
        Self {
            ends: [(); 2].map(|()| (Encoder::new(limits), Decoder::new(limits))),
            block: Vec::with_capacity(4096),
            head: Vec::with_capacity(4096),
        }
    }

    /// Sends an exchange across, and returns the size of its two blocks.
    fn carry(&mut self, exchange: &Exchange) -> usize {
        let mut bytes = 0;
        let heads = [(DESTINATION, &exchange.request), (b"", &exchange.response)];
        for ((encoder, decoder), (destination, head)) in self.ends.iter_mut().zip(heads) {
            self.block.clear();
            self.head.clear();
            encoder.encode(1, destination, head, &mut self.block);
            let decoded = decoder.decode(&self.block, &mut self.head);
            assert!(decoded.is_ok_and(|decoded| decoded.destination == destination));
            assert!(self.head == *head);
            bytes += self.block.len();
        }
        bytes
    }
}

/// Average size of an exchange's blocks, in bytes, after a warm-up.
fn block_bytes(make: Maker, traffic: Traffic) -> f64 {
    let mut link = Link::new(&HeadLimits::DEFAULT);
    for number in 0..10 {
        link.carry(&make(traffic, number));
    }
    let counted = 10..210;
    let sum: usize = counted.map(|n| link.carry(&make(traffic, n))).sum();
    sum as f64 / 200.0
}

#[test]
fn what_comes_again_takes_two_bytes_and_one_for_the_date() {
    for (name, make) in MAKERS {
        let bytes = block_bytes(*make, Traffic::Constant);
        assert!(bytes <= 3.0, "{name}: {bytes}");
    }
}

#[test]
fn what_changes_takes_what_it_is_and_little_more() {
    // A trace, an id twice, ten digits, a length, a date: 25 + 2 × 16 + 5 + 1 + 1 = 64 bytes, and one byte each for the
    // trace and the ids, which says that they differ from the previous ones.
    for (name, make) in MAKERS {
        let bytes = block_bytes(*make, Traffic::Changing);
        assert!(bytes <= 72.0, "{name}: {bytes}");
    }
}

#[test]
fn heads_that_came_before_allocate_nothing() {
    for (_, make) in MAKERS {
        for traffic in [Traffic::Constant, Traffic::Changing] {
            let mut link = Link::new(&HeadLimits::DEFAULT);
            let exchanges: Vec<_> = (0..2000).map(|n| make(traffic, n)).collect();
            for exchange in &exchanges[..100] {
                link.carry(exchange);
            }
            let before = Heap::of_thread().allocations;
            for exchange in &exchanges[100..] {
                link.carry(exchange);
            }
            assert_eq!(Heap::of_thread().allocations - before, 0);
        }
    }
}

#[test]
fn a_pair_that_was_never_used_takes_next_to_nothing() {
    let before = Heap::of_thread().bytes;
    let pair = (
        Encoder::new(&HeadLimits::DEFAULT),
        Decoder::new(&HeadLimits::DEFAULT),
    );
    assert_eq!(Heap::of_thread().bytes, before);
    assert!(size_of_val(&pair) <= 100, "{}", size_of_val(&pair));
}

#[test]
fn tables_take_what_they_cost_and_what_is_dropped_is_given_back() {
    let limits = HeadLimits {
        all_bytes: 100_000,
        ..HeadLimits::DEFAULT
    };
    let mut encoder = Encoder::new(&limits);
    let mut decoder = Decoder::new(&limits);
    let (mut block, mut head) = (Vec::with_capacity(65536), Vec::with_capacity(65536));
    let before = Heap::of_thread().bytes;
    let mut send = |encoder: &mut Encoder, decoder: &mut Decoder, request: &str| {
        block.clear();
        head.clear();
        encoder.encode(1, b"somewhere", request.as_bytes(), &mut block);
        decoder.decode(&block, &mut head).expect("a block");
        assert_eq!(head, request.as_bytes());
    };
    for n in 0..3000 {
        let name = "x".repeat(1 + n % 300);
        // Each template has its own name, and remembers values.
        for value in 0..4 {
            let (a, b) = (
                format!("{n}-{value}").repeat(9),
                format!("v {value}").repeat(n % 20),
            );
            let request = format!("GET / HTTP/1.1\r\n{name}: {a}\r\nb: {b}\r\n\r\n");
            send(&mut encoder, &mut decoder, &request);
        }
    }
    assert!(decoder.bytes() <= limits.all_bytes && decoder.bytes() > limits.all_bytes / 2);
    let live = Heap::of_thread().bytes - before;
    let most = i64::from(limits.all_bytes) * 5 / 2;
    assert!(live <= most, "{live} bytes for both ends");

    for _ in 0..3 {
        encoder.age();
        send(&mut encoder, &mut decoder, "GET / HTTP/1.1\r\na: b\r\n\r\n");
    }
    assert_eq!((encoder.templates(), decoder.templates()), (1, 1));
    let live = Heap::of_thread().bytes - before;
    assert!(live < 15_000, "{live} bytes for both ends");
}

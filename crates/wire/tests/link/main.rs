//! Links: allocations for streams, and memory of idle sessions.

#[path = "../../examples/link/ends.rs"]
mod ends;

use ends::Ends;
use heddle_counting::{Counting, Heap};
use heddle_wire::link::session::Session;

#[global_allocator]
static COUNTING: Counting = Counting;

const REQUEST: &[u8] = b"GET /reviews/7 HTTP/1.1\r\nHost: reviews\r\nAccept: */*\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 128\r\n\r\n";

fn allocations(what: impl FnOnce()) -> u64 {
    let before = Heap::of_thread().allocations;
    what();
    Heap::of_thread().allocations - before
}

#[test]
fn exchanges_and_flows_allocate_nothing_once_buffers_have_grown() {
    let mut ends = Ends::new();
    for _ in 0..1000 {
        ends.exchange(REQUEST, RESPONSE, &[7; 128]);
    }
    let exchanges = allocations(|| {
        for _ in 0..10_000 {
            ends.exchange(REQUEST, RESPONSE, &[7; 128]);
        }
    });
    assert_eq!(exchanges, 0);
    let flow = ends.flow();
    let bytes = vec![7; 200_000];
    for _ in 0..20 {
        ends.carry(flow, &bytes);
    }
    let carried = allocations(|| {
        for _ in 0..100 {
            ends.carry(flow, &bytes);
        }
    });
    assert_eq!(carried, 0);
}

#[test]
fn an_idle_session_keeps_next_to_nothing() {
    let mut ends = Ends::new();
    for _ in 0..1000 {
        ends.exchange(REQUEST, RESPONSE, &[7; 128]);
    }
    ends.wait(500);
    ends.wait(1000);
    assert_eq!(ends.heap_bytes(), [0, 0]);
    // Header templates are on the heap, and have their own limits.
    assert!(
        size_of::<Session>() < 1024 + 512,
        "{}",
        size_of::<Session>()
    );
}

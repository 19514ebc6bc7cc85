//! Links: what streams cost the allocator, and what idle sessions keep.
#![allow(unsafe_code, reason = "a global allocator can only be written with it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[path = "../../examples/link/ends.rs"]
mod ends;

use ends::Ends;
use heddle_wire::link::session::Session;

struct Counting;

thread_local! {
    /// Of this thread, so that tests beside each other are not counted together.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed to the system's allocator as it came, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` got it there.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const REQUEST: &[u8] = b"GET /reviews/7 HTTP/1.1\r\nHost: reviews\r\nAccept: */*\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 128\r\n\r\n";

fn allocations(what: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    what();
    ALLOCATIONS.with(Cell::get) - before
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
    // Templates of heads are on the heap, and have their own bounds.
    assert!(
        size_of::<Session>() < 1024 + 512,
        "{}",
        size_of::<Session>()
    );
}

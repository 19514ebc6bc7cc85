//! Streams that wait to be opened until the other end of a link has acknowledged enough, first come first served.
//!
//! ```text
//!   no room, or others wait ──▶ waiting ──▶ the first, and there is room ──▶ opened ──┐
//!                                  └── gone, or nothing is opened any more ──────────┴──▶ the next is called
//! ```
//!
//! Only the first stream is woken, and wakes the next one after its turn: no stream is overtaken, and if a thousand
//! wait, only one of them checks for room.

use std::collections::VecDeque;
use std::task::Waker;

#[derive(Debug, Default)]
pub(super) struct OpenQueue(VecDeque<WaitingStream>);

#[derive(Debug)]
struct WaitingStream {
    /// The slot that its stream will use.
    slot: usize,
    waker: Waker,
}

impl OpenQueue {
    /// Whether another stream is first.
    pub(super) fn has_before(&self, slot: usize) -> bool {
        self.0.front().is_some_and(|first| first.slot != slot)
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Joins the end of the queue, or keeps its place in it.
    pub(super) fn wait(&mut self, slot: usize, waker: &Waker) {
        match self.0.iter_mut().find(|waiter| waiter.slot == slot) {
            Some(known) => known.waker.clone_from(waker),
            None => {
                let waker = waker.clone();
                self.0.push_back(WaitingStream { slot, waker });
            }
        }
    }

    /// Leaves the queue. Returns whether another stream is first because of that.
    pub(super) fn leave(&mut self, slot: usize) -> bool {
        let Some(at) = self.0.iter().position(|waiter| waiter.slot == slot) else {
            return false;
        };
        self.0.remove(at);
        at == 0 && !self.0.is_empty()
    }

    /// Wakes the first stream to check for room.
    pub(super) fn call(&self) {
        if let Some(first) = self.0.front() {
            first.waker.wake_by_ref();
        }
    }

    /// Wakes all streams, because none can be opened any more.
    pub(super) fn dismiss(&mut self) {
        self.0.drain(..).for_each(|waiter| waiter.waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_stream_that_came_first_is_called_first_and_alone() {
        let bells: [Arc<CountingWaker>; 3] = Default::default();
        let wakers = bells.each_ref().map(|bell| Waker::from(Arc::clone(bell)));
        let rung = || bells.each_ref().map(|bell| bell.0.load(Ordering::Relaxed));
        let mut line = OpenQueue::default();
        assert!(!line.has_before(7), "no stream waits");
        for (slot, waker) in [7, 3, 5].into_iter().zip(&wakers) {
            line.wait(slot, waker);
        }
        // A stream that checks in vain keeps its place.
        line.wait(7, &wakers[0]);
        assert!(!line.has_before(7) && line.has_before(3) && line.has_before(9));
        line.call();
        assert_eq!(rung(), [1, 0, 0]);
        // If one in the middle leaves, nothing changes for the others; if the first leaves, the next one is first.
        assert!(!line.leave(3) && !line.leave(3));
        assert!(line.leave(7));
        line.call();
        assert_eq!(rung(), [1, 0, 1]);
        assert!(!line.leave(5), "no stream is left");
        line.wait(3, &wakers[1]);
        line.wait(5, &wakers[2]);
        line.dismiss();
        assert_eq!(rung(), [1, 1, 2]);
        assert!(!line.has_before(9));
    }
}

//! A queue of tasks that wait for room, first come first served: of streams that wait until a link may open another one,
//! and of requests that wait until an endpoint may have another connection.
//!
//! ```text
//!   no room, or others wait ──▶ waiting ──▶ the first, and there is room ──▶ served ──┐
//!                                  └── gone, or there will be no room any more ──────┴──▶ the next is called
//! ```
//!
//! Only the first task is woken, and wakes the next one after its turn: no task is overtaken, and if a thousand wait,
//! only one of them checks for room.

use std::collections::VecDeque;
use std::task::Waker;

#[derive(Debug, Default)]
pub(crate) struct WaitQueue(VecDeque<Waiter>);

#[derive(Debug)]
struct Waiter {
    /// Its number, which no other task in the queue has.
    id: usize,
    waker: Waker,
}

impl WaitQueue {
    /// Whether another task is first.
    pub(crate) fn has_before(&self, id: usize) -> bool {
        self.0.front().is_some_and(|first| first.id != id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Joins the end of the queue, or keeps its place in it.
    pub(crate) fn wait(&mut self, id: usize, waker: &Waker) {
        match self.0.iter_mut().find(|waiter| waiter.id == id) {
            Some(known) => known.waker.clone_from(waker),
            None => {
                let waker = waker.clone();
                self.0.push_back(Waiter { id, waker });
            }
        }
    }

    /// Leaves the queue. Returns whether another task is first because of that.
    pub(crate) fn leave(&mut self, id: usize) -> bool {
        let Some(at) = self.0.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        self.0.remove(at);
        at == 0 && !self.0.is_empty()
    }

    /// Wakes the first task to check for room.
    pub(crate) fn call(&self) {
        if let Some(first) = self.0.front() {
            first.waker.wake_by_ref();
        }
    }

    /// Wakes all tasks, because there will be no room any more.
    pub(crate) fn dismiss(&mut self) {
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
    fn the_task_that_came_first_is_called_first_and_alone() {
        let bells: [Arc<CountingWaker>; 3] = Default::default();
        let wakers = bells.each_ref().map(|bell| Waker::from(Arc::clone(bell)));
        let rung = || bells.each_ref().map(|bell| bell.0.load(Ordering::Relaxed));
        let mut queue = WaitQueue::default();
        assert!(!queue.has_before(7), "no task waits");
        for (id, waker) in [7, 3, 5].into_iter().zip(&wakers) {
            queue.wait(id, waker);
        }
        // A task that checks in vain keeps its place.
        queue.wait(7, &wakers[0]);
        assert!(!queue.has_before(7) && queue.has_before(3) && queue.has_before(9));
        queue.call();
        assert_eq!(rung(), [1, 0, 0]);
        // If one in the middle leaves, nothing changes for the others; if the first leaves, the next one is first.
        assert!(!queue.leave(3) && !queue.leave(3));
        assert!(queue.leave(7));
        queue.call();
        assert_eq!(rung(), [1, 0, 1]);
        assert!(!queue.leave(5), "no task is left");
        queue.wait(3, &wakers[1]);
        queue.wait(5, &wakers[2]);
        queue.dismiss();
        assert_eq!(rung(), [1, 1, 2]);
        assert!(!queue.has_before(9));
    }
}

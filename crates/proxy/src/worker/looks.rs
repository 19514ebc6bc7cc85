//! Counts the polls of a Worker's event loop. After a poll, everything that arrived on sockets before it is known,
//! without a system call for each socket.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Number of polls; it wraps, so it can only be compared for equality.
    count: Cell<u32>,
    waiting: RefCell<Vec<Waker>>,
}

impl Looks {
    /// Called after each poll of the sockets: wakes the tasks that wait for it.
    pub(super) fn begin(&self) {
        self.count.set(self.count.get().wrapping_add(1));
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Whether a task waits for the next poll, which must not be delayed then.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Waits for the next poll of the sockets.
    pub(crate) async fn next(&self) {
        let before = self.count.get();
        poll_fn(|cx| self.poll_after(before, cx)).await;
    }

    fn poll_after(&self, before: u32, cx: &Context<'_>) -> Poll<()> {
        if self.count.get() != before {
            return Poll::Ready(());
        }
        self.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_on_at_the_next_look_and_not_before() {
        let looks = Looks::default();
        let cx = Context::from_waker(Waker::noop());
        let before = looks.count.get();
        for _ in 0..3 {
            assert!(looks.poll_after(before, &cx).is_pending());
        }
        assert!(looks.is_awaited());
        looks.begin();
        assert!(!looks.is_awaited());
        assert!(looks.poll_after(before, &cx).is_ready());
    }
}

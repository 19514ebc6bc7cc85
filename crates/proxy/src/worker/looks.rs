//! A Worker's looks at its sockets: what came before one is known, without a system call for each socket.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// How many there were, which is only good for being compared.
    count: Cell<u32>,
    waiting: RefCell<Vec<Waker>>,
}

impl Looks {
    /// The sockets have been looked at: tasks that have waited for that go on.
    pub(super) fn begin(&self) {
        self.count.set(self.count.get().wrapping_add(1));
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Whether a task waits for the next one, which must not be put off then.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Waits for the next one.
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

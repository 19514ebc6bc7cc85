//! Limits the rate of handshakes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Handshake steps between two polls of the sockets. One step takes a few hundred microseconds, during which all other
/// work waits.
const STEPS: u32 = 2;

/// Decides which handshake takes its next step. First come, first served.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    left: Cell<u32>,
    waiting: RefCell<VecDeque<Waker>>,
}

impl Pace {
    /// Starts a new turn of the Worker. Returns whether a handshake has to wait for the next one.
    pub(crate) fn begin_turn(&self) -> bool {
        self.left.set(STEPS);
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return false;
        }
        let next = waiting.len().min(STEPS as usize);
        waiting.drain(..next).for_each(Waker::wake);
        !waiting.is_empty()
    }

    /// Waits for a turn with a step left, and takes it.
    pub(crate) fn poll_step(&self, cx: &Context<'_>) -> Poll<()> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Poll::Ready(())
            }
            None => {
                self.waiting.borrow_mut().push_back(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_so_many_steps_and_those_who_waited_go_first() {
        let pace = Pace::default();
        let cx = Context::from_waker(Waker::noop());
        assert!(!pace.begin_turn());
        for turn in 0..3 {
            for _ in 0..STEPS {
                assert!(pace.poll_step(&cx).is_ready(), "turn {turn}");
            }
            assert!(pace.poll_step(&cx).is_pending(), "turn {turn}");
            assert!(!pace.begin_turn(), "one waited, and was woken");
        }
        for _ in 0..=2 * STEPS {
            let _waits = pace.poll_step(&cx);
        }
        assert!(pace.begin_turn(), "one more waited than a turn has steps");
        assert!(!pace.begin_turn());
    }
}

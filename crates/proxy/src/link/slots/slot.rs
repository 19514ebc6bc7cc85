//! One stream of a link as its end sees it: its receive buffer and its state.

use std::mem;
use std::task::Waker;

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::link::{LinkLimits, Serial};

use crate::failure::StreamFailure;
use crate::io::{SideError, SideResult};
use crate::link::hold::Held;

/// Bytes after which a stream's window may grow for the first time.
const HALF_WINDOW: usize = LinkLimits::INITIAL.stream_window as usize / 2;

/// A place for a stream, or for several one after the other.
#[derive(Debug)]
pub(super) struct Slot {
    /// The present stream; `None` before it is opened, and between two streams.
    pub(super) serial: Option<Serial>,
    /// The destination that it serves, at the called end.
    pub(super) destination: Option<u32>,
    /// Received bytes that were not read yet.
    pub(super) inbox: Chain,
    pub(super) held: Held,
    /// Bytes of `inbox` that are heads, which do not count against a window.
    pub(super) heads: usize,
    /// Bytes of the stream that were read, up to the point where its window may grow.
    pub(super) taken: usize,
    /// One byte that was read but not credited to the session: a window with uncredited bytes does not grow.
    pub(super) kept_back: usize,
    /// The other end has sent everything.
    pub(super) has_come: bool,
    /// This end has sent everything.
    pub(super) was_sent: bool,
    /// It has received a stream of which nothing was read yet.
    pub(super) is_fresh: bool,
    /// The request was answered, at least with an interim response.
    pub(super) answered: bool,
    pub(super) failure: Option<StreamFailure>,
    /// The other end receives nothing more, although everything that it sent has arrived.
    pub(super) deaf: Option<StreamFailure>,
    pub(super) waker: Option<Waker>,
    /// No task uses it any more: it stays until the other end has ended.
    pub(super) detached: bool,
    /// It takes another stream of the same destination when its stream is over.
    pub(super) goes_on: bool,
    pub(super) is_waiting: bool,
    /// It waits to be opened until the link is up, and may use another endpoint until then.
    pub(super) is_linking: bool,
}

impl Slot {
    pub(super) fn new(inbox: Chain, held: Held) -> Self {
        Slot {
            serial: None,
            destination: None,
            inbox,
            held,
            heads: 0,
            taken: 0,
            kept_back: 0,
            has_come: false,
            was_sent: false,
            is_fresh: false,
            answered: false,
            failure: None,
            deaf: None,
            waker: None,
            detached: false,
            goes_on: false,
            is_waiting: false,
            is_linking: false,
        }
    }

    /// Whether this end has to open it and has not yet.
    pub(super) fn is_unopened(&self) -> bool {
        self.serial.is_none()
            && self.destination.is_none()
            && !self.has_come
            && self.failure.is_none()
    }

    /// Whether there is room for bytes of a body.
    pub(super) fn has_room(&self, bytes: &[u8]) -> bool {
        self.detached || bytes.len() <= self.inbox.room() || self.held.may_take()
    }

    /// How many bytes to credit to the session after reading `bytes`.
    pub(super) fn passed_on(&mut self, bytes: usize) -> usize {
        let all = bytes + mem::take(&mut self.kept_back);
        self.taken = self.taken.saturating_add(bytes);
        let may_grow = self.taken < HALF_WINDOW || self.held.may_grow();
        if all > 0 && self.inbox.is_empty() && !may_grow {
            self.kept_back = 1;
        }
        all - self.kept_back
    }

    pub(super) fn clear(&mut self) {
        self.inbox.clear();
        self.held.set(self.inbox.blocks());
        self.held.grows_no_more();
    }

    pub(super) fn put(&mut self, pool: &Pool, bytes: &[u8]) -> SideResult<()> {
        if self.detached {
            return Ok(());
        }
        let kept = self.inbox.extend_from_slice(pool, bytes);
        self.held.set(self.inbox.blocks());
        self.wake();
        kept.map_err(|_| SideError::Memory)
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

//! The receive state of a link's streams, and the tasks that wait for it.

use std::collections::HashMap;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};

use foldhash::fast::RandomState;
use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::link::Serial;
use heddle_wire::link::heads::NO_SCOPE;
use slab::Slab;

use super::hold::Hold;
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::io::{SideError, SideResult};

mod failing;
mod slot;

use failing::Failing;
use slot::Slot;

/// Limit of Collaborators per link that wait for another stream of the same destination.
const MAX_WAITING: usize = 64;
/// Limit of empty chains that are kept for reuse.
const MAX_SPARE: usize = 64;

/// All streams of one end of a link.
#[derive(Debug)]
pub(super) struct Slots {
    /// The account of the buffers of these streams and of the caller's other links.
    hold: Rc<Hold>,
    all: Slab<Slot>,
    by_serial: HashMap<Serial, usize, RandomState>,
    /// Slots that wait for another stream, by their destination.
    waiting: HashMap<u32, Vec<usize>, RandomState>,
    waiting_count: usize,
    /// Empty chains with capacity for blocks, so that a stream for each request allocates nothing.
    spare: Vec<Chain>,
}

/// The result of reading a stream.
pub(super) struct TakenBytes {
    pub(super) bytes: usize,
    /// Those of `bytes` that count against the stream's window.
    pub(super) data: usize,
    pub(super) serial: Option<Serial>,
}

/// A stream whose slot was given up before the stream was over.
pub(super) struct Left {
    pub(super) serial: Serial,
    /// The other end has sent everything.
    pub(super) has_come: bool,
    /// Nothing of it was read.
    pub(super) is_fresh: bool,
}

impl Slots {
    pub(super) fn new(hold: Rc<Hold>) -> Self {
        Slots {
            hold,
            all: Slab::new(),
            by_serial: HashMap::default(),
            waiting: HashMap::default(),
            waiting_count: 0,
            spare: Vec::new(),
        }
    }

    /// Allocates a slot for a stream that will be opened.
    pub(super) fn vacant(&mut self) -> usize {
        let inbox = self.spare.pop().unwrap_or_default();
        self.all.insert(Slot::new(inbox, self.hold.share()))
    }

    /// Keeps an empty chain for reuse.
    pub(super) fn recycle(&mut self, mut chain: Chain) {
        if self.spare.len() < MAX_SPARE {
            chain.clear();
            self.spare.push(chain);
        }
    }

    /// Releases memory that is kept for future streams.
    pub(super) fn trim(&mut self) {
        if self.all.is_empty() {
            *self = Slots::new(Rc::clone(&self.hold));
        }
    }

    /// Assigns a slot to a stream that the other end has opened. `None`: a slot that waited for it took it.
    pub(super) fn welcome(&mut self, serial: Serial, destination: Option<u32>) -> Option<usize> {
        let waiting = destination.and_then(|id| self.waiting.get_mut(&id)?.pop());
        let slot = waiting.unwrap_or_else(|| self.vacant());
        if waiting.is_some() {
            self.waiting_count -= 1;
        }
        let entry = &mut self.all[slot];
        entry.is_waiting = false;
        entry.goes_on = false;
        entry.answered = false;
        entry.is_fresh = destination.is_some();
        entry.destination = destination;
        self.opened(slot, serial);
        waiting.is_none().then_some(slot)
    }

    /// Records that the slot's stream is open.
    pub(super) fn opened(&mut self, slot: usize, serial: Serial) {
        let entry = &mut self.all[slot];
        entry.serial = Some(serial);
        entry.taken = 0;
        entry.kept_back = 0;
        entry.held.grows_no_more();
        self.by_serial.insert(serial, slot);
    }

    /// Whether one of the open streams still needs service. A stream that was answered completely only waits for its
    /// end.
    pub(super) fn serve(&self) -> bool {
        let open = self.by_serial.values();
        let mut open = open.filter_map(|&slot| self.all.get(slot));
        open.any(|slot| !(slot.detached || slot.answered && slot.was_sent))
    }

    fn of(&mut self, serial: Serial) -> Option<&mut Slot> {
        let slot = *self.by_serial.get(&serial)?;
        self.all.get_mut(slot)
    }

    /// The template scope of answers.
    pub(super) fn scope(&self, slot: usize) -> u32 {
        self.all[slot].destination.unwrap_or(NO_SCOPE)
    }

    pub(super) fn serial(&self, slot: usize) -> Option<Serial> {
        self.all[slot].serial
    }

    /// Why the slot cannot be written to.
    pub(super) fn failure(&self, slot: usize) -> Option<StreamFailure> {
        self.all[slot].failure.or(self.all[slot].deaf)
    }

    /// Whether a head was sent in answer to the request, after which anything may follow.
    pub(super) fn is_answered(&self, slot: usize) -> bool {
        self.all[slot].answered
    }

    pub(super) fn answered(&mut self, slot: usize) {
        self.all[slot].answered = true;
    }

    /// The same, for a stream. It is not known of an opaque stream: false.
    pub(super) fn was_answered(&self, serial: Serial) -> bool {
        let slot = self.by_serial.get(&serial);
        slot.is_some_and(|&slot| self.all[slot].answered)
    }

    pub(super) fn is_between_streams(&self, slot: usize) -> bool {
        let slot = &self.all[slot];
        slot.serial.is_none() && slot.goes_on
    }

    /// Whether a request has arrived of which nothing was read yet.
    pub(super) fn is_fresh(&self, slot: usize) -> bool {
        self.all[slot].is_fresh
    }

    pub(super) fn is_silent(&self, slot: usize) -> bool {
        let slot = &self.all[slot];
        slot.inbox.is_empty() && !slot.has_come && slot.failure.is_none()
    }

    /// Has the task woken when something arrives for the slot, or when it can send again.
    pub(super) fn wakes(&mut self, slot: usize, cx: &Context<'_>) {
        let waker = &mut self.all[slot].waker;
        match waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// Moves received bytes to the end of `inbox`, at most about `want`: blocks stay whole.
    pub(super) fn take(
        &mut self,
        index: usize,
        inbox: &mut Chain,
        want: usize,
        cx: &Context<'_>,
    ) -> Poll<Result<TakenBytes, StreamFailure>> {
        let slot = &mut self.all[index];
        slot.is_fresh = false;
        if !slot.inbox.is_empty() {
            let want = slot.held.at_once(want.max(1));
            let bytes = slot.inbox.len().min(want);
            match inbox.is_empty() && bytes == slot.inbox.len() {
                true => mem::swap(inbox, &mut slot.inbox),
                false => slot.inbox.move_to(bytes, inbox),
            }
            slot.held.set(slot.inbox.blocks());
            let heads = slot.heads.min(bytes);
            slot.heads -= heads;
            let (data, serial) = (slot.passed_on(bytes - heads), slot.serial);
            return Poll::Ready(Ok(TakenBytes {
                bytes,
                data,
                serial,
            }));
        }
        if let Some(failure) = slot.failure {
            return Poll::Ready(Err(failure));
        }
        let no_more = match (slot.serial, slot.goes_on) {
            (None, true) => !self.wait(index),
            _ => slot.has_come,
        };
        // A stream can still be reset after its end.
        self.wakes(index, cx);
        if no_more {
            return Poll::Ready(Ok(TakenBytes {
                bytes: 0,
                data: 0,
                serial: None,
            }));
        }
        Poll::Pending
    }

    /// Registers a slot as waiting for another stream. False if enough slots wait.
    fn wait(&mut self, index: usize) -> bool {
        let slot = &mut self.all[index];
        let Some(destination) = slot.destination else {
            return false;
        };
        if slot.is_waiting {
            return true;
        }
        if self.waiting_count >= MAX_WAITING {
            return false;
        }
        slot.is_waiting = true;
        self.waiting_count += 1;
        self.waiting.entry(destination).or_default().push(index);
        true
    }

    /// Receives a head.
    ///
    /// # Errors
    /// When no block is left for it.
    pub(super) fn head(&mut self, serial: Serial, pool: &Pool, head: &[u8]) -> SideResult<()> {
        let Some(slot) = self.of(serial) else {
            return Ok(());
        };
        // Heads do not count against a window. The first one is always accepted, because nothing can be served without
        // it; further ones that are not read are limited like bodies.
        if slot.heads > 0 && !slot.has_room(head) {
            return Err(SideError::Memory);
        }
        slot.heads += head.len();
        slot.put(pool, head)
    }

    /// Receives bytes of a body or of an opaque stream.
    ///
    /// # Errors
    /// When no block is left, or the caller holds its share of them.
    pub(super) fn data(&mut self, serial: Serial, pool: &Pool, bytes: &[u8]) -> SideResult<()> {
        match self.of(serial) {
            Some(slot) if slot.has_room(bytes) => slot.put(pool, bytes),
            Some(_) => Err(SideError::Memory),
            None => Ok(()),
        }
    }

    /// Records that the other end has sent everything.
    pub(super) fn ended(&mut self, serial: Serial) {
        let Some(&index) = self.by_serial.get(&serial) else {
            return;
        };
        let slot = &mut self.all[index];
        slot.has_come = true;
        slot.wake();
        self.settle(index);
    }

    /// Wakes the task: the stream has room to send more.
    pub(super) fn writable(&mut self, serial: Serial) {
        if let Some(slot) = self.of(serial) {
            slot.wake();
        }
    }

    /// The slot takes another stream of the same destination when this one is over. A slot without this, because its
    /// task gives up the rest of a request or carries another protocol by now, only sees the end of its stream.
    pub(super) fn goes_on(&mut self, index: usize) {
        let slot = &mut self.all[index];
        slot.goes_on = slot.destination.is_some();
    }

    /// Records that this end has sent everything. Returns the stream whose end is to be sent.
    pub(super) fn end(&mut self, index: usize) -> Option<Serial> {
        let slot = &mut self.all[index];
        let serial = slot.serial?;
        if mem::replace(&mut slot.was_sent, true) {
            return None;
        }
        self.settle(index);
        Some(serial)
    }

    /// Releases a stream once both ends have ended, and frees its slot for the next stream if the slot goes on.
    fn settle(&mut self, index: usize) {
        let slot = &mut self.all[index];
        if !(slot.has_come && slot.was_sent) {
            return;
        }
        if let Some(serial) = slot.serial {
            self.by_serial.remove(&serial);
        }
        if slot.detached {
            self.all.remove(index);
        } else if slot.goes_on {
            slot.serial = None;
            slot.was_sent = false;
            slot.has_come = false;
        } else {
            slot.serial = None;
        }
    }

    /// Detaches the task from a slot whose stream this end has ended; the slot stays until the other end has ended,
    /// too.
    pub(super) fn detach(&mut self, index: usize) {
        let slot = &mut self.all[index];
        if slot.was_sent && !slot.has_come && slot.serial.is_some() {
            slot.detached = true;
            slot.clear();
            slot.waker = None;
        }
    }

    /// Removes a slot, unless it is detached. Returns its stream if that is not over.
    pub(super) fn remove(&mut self, index: usize) -> Option<Left> {
        let slot = self.all.get(index)?;
        if slot.detached {
            return None;
        }
        let slot = self.all.remove(index);
        if slot.is_waiting
            && let Some(waiting) = slot.destination.and_then(|id| self.waiting.get_mut(&id))
        {
            waiting.retain(|&other| other != index);
            self.waiting_count -= 1;
        }
        // The last slot of a destination also removes the destination's entry, once none waits.
        if let Some(id) = slot.destination
            && self.waiting.get(&id).is_some_and(Vec::is_empty)
        {
            self.waiting.remove(&id);
        }
        let serial = slot.serial?;
        self.by_serial.remove(&serial)?;
        Some(Left {
            serial,
            has_come: slot.has_come,
            is_fresh: slot.is_fresh,
        })
    }

    /// Releases all slots that wait for another stream: they see the end.
    pub(super) fn dismiss(&mut self) {
        for index in mem::take(&mut self.waiting).into_values().flatten() {
            let slot = &mut self.all[index];
            slot.is_waiting = false;
            slot.goes_on = false;
            slot.destination = None;
            slot.has_come = true;
            slot.wake();
        }
        self.waiting_count = 0;
    }

    /// Whether a slot waits for another stream.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    /// Receives the streams that fail together with their link: with `reason`, or with the code of their reset.
    pub(super) fn failing(&mut self, reason: Reason) -> Failing<'_> {
        Failing {
            slots: self,
            reason,
        }
    }
}

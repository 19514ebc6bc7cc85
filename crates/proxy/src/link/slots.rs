//! What has come for the streams of a link, and the tasks that wait for it.

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

/// Collaborators that wait for another stream of the same destination, at most so many for each link.
const MAX_WAITING: usize = 64;
/// Chains that are kept.
const MAX_SPARE: usize = 64;

/// All streams of one end of a link.
#[derive(Debug)]
pub(super) struct Slots {
    /// What they hold together, with those of the caller's other links.
    hold: Rc<Hold>,
    all: Slab<Slot>,
    by_serial: HashMap<Serial, usize, RandomState>,
    /// Those that wait for another stream, by its destination.
    waiting: HashMap<u32, Vec<usize>, RandomState>,
    waiting_count: usize,
    /// Empty chains that have room for blocks: a stream for each request allocates nothing.
    spare: Vec<Chain>,
}

/// What was taken.
pub(super) struct TakenBytes {
    pub(super) bytes: usize,
    /// Of them, those that count against the stream's window.
    pub(super) data: usize,
    pub(super) serial: Option<Serial>,
}

/// A stream that was let go of before it was over.
pub(super) struct Left {
    pub(super) serial: Serial,
    /// The other end has sent everything.
    pub(super) has_come: bool,
    /// Nothing of it was looked at.
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

    /// A slot for a stream that will be opened.
    pub(super) fn vacant(&mut self) -> usize {
        let inbox = self.spare.pop().unwrap_or_default();
        self.all.insert(Slot::new(inbox, self.hold.share()))
    }

    /// Keeps a chain for another stream.
    pub(super) fn recycle(&mut self, mut chain: Chain) {
        if self.spare.len() < MAX_SPARE {
            chain.clear();
            self.spare.push(chain);
        }
    }

    /// Lets go of what is kept for streams to come.
    pub(super) fn trim(&mut self) {
        if self.all.is_empty() {
            *self = Slots::new(Rc::clone(&self.hold));
        }
    }

    /// A slot for a stream that the other end has opened. `None`: one that waited for it has it now.
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

    /// The slot's stream is open.
    pub(super) fn opened(&mut self, slot: usize, serial: Serial) {
        let entry = &mut self.all[slot];
        entry.serial = Some(serial);
        entry.taken = 0;
        entry.kept_back = 0;
        entry.held.grows_no_more();
        self.by_serial.insert(serial, slot);
    }

    /// Whether anything is to be done for one of the streams that are open. Of one that was answered only its end is
    /// waited for.
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

    /// Why nothing can be written.
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

    /// The same of a stream; of one of bytes it is not known.
    pub(super) fn was_answered(&self, serial: Serial) -> bool {
        let slot = self.by_serial.get(&serial);
        slot.is_some_and(|&slot| self.all[slot].answered)
    }

    pub(super) fn is_between_streams(&self, slot: usize) -> bool {
        let slot = &self.all[slot];
        slot.serial.is_none() && slot.goes_on
    }

    /// Whether a request has come of which nothing was taken yet.
    pub(super) fn is_fresh(&self, slot: usize) -> bool {
        self.all[slot].is_fresh
    }

    pub(super) fn is_silent(&self, slot: usize) -> bool {
        let slot = &self.all[slot];
        slot.inbox.is_empty() && !slot.has_come && slot.failure.is_none()
    }

    /// Has the task woken when something comes for the slot, or goes again.
    pub(super) fn wakes(&mut self, slot: usize, cx: &Context<'_>) {
        let waker = &mut self.all[slot].waker;
        match waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// Moves what has come to the end of `inbox`, at most about `want` bytes: blocks stay whole.
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
        // Even after its end a stream can be given up.
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

    /// Files a slot among those that wait for another stream. False if there are enough.
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

    /// A head has come.
    ///
    /// # Errors
    /// When no block is left for it.
    pub(super) fn head(&mut self, serial: Serial, pool: &Pool, head: &[u8]) -> SideResult<()> {
        let Some(slot) = self.of(serial) else {
            return Ok(());
        };
        // No window counts heads, and nothing can be served without the first; further ones that nothing takes are
        // held like bodies.
        if slot.heads > 0 && !slot.has_room(head) {
            return Err(SideError::Memory);
        }
        slot.heads += head.len();
        slot.put(pool, head)
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// The same.
    pub(super) fn data(&mut self, serial: Serial, pool: &Pool, bytes: &[u8]) -> SideResult<()> {
        match self.of(serial) {
            Some(slot) if slot.has_room(bytes) => slot.put(pool, bytes),
            Some(_) => Err(SideError::Memory),
            None => Ok(()),
        }
    }

    /// The other end has sent everything.
    pub(super) fn ended(&mut self, serial: Serial) {
        let Some(&index) = self.by_serial.get(&serial) else {
            return;
        };
        let slot = &mut self.all[index];
        slot.has_come = true;
        slot.wake();
        self.settle(index);
    }

    /// There is room for more.
    pub(super) fn writable(&mut self, serial: Serial) {
        if let Some(slot) = self.of(serial) {
            slot.wake();
        }
    }

    /// The slot takes another stream of the same destination when this one is over. One that does not say so, since
    /// it gives up what is left of a request or carries something else by now, is told only that its own has ended.
    pub(super) fn goes_on(&mut self, index: usize) {
        let slot = &mut self.all[index];
        slot.goes_on = slot.destination.is_some();
    }

    /// This end has sent everything. Returns which stream that is to be said of.
    pub(super) fn end(&mut self, index: usize) -> Option<Serial> {
        let slot = &mut self.all[index];
        let serial = slot.serial?;
        if mem::replace(&mut slot.was_sent, true) {
            return None;
        }
        self.settle(index);
        Some(serial)
    }

    /// Lets go of a stream when both ends have ended, and makes its slot free for another if it goes on.
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

    /// Lets go of a slot whose stream this end has ended.
    pub(super) fn detach(&mut self, index: usize) {
        let slot = &mut self.all[index];
        if slot.was_sent && !slot.has_come && slot.serial.is_some() {
            slot.detached = true;
            slot.clear();
            slot.waker = None;
        }
    }

    /// Gives a slot up, unless it is detached. Returns its stream if that is not over.
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
        // The last one of a destination that comes no more takes its place along.
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

    /// Lets those go that wait for another stream: they find that nothing comes.
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

    /// Fails whatever stream it is told of for a reason, or because it was lost.
    pub(super) fn failing(&mut self, reason: Reason) -> Failing<'_> {
        Failing {
            slots: self,
            reason,
        }
    }
}

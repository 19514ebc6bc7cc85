//! A stream of a link, used like a socket.
//!
//! ```text
//!   caller:   made ─ head, or of bytes a wait for an answer ────▶ open ─ both ends ended ─▶ over
//!               └─ no room: waits for its turn ──────────────────▲
//!   called:   waiting ─ head arrives ─▶ open ─ both ends ended ─▶ waiting, for another of the same destination, if
//!                                         │                       a message was served to its end; else over
//!                                         └─ given up, or of another protocol by now ─▶ over
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::link::{Code, NoStream, Serial};

use super::failure::cannot_open;
use super::slots::Left;
use super::{Link, LinkEnd};
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::io::{Message, SideResult, keep};

/// One of the streams of a link.
#[derive(Debug)]
pub(crate) struct Stream {
    link: Rc<Link>,
    slot: usize,
    /// How it is opened; `None` once it is open.
    target: Option<StreamTarget>,
    /// It carries messages with heads; otherwise opaque bytes.
    has_heads: bool,
    /// Lengths of the heads that wait in the side's outbox for room.
    heads_waiting: Vec<u32>,
    /// Whether dropping it sends the code for a cut.
    cut: Cell<bool>,
}

/// The parameters with which a stream is opened.
#[derive(Debug)]
pub(super) struct StreamTarget {
    pub(super) destination: Rc<[u8]>,
    /// The number of the calling workload's header templates.
    pub(super) scope: u32,
}

impl Stream {
    /// A stream that its first head opens; an opaque stream is opened by the task that reads from it.
    pub(super) fn unopened(link: &Rc<Link>, target: StreamTarget, has_heads: bool) -> Self {
        let slot = link.slots.borrow_mut().vacant();
        let mut stream = Stream::at(link, slot, has_heads);
        stream.target = Some(target);
        stream
    }

    /// A stream whose slot already exists.
    pub(super) fn at(link: &Rc<Link>, slot: usize, has_heads: bool) -> Self {
        Stream {
            link: Rc::clone(link),
            slot,
            target: None,
            has_heads,
            heads_waiting: Vec::new(),
            cut: Cell::new(false),
        }
    }

    /// Moves received bytes, at most about `want`, to the end of the inbox. 0 means the end of the stream.
    ///
    /// # Errors
    /// Why the stream broke.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Chain,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        if self.is_to_be_opened() && !self.has_heads && self.open(cx, &[])?.is_none() {
            return Poll::Pending;
        }
        let mut slots = self.link.slots.borrow_mut();
        if self.link.closing.get() && slots.is_between_streams(self.slot) {
            return Poll::Ready(Ok(0));
        }
        let taken = slots.take(self.slot, inbox, want, cx);
        drop(slots);
        taken.map(|taken| {
            let taken = taken?;
            self.credit(taken.serial, taken.data);
            Ok(taken.bytes)
        })
    }

    /// Discards received bytes. 0 means the end of the stream.
    ///
    /// # Errors
    /// As [`Stream::poll_fill`].
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>> {
        self.poll_fill(cx, &mut Chain::new(), usize::MAX)
    }

    /// Returns flow-control credit for these bytes to the other end.
    fn credit(&self, serial: Option<Serial>, bytes: usize) {
        if let (Some(serial), 1..) = (serial, bytes) {
            let mut session = self.link.session.borrow_mut();
            session.consumed(serial, bytes);
            if session.wants_transmit() {
                drop(session);
                self.link.stir();
            }
        }
    }

    /// Whether there is nothing to read from it, not even its end.
    pub(crate) fn is_silent(&self) -> bool {
        self.link.slots.borrow().is_silent(self.slot)
    }

    /// Whether a request has arrived of which nothing was read yet.
    pub(crate) fn is_called(&self) -> bool {
        self.link.slots.borrow().is_fresh(self.slot)
    }

    /// Why it broke, unless one end has simply reset it.
    pub(crate) fn why_broken(&self) -> Option<Reason> {
        let failed = self.link.slots.borrow().failure(self.slot)?;
        Some(failed.reason).filter(|reason| *reason != Reason::UpstreamReset)
    }

    /// Whether it still waits to be opened, for room on its link or for its turn.
    pub(crate) fn is_to_be_opened(&self) -> bool {
        self.target.is_some()
    }

    /// Waits until the link is up. A message that cannot be repeated is given to a link only then: as long as nothing
    /// was sent, it can be sent elsewhere.
    ///
    /// # Errors
    /// Why there is no link.
    pub(crate) fn poll_linked(&self, cx: &Context<'_>) -> Poll<SideResult<()>> {
        let mut slots = self.link.slots.borrow_mut();
        if let Some(failure) = slots.failure(self.slot) {
            return Poll::Ready(Err(failure.into()));
        }
        let is_up = self.link.session.borrow().is_up();
        slots.is_linking(self.slot, !is_up);
        if is_up {
            return Poll::Ready(Ok(()));
        }
        slots.wakes(self.slot, cx);
        Poll::Pending
    }

    /// Whether the other end of the link responds.
    pub(crate) fn is_linked(&self) -> bool {
        self.link.session.borrow().is_up()
    }

    /// Whether the stream broke.
    pub(crate) fn has_failed(&self) -> bool {
        self.link.slots.borrow().failure(self.slot).is_some()
    }

    /// Sends bytes from the front of a chain, at most `limit`, as far as there is room.
    ///
    /// # Errors
    /// Why the stream broke.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        if let Some(&length) = self.heads_waiting.first() {
            // Heads are in the outbox whole, one after the other, with nothing before them.
            let mut linear = Vec::new();
            let head = from.contiguous(length as usize, &mut linear);
            return match self.send_head(cx, head)? {
                Some(_) => {
                    self.heads_waiting.remove(0);
                    Poll::Ready(Ok(head.len()))
                }
                None => Poll::Pending,
            };
        }
        let Some(serial) = self.serial()? else {
            return Poll::Ready(Err(StreamFailure::over().into()));
        };
        if self.owes_head() {
            // The request is being answered with something other than a head.
            return Poll::Ready(Err(StreamFailure::over().into()));
        }
        let sent = self.put(serial, from.runs(), limit);
        if sent == 0 && limit > 0 {
            self.link.slots.borrow_mut().wakes(self.slot, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(sent))
    }

    /// Whether a request was not answered yet, not even by an interim response.
    fn owes_head(&self) -> bool {
        let is_called = matches!(self.link.end, LinkEnd::Called { .. });
        is_called && self.has_heads && !self.link.slots.borrow().is_answered(self.slot)
    }

    /// Sends `message`, a head and perhaps more, and then the first `body` bytes of `from`. Bytes of the message that
    /// find no room are kept in the outbox. Returns how many bytes of `from` were sent.
    ///
    /// # Errors
    /// [`SideError::Memory`] when the outbox gets no block for the rest, else why the stream broke.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        (pool, outbox): (&Pool, &mut Chain),
        message: &Message,
        from: &Chain,
        body: usize,
    ) -> SideResult<usize> {
        let (head, rest) = match self.has_heads {
            true => message.parts(),
            false => (&[][..], &*message.bytes),
        };
        let serial = match outbox.is_empty() {
            true => self.send_head(cx, head)?,
            false => None,
        };
        let Some(serial) = serial else {
            keep(outbox, pool, &message.bytes)?;
            if self.has_heads {
                // A head is shorter than 2^32 bytes.
                self.heads_waiting.push(head.len() as u32);
            }
            return Ok(0);
        };
        let sent = self.put(serial, std::iter::once(rest), rest.len());
        if sent < rest.len() {
            keep(outbox, pool, &rest[sent..])?;
            self.link.slots.borrow_mut().wakes(self.slot, cx);
            return Ok(0);
        }
        Ok(self.put(serial, from.runs(), body))
    }

    /// Sends a message's head, if there is one. `None`: it has to wait for room.
    fn send_head(&mut self, cx: &Context<'_>, head: &[u8]) -> SideResult<Option<Serial>> {
        if head.is_empty() {
            return Ok(Some(self.serial()?.ok_or_else(StreamFailure::over)?));
        }
        if self.is_to_be_opened() {
            return self.open(cx, head);
        }
        let serial = self.serial()?.ok_or_else(StreamFailure::over)?;
        let mut slots = self.link.slots.borrow_mut();
        let scope = slots.scope(self.slot);
        slots.answered(self.slot);
        let mut session = self.link.session.borrow_mut();
        let answered = session.answer(serial, scope, Code::OK, head);
        drop(session);
        match answered {
            Ok(()) => {
                drop(slots);
                self.link.stir();
                Ok(Some(serial))
            }
            Err(NoStream::Full) => {
                slots.wakes(self.slot, cx);
                Ok(None)
            }
            Err(_) => Err(StreamFailure::over().into()),
        }
    }

    /// Opens the stream, with its head if it has heads. `None`: it has to wait for room, or for streams that have
    /// waited longer.
    fn open(&mut self, cx: &Context<'_>, head: &[u8]) -> SideResult<Option<Serial>> {
        let Some(StreamTarget { destination, scope }) = &self.target else {
            return Ok(Some(self.serial()?.ok_or_else(StreamFailure::over)?));
        };
        let mut open_queue = self.link.open_queue.borrow_mut();
        let mut session = self.link.session.borrow_mut();
        // If nothing can be opened any more, no stream waits for its turn.
        let opens = session.may_open() || session.is_full();
        let opened = match self.has_heads {
            _ if opens && open_queue.has_before(self.slot) => Err(NoStream::Full),
            true => session.open(*scope, destination, head, true),
            false => session.open_flow(destination),
        };
        let mut slots = self.link.slots.borrow_mut();
        if opened == Err(NoStream::Full) {
            open_queue.wait(self.slot, cx.waker());
            slots.wakes(self.slot, cx);
            return Ok(None);
        }
        if open_queue.leave(self.slot) && !session.is_full() {
            open_queue.call();
        }
        match opened {
            Ok(serial) => {
                slots.opened(self.slot, serial);
                drop((open_queue, session, slots));
                self.target = None;
                self.link.stir();
                Ok(Some(serial))
            }
            Err(why) => {
                let reason = cannot_open(why);
                // The task that reads learns of it as well.
                let failure = StreamFailure::unsent(reason);
                slots.refuse(self.slot, failure);
                Err(failure.into())
            }
        }
    }

    fn put<'a>(&self, serial: Serial, runs: impl Iterator<Item = &'a [u8]>, limit: usize) -> usize {
        let mut session = self.link.session.borrow_mut();
        let mut left = limit;
        for run in runs {
            let run = &run[..run.len().min(left)];
            let sent = session.send(serial, run);
            left -= sent;
            if sent < run.len() || left == 0 {
                break;
            }
        }
        drop(session);
        if left < limit {
            self.link.stir();
        }
        limit - left
    }

    /// The stream's serial, if it is open.
    fn serial(&self) -> SideResult<Option<Serial>> {
        let slots = self.link.slots.borrow();
        match slots.failure(self.slot) {
            Some(failure) => Err(failure.into()),
            None => Ok(slots.serial(self.slot)),
        }
    }

    /// Sends the end of a message, and takes another stream of the same destination when this one is over.
    pub(crate) fn end_message(&mut self) {
        self.link.slots.borrow_mut().goes_on(self.slot);
        self.end();
    }

    /// Sends the end of this direction.
    pub(crate) fn end(&mut self) {
        let mut slots = self.link.slots.borrow_mut();
        if let Some(serial) = slots.end(self.slot) {
            drop(slots);
            let _over = self.link.session.borrow_mut().end(serial);
            self.link.stir();
        }
    }

    /// Releases the stream early, when everything was sent and everything that matters was received.
    pub(crate) fn detach(&mut self, inbox: Chain) {
        let mut slots = self.link.slots.borrow_mut();
        slots.detach(self.slot);
        slots.recycle(inbox);
    }

    /// Sets whether dropping it sends the code for a cut or, as usual, its end.
    pub(crate) fn reset_on_close(&self, cut: bool) {
        self.cut.set(cut);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_to_be_opened() && self.link.open_queue.borrow_mut().leave(self.slot) {
            // It may have been the only one that was told of new room.
            self.link.feed(&self.link.session.borrow());
        }
        let left = self.link.slots.borrow_mut().remove(self.slot);
        let Some(left) = left else { return };
        let mut session = self.link.session.borrow_mut();
        // Whatever the other end still sends is ignored.
        let _over = match left {
            // Nothing of it was read, so it counts as never received.
            Left { is_fresh: true, .. } => session.reset(left.serial, Code::REFUSED),
            Left { has_come: true, .. } if !self.cut.get() => session.end(left.serial),
            _ if self.cut.get() => session.reset(left.serial, Code::CUT),
            _ => session.reset(left.serial, Code::CANCELLED),
        };
        drop(session);
        self.link.stir();
    }
}

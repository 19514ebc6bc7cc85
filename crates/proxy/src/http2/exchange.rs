//! A request and its response, used in place of a socket.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::http1::Method;

use super::answer::Answering;
use super::connections::Calling;
use super::head::Translated;
use super::incoming::{Incoming, Put};
use super::outgoing::Outgoing;
use super::slot::ExchangeSlot;
use super::{Shared, head};
use crate::io::{Message, Proof, SideResult, keep};

/// An exchange on a connection. At the calling end it carries one request. At the called end it carries the requests to
/// one destination, one after the other.
#[derive(Debug)]
pub(crate) struct Http2Exchange {
    end: ExchangeEnd,
    outgoing: RefCell<Outgoing>,
    incoming: Incoming,
    /// Whether it counts as open.
    open: bool,
    /// The waker of its task, once everything was received from the other end.
    waker: Option<Waker>,
}

#[derive(Debug)]
enum ExchangeEnd {
    Caller(Rc<Calling>),
    Called(Rc<Answering>, Rc<ExchangeSlot>),
}

impl ExchangeEnd {
    fn shared(&self) -> &Shared {
        match self {
            ExchangeEnd::Caller(calling) => &calling.shared,
            ExchangeEnd::Called(answering, _) => &answering.shared,
        }
    }
}

impl Http2Exchange {
    /// A calling exchange that begins with this request.
    pub(super) fn calling(
        calling: &Rc<Calling>,
        request: Translated<http::Request<()>>,
    ) -> Box<Self> {
        calling.shared.opened();
        let outgoing = Outgoing::Request(Box::new(request));
        Http2Exchange::new(ExchangeEnd::Caller(Rc::clone(calling)), outgoing, true)
    }

    /// A called exchange that takes the requests of a slot. A request counts as open from its arrival.
    pub(super) fn called(answering: &Rc<Answering>, slot: Rc<ExchangeSlot>) -> Box<Self> {
        let end = ExchangeEnd::Called(Rc::clone(answering), slot);
        Http2Exchange::new(end, Outgoing::Nothing, false)
    }

    fn new(end: ExchangeEnd, outgoing: Outgoing, open: bool) -> Box<Self> {
        Box::new(Http2Exchange {
            end,
            outgoing: RefCell::new(outgoing),
            incoming: Incoming::Nothing,
            open,
            waker: None,
        })
    }

    /// The caller's proof, at the called end: its Collaborator is informed when the proof is revoked.
    pub(crate) fn proof(&self) -> Option<&Arc<Proof>> {
        match &self.end {
            ExchangeEnd::Caller(_) => None,
            ExchangeEnd::Called(answering, _) => Some(answering.proof()),
        }
    }

    /// Moves about `want` received bytes to the end of the inbox. 0 means the end of the stream.
    ///
    /// # Errors
    /// [`SideError::Memory`] if the pool is at its limit, otherwise why the stream failed, as
    /// [`crate::link::reason_of`] reads it.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Chain,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        self.poll_take(cx, want, &mut |bytes| keep(inbox, pool, bytes))
    }

    /// Discards the received bytes. 0 means the end of the stream.
    ///
    /// # Errors
    /// As [`Http2Exchange::poll_fill`].
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>> {
        self.poll_take(cx, usize::MAX, &mut |_| Ok(()))
    }

    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        want: usize,
        put: Put<'_>,
    ) -> Poll<SideResult<usize>> {
        let mut taken = 0;
        if let (Incoming::Nothing, ExchangeEnd::Called(answering, slot)) =
            (&self.incoming, &self.end)
        {
            let next = ready!(slot.poll_next(cx, &answering.slots, &answering.shared));
            let Some((request, respond)) = next else {
                return Poll::Ready(Ok(0));
            };
            self.open = true;
            let method = Method::of(request.method().as_str().as_bytes());
            *self.outgoing.get_mut() = Outgoing::Answer(respond, method);
            taken = self.incoming.request(request, put)?;
        }
        let shared = self.end.shared();
        let rest = self
            .incoming
            .poll_take(cx, shared, want.saturating_sub(taken), put);
        match rest {
            Poll::Ready(rest) => taken += rest?,
            Poll::Pending if taken == 0 => return Poll::Pending,
            Poll::Pending => {}
        }
        if taken == 0 {
            // The other end may still reset the stream, of which a Collaborator that waits for a response must be
            // informed.
            self.waker = Some(cx.waker().clone());
            self.outgoing.get_mut().has_failed(cx);
        }
        Poll::Ready(Ok(taken))
    }

    /// Whether the other end has reset the stream after everything was received from it.
    pub(crate) fn has_failed(&self) -> bool {
        let Some(waker) = &self.waker else {
            return false;
        };
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.has_failed(&mut Context::from_waker(waker))
    }

    /// Sends at most `limit` bytes from the front of a chain, as far as flow control allows.
    ///
    /// # Errors
    /// Why the other end accepts no more.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        let limit = limit.min(from.len());
        let outgoing = self.outgoing.get_mut();
        outgoing.poll_put(cx, self.end.shared(), from.runs(), limit)
    }

    /// Sends `message`, a head and perhaps more, and then the first `body` bytes of `from`. The rest of `message` that
    /// flow control does not allow yet is kept in the outbox. Returns how many bytes of `from` were sent.
    ///
    /// # Errors
    /// [`SideError::Memory`] if no buffer block is left for the rest, otherwise why the stream failed.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        (pool, outbox): (&Pool, &mut Chain),
        message: &Message,
        from: &Chain,
        body: usize,
    ) -> SideResult<usize> {
        debug_assert!(
            outbox.is_empty(),
            "one message follows another when that was sent"
        );
        let outgoing = self.outgoing.get_mut();
        let (_, rest) = message.parts();
        match &self.end {
            ExchangeEnd::Caller(calling) => {
                let (answer, method) = outgoing.request(calling.sender(), message)?;
                self.incoming = Incoming::Answer(answer, method);
            }
            ExchangeEnd::Called(answering, _) => outgoing.answer(&answering.shared, message)?,
        }
        let shared = self.end.shared();
        let sent = match outgoing.poll_put(cx, shared, std::iter::once(rest), rest.len()) {
            Poll::Ready(sent) => sent?,
            Poll::Pending => 0,
        };
        if sent < rest.len() {
            keep(outbox, pool, &rest[sent..])?;
            return Ok(0);
        }
        match outgoing.poll_put(cx, shared, from.runs(), body.min(from.len())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(0),
        }
    }

    /// Whether the whole body was received and consumed, and there are no trailers.
    pub(crate) fn is_whole(&self) -> bool {
        self.incoming.is_whole()
    }

    /// Writes the trailers of a body that has ended, one line for each.
    pub(crate) fn write_trailers(&mut self, out: &mut Vec<u8>) {
        let trailers = self.incoming.take_trailers();
        for (name, value) in trailers.iter().flat_map(|trailers| trailers.iter()) {
            head::field(out, name.as_str(), value.as_bytes());
        }
    }

    /// Adds a trailer to the outgoing body.
    pub(crate) fn add_trailer(&mut self, name: &[u8], value: &[u8]) {
        self.outgoing.get_mut().add_trailer(name, value);
    }

    /// Ends the outgoing body.
    ///
    /// # Errors
    /// When the other end accepts no more.
    pub(crate) fn end_body(&mut self) -> SideResult<()> {
        let outgoing = self.outgoing.get_mut();
        outgoing.end_body(self.end.shared())
    }

    /// Ends this end's message, after which another one may follow.
    pub(crate) fn end_message(&mut self) {
        if let ExchangeEnd::Called(answering, _) = &self.end {
            // If the exchange is complete, dropping its halves has no effect; otherwise the stream is reset.
            *self.outgoing.get_mut() = Outgoing::Nothing;
            self.incoming = Incoming::Nothing;
            if mem::take(&mut self.open) {
                answering.shared.ended();
            }
        }
    }
}

impl Drop for Http2Exchange {
    fn drop(&mut self) {
        // Dropping the exchange resets its stream, if that has not ended.
        if let ExchangeEnd::Called(answering, slot) = &self.end {
            slot.leave(&answering.slots, &answering.shared);
        }
        if self.open {
            self.end.shared().ended();
        }
    }
}

#[cfg(test)]
mod tests;

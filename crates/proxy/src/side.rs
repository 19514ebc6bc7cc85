//! A side of the proxy, with any carrier: a connection of its own, or one stream of many on a connection between nodes.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use heddle_wire::buffer::{Chain, Pool};
use tokio::net::TcpStream;

use crate::failure::Reason;
use crate::http2::Http2Exchange;
use crate::io::{Carrier, Message, Proof, SideOf, SideResult, Wire, WireSide};
use crate::link::Stream;

/// A side with any carrier.
pub(crate) type Side = SideOf<Any>;

/// The carrier of a side's bytes.
#[derive(Debug)]
pub(crate) enum Any {
    Own(Wire),
    /// A stream of a link to another node.
    Stream(Stream),
    /// A stream of an HTTP/2 connection to another node.
    Exchange(Box<Http2Exchange>),
}

impl From<WireSide> for Side {
    fn from(side: WireSide) -> Self {
        SideOf {
            carrier: Any::Own(side.carrier),
            inbox: side.inbox,
            outbox: side.outbox,
            one_clients: side.one_clients,
        }
    }
}

impl From<Stream> for Side {
    fn from(stream: Stream) -> Self {
        Side::of(Any::Stream(stream))
    }
}

impl From<Box<Http2Exchange>> for Side {
    fn from(exchange: Box<Http2Exchange>) -> Self {
        Side::of(Any::Exchange(exchange))
    }
}

impl Side {
    /// A side that carries bytes unchanged.
    pub(crate) fn new(stream: TcpStream) -> Self {
        WireSide::of(Wire::Socket(stream)).into()
    }

    /// A side that uses the address of the client for which it was made as its source address.
    pub(crate) fn of_one_client(stream: TcpStream) -> Self {
        SideOf {
            one_clients: true,
            ..Side::new(stream)
        }
    }

    /// Ends a message that was sent completely. On a connection of its own the message's framing shows its end; a
    /// stream carries one message and is over then.
    pub(crate) fn end_message(&mut self) {
        match &mut self.carrier {
            Any::Own(_) => return,
            Any::Stream(stream) => stream.end_message(),
            Any::Exchange(exchange) => exchange.end_message(),
        }
        debug_assert!(self.outbox.is_empty());
    }

    /// Whether bodies are sent in separate frames, which show their end: then they have no HTTP/1.1 framing.
    pub(crate) fn has_frames(&self) -> bool {
        matches!(self.carrier, Any::Exchange(_))
    }

    /// Whether a whole body in frames is in the inbox, and no trailer follows.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.carrier, Any::Exchange(exchange) if exchange.is_whole())
    }

    /// Writes the trailers of a body in frames that has ended, one line each, as in HTTP/1.1. Only once: this takes
    /// them out.
    pub(crate) fn write_trailers(&mut self, out: &mut Vec<u8>) {
        if let Any::Exchange(exchange) = &mut self.carrier {
            exchange.write_trailers(out);
        }
    }

    /// Adds a trailer to a body in frames.
    pub(crate) fn add_trailer(&mut self, name: &[u8], value: &[u8]) {
        if let Any::Exchange(exchange) = &mut self.carrier {
            exchange.add_trailer(name, value);
        }
    }

    /// Ends a body in frames. The outbox must be empty.
    ///
    /// # Errors
    /// Why the other end receives nothing more.
    pub(crate) fn end_body(&mut self) -> SideResult<()> {
        match &mut self.carrier {
            Any::Exchange(exchange) => exchange.end_body(),
            Any::Own(_) | Any::Stream(_) => Ok(()),
        }
    }

    /// Releases a stream from which everything was received. False for a connection, which can be used again.
    pub(crate) fn part_with_stream(&mut self) -> bool {
        match &mut self.carrier {
            Any::Stream(stream) => {
                stream.detach(mem::take(&mut self.inbox));
                true
            }
            Any::Exchange(_) => true,
            Any::Own(_) => false,
        }
    }

    /// Whether it is a stream that waits for room on its link.
    pub(crate) fn waits_for_link(&self) -> bool {
        match &self.carrier {
            Any::Stream(stream) => stream.is_to_be_opened(),
            Any::Own(_) | Any::Exchange(_) => false,
        }
    }

    /// Whether the other end responds: false for a stream whose link is being made, or is cut.
    pub(crate) fn is_linked(&self) -> bool {
        match &self.carrier {
            Any::Stream(stream) => stream.is_linked(),
            Any::Own(_) | Any::Exchange(_) => true,
        }
    }

    /// Waits until its link is up, if it is a stream that is not open yet.
    ///
    /// # Errors
    /// Why there is no link.
    pub(crate) fn poll_linked(&self, cx: &Context<'_>) -> Poll<SideResult<()>> {
        match &self.carrier {
            Any::Stream(stream) => stream.poll_linked(cx),
            Any::Own(_) | Any::Exchange(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether it can move to another Worker: a stream stays where its link is.
    pub(crate) fn may_move(&self) -> bool {
        matches!(self.carrier, Any::Own(_))
    }

    /// Whether it is a stream that has a request of which nothing was read yet.
    pub(crate) fn is_called(&self) -> bool {
        match &self.carrier {
            Any::Stream(stream) => stream.is_called(),
            Any::Own(_) | Any::Exchange(_) => false,
        }
    }

    /// Why a stream broke, if its link or the other node gave a specific reason.
    pub(crate) fn why_broken(&self) -> Option<Reason> {
        match &self.carrier {
            Any::Stream(stream) => stream.why_broken(),
            Any::Own(_) | Any::Exchange(_) => None,
        }
    }
}

impl Carrier for Any {
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Chain,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        match self {
            Any::Own(wire) => wire.poll_fill(cx, inbox, pool, want),
            Any::Stream(stream) => stream.poll_fill(cx, inbox, want),
            Any::Exchange(exchange) => exchange.poll_fill(cx, inbox, pool, want),
        }
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>> {
        match self {
            Any::Own(wire) => wire.poll_discard(cx),
            Any::Stream(stream) => stream.poll_discard(cx),
            Any::Exchange(exchange) => exchange.poll_discard(cx),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chain: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        match self {
            Any::Own(wire) => wire.poll_write(cx, chain, limit),
            Any::Stream(stream) => stream.poll_write(cx, chain, limit),
            Any::Exchange(exchange) => exchange.poll_write(cx, chain, limit),
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<()>> {
        match self {
            Any::Own(wire) => wire.poll_drain(cx),
            Any::Stream(_) | Any::Exchange(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Any::Own(wire) => return wire.poll_end(cx),
            Any::Stream(stream) => stream.end(),
            // Its body has shown its end, or the exchange is reset.
            Any::Exchange(_) => {}
        }
        Poll::Ready(())
    }

    fn send(
        &mut self,
        cx: &mut Context<'_>,
        kept: (&Pool, &mut Chain),
        message: &mut Message,
        from: &Chain,
        body: usize,
    ) -> SideResult<usize> {
        match self {
            Any::Own(wire) => wire.send(cx, kept, message, from, body),
            Any::Stream(stream) => stream.send(cx, kept, message, from, body),
            Any::Exchange(exchange) => exchange.send(cx, kept, message, from, body),
        }
    }

    fn reset_on_close(&self, cut: bool) {
        match self {
            Any::Own(wire) => wire.reset_on_close(cut),
            Any::Stream(stream) => stream.reset_on_close(cut),
            // A message that was not sent completely is reset anyway.
            Any::Exchange(_) => {}
        }
    }

    fn has_failed(&self) -> bool {
        match self {
            Any::Own(wire) => wire.has_failed(),
            Any::Stream(stream) => stream.has_failed(),
            Any::Exchange(exchange) => exchange.has_failed(),
        }
    }

    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Any::Own(wire) => wire.is_silent(cx),
            Any::Stream(stream) => stream.is_silent(),
            Any::Exchange(exchange) => !exchange.has_failed(),
        }
    }

    fn proof(&self) -> Option<&Arc<Proof>> {
        match self {
            Any::Own(wire) => wire.proof(),
            // The proof belongs to its link.
            Any::Stream(_) => None,
            Any::Exchange(exchange) => exchange.proof(),
        }
    }

    fn is_to_node(&self) -> bool {
        match self {
            Any::Own(wire) => wire.is_to_node(),
            // Only nodes use links and shared HTTP/2 connections.
            Any::Stream(_) | Any::Exchange(_) => true,
        }
    }

    fn wire(&self) -> Option<&Wire> {
        match self {
            Any::Own(wire) => Some(wire),
            Any::Stream(_) | Any::Exchange(_) => None,
        }
    }

    fn into_wire(self) -> Option<Wire> {
        match self {
            Any::Own(wire) => Some(wire),
            Any::Stream(_) | Any::Exchange(_) => None,
        }
    }
}

//! Sockets and chains: the few ways in which bytes move, each one system call at most.
//!
//! Edge-triggered readiness costs nothing as long as a short read or write is taken as "no more
//! for now": then the next try returns `Pending` without asking the kernel.

mod about;
mod error;
mod gather;
mod message;
mod packed;
mod reset;
mod secured;
mod socket;
mod wire;

use std::io;
use std::task::{Context, Poll, ready};

use heddle_wire::buffer::{Chain, Pool};
use rustix::net::RecvFlags;
use tokio::net::TcpStream;

pub(crate) use error::{SideError, SideResult};
pub(crate) use gather::{COPY_BYTES, keep};
pub(crate) use message::Message;
pub(crate) use packed::Packed;
pub(crate) use reset::{is_reset, leave_out_reset};
pub(crate) use secured::{Proof, Secured, count_in, count_received};
pub(crate) use socket::{once, poll_send};
pub(crate) use wire::{Carrier, Wire};

/// One side of the proxy: what carries its bytes, what was read and not yet used, what was not yet written.
#[derive(Debug)]
pub(crate) struct SideOf<C> {
    pub(crate) carrier: C,
    pub(crate) inbox: Chain,
    pub(crate) outbox: Chain,
    /// It speaks with one client's address, and is good for no other client.
    pub(crate) one_clients: bool,
}

/// A side with a connection of its own.
pub(crate) type WireSide = SideOf<Wire>;

impl WireSide {
    /// A side whose bytes go through a session from now on.
    pub(crate) fn secured(stream: TcpStream, secured: Box<Secured>) -> Self {
        WireSide::of(Wire::Session(stream, secured))
    }

    /// Reads once and hands out what was read, for which it takes no block: a task that does nothing but read
    /// may as well take it at once. False means the end of the stream. Only for sessions.
    ///
    /// # Errors
    /// What the socket or the session says.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut dyn FnMut(&[u8]),
    ) -> Poll<SideResult<bool>> {
        match &mut self.carrier {
            Wire::Session(socket, secured) => secured.poll_receive(socket, cx, bytes),
            Wire::Socket(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Sends bytes, at most [`MAX_PLAINTEXT`], of which the side keeps what the socket does not take. It must be
    /// flushed. Only for sessions.
    ///
    /// # Errors
    /// What the socket or the session says.
    pub(crate) fn put_all(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> SideResult<()> {
        match &mut self.carrier {
            Wire::Session(socket, secured) => secured.put_all(socket, cx, bytes),
            Wire::Socket(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl<C: Carrier> SideOf<C> {
    pub(crate) fn of(carrier: C) -> Self {
        SideOf {
            carrier,
            inbox: Chain::new(),
            outbox: Chain::new(),
            one_clients: false,
        }
    }

    /// Reads once, up to `want` bytes, onto the end of the inbox. 0 means the end of the stream.
    ///
    /// # Errors
    /// [`SideError::Memory`] when the pool is at its bound, else what the socket says.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        self.carrier.poll_fill(cx, &mut self.inbox, pool, want)
    }

    /// Reads once and throws away what was read, for which it takes no block. 0 means the end of the
    /// stream.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>> {
        self.carrier.poll_discard(cx)
    }

    /// Looks at what there is to read now, without a block and without taking it. Returns how much of
    /// it stands in `bytes`; of what is encrypted, nothing.
    pub(crate) fn peek(&self, bytes: &mut [u8]) -> usize {
        let Some(Wire::Socket(socket)) = self.carrier.wire() else {
            return 0;
        };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // The next read finds an error.
        rustix::net::recv(socket, bytes, flags).map_or(0, |(n, _)| n)
    }

    /// Makes closing the socket say that the stream was cut, or again that it ended.
    pub(crate) fn reset_on_close(&self, cut: bool) {
        self.carrier.reset_on_close(cut);
    }

    /// Waits until the other end says anything: bytes, the end of the stream or a reset. What it says may
    /// be in the inbox then.
    pub(crate) fn poll_speaks(&mut self, cx: &mut Context<'_>, pool: &Pool) -> Poll<()> {
        if !self.inbox.is_empty() {
            return Poll::Ready(());
        }
        match self.carrier.wire() {
            Some(Wire::Socket(socket)) => socket.poll_read_ready(cx).map(drop),
            // A session has things to say of its own.
            _ => self.poll_fill(cx, pool, pool.block_size()).map(drop),
        }
    }

    /// Writes what the outbox holds.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<()>> {
        let SideOf {
            carrier, outbox, ..
        } = self;
        while !outbox.is_empty() {
            let n = ready!(carrier.poll_write(cx, outbox, usize::MAX))?;
            outbox.consume(n);
        }
        carrier.poll_drain(cx)
    }

    /// Writes at most `limit` bytes from the front of a chain, which the caller consumes. As long as it is
    /// pending, the same bytes must be offered again. The outbox goes first: it must be empty.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        self.carrier.poll_write(cx, from, limit)
    }

    /// Says that nothing more will be sent; the other end may still send. The outbox must be empty.
    /// A side that is gone needs no telling: it is not an error.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.carrier.poll_end(cx)
    }

    /// Sends a message and then the first `body` bytes of `from` at once, as far as the socket takes
    /// them; keeps what is left of the message in the outbox. Returns how many bytes of `from` went.
    ///
    /// # Errors
    /// [`SideError::Memory`] when the rest finds no block, else what the socket says.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Pool,
        message: &mut Message,
        from: &Chain,
        body: usize,
    ) -> SideResult<usize> {
        let kept = (pool, &mut self.outbox);
        self.carrier.send(cx, kept, message, from, body)
    }
}

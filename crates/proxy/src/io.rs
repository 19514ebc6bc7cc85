//! Moves bytes between sockets and chains, with at most one system call each time.
//!
//! Edge-triggered readiness is free as long as a short read or write counts as "no more for now": then the next try
//! returns `Pending` without asking the kernel.

mod about;
mod effort;
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

pub(crate) use effort::{follow_effort, is_lower_effort, limit_under_way, set_effort, tell_effort};
pub(crate) use error::{SideError, SideResult};
pub(crate) use gather::{COPY_BYTES, keep};
pub(crate) use message::Message;
pub(crate) use packed::Packed;
pub(crate) use reset::{is_reset, leave_out_reset};
pub(crate) use secured::{Proof, Secured, count_in, count_received};
pub(crate) use socket::{once, poll_send};
pub(crate) use wire::{Carrier, Wire};

/// One side of the proxy: its carrier, the bytes that were read and not yet used, and the bytes that are not written
/// yet.
#[derive(Debug)]
pub(crate) struct SideOf<C> {
    pub(crate) carrier: C,
    pub(crate) inbox: Chain,
    pub(crate) outbox: Chain,
    /// Whether its source address is that of one client, so that no other client may use it.
    pub(crate) one_clients: bool,
}

/// A side with its own connection.
pub(crate) type WireSide = SideOf<Wire>;

impl WireSide {
    /// A side whose bytes go through a TLS session.
    pub(crate) fn secured(stream: TcpStream, secured: Box<Secured>) -> Self {
        WireSide::of(Wire::Session(stream, secured))
    }

    /// Reads once and passes the bytes to `bytes`, without a buffer block: for a task that uses them at once. False
    /// means the end of the stream. Only for sessions.
    ///
    /// # Errors
    /// The error of the socket or the session.
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

    /// Sends at most [`MAX_PLAINTEXT`] bytes, and keeps what the socket does not accept. The side must have been
    /// flushed before. Only for sessions.
    ///
    /// # Errors
    /// The error of the socket or the session.
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

    /// Reads once, up to `want` bytes, to the end of the inbox. 0 means the end of the stream.
    ///
    /// # Errors
    /// [`SideError::Memory`] if the pool is at its limit, otherwise the socket's error.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        self.carrier.poll_fill(cx, &mut self.inbox, pool, want)
    }

    /// Reads once and discards the bytes, without a buffer block. 0 means the end of the stream.
    ///
    /// # Errors
    /// The socket's error.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>> {
        self.carrier.poll_discard(cx)
    }

    /// Peeks at the bytes that can be read now, without a buffer block and without consuming them. Returns how many
    /// bytes are in `bytes`; 0 for an encrypted side.
    pub(crate) fn peek(&self, bytes: &mut [u8]) -> usize {
        let Some(Wire::Socket(socket)) = self.carrier.wire() else {
            return 0;
        };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // An error is found by the next read.
        rustix::net::recv(socket, bytes, flags).map_or(0, |(n, _)| n)
    }

    /// Sets whether closing the socket resets the connection or ends it normally.
    pub(crate) fn reset_on_close(&self, cut: bool) {
        self.carrier.reset_on_close(cut);
    }

    /// Waits until the other end sends anything: bytes, the end of the stream or a reset. The bytes may be in the inbox
    /// then.
    pub(crate) fn poll_speaks(&mut self, cx: &mut Context<'_>, pool: &Pool) -> Poll<()> {
        if !self.inbox.is_empty() {
            return Poll::Ready(());
        }
        match self.carrier.wire() {
            Some(Wire::Socket(socket)) => socket.poll_read_ready(cx).map(drop),
            // A session also has messages of its own, so it must be read.
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

    /// Writes at most `limit` bytes from the front of a chain, which the caller consumes. While it is pending, the same
    /// bytes must be offered again. The outbox must be empty, since its bytes go first.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        self.carrier.poll_write(cx, from, limit)
    }

    /// Half-closes: nothing more will be sent, but the other end may still send. The outbox must be empty. A side that
    /// is gone is not an error.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.carrier.poll_end(cx)
    }

    /// Sends a message and then the first `body` bytes of `from` at once, as far as the socket accepts them; keeps the
    /// rest of the message in the outbox. Returns how many bytes of `from` were sent.
    ///
    /// # Errors
    /// [`SideError::Memory`] if no buffer block is left for the rest, otherwise the socket's error.
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

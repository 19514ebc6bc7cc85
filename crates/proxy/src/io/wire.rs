//! Carriers of a side's bytes.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_transport::MAX_PLAINTEXT;
use heddle_wire::buffer::{Chain, Pool};
use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::gather::{COPY_BYTES, SLICES, append, keep, limited};
use super::secured::RECORD_BYTES;
use super::socket::{self, poll_send, poll_writev, written};
use super::{Message, Proof, Secured, SideError, SideResult};

/// The part of a side that depends on what carries its bytes. Methods as in [`SideOf`](super::SideOf).
pub(crate) trait Carrier: Sized {
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Chain,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>>;

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>>;

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chain: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>>;

    /// Writes the output that the carrier itself holds.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<()>>;

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    fn send(
        &mut self,
        cx: &mut Context<'_>,
        kept: (&Pool, &mut Chain),
        message: &mut Message,
        from: &Chain,
        body: usize,
    ) -> SideResult<usize>;

    fn reset_on_close(&self, cut: bool);

    fn has_failed(&self) -> bool;

    /// Whether nothing can be read, not even the end of the stream.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool;

    /// The identity that the peer has proven, and its expiry.
    fn proof(&self) -> Option<&Arc<Proof>>;

    /// Whether the peer is another node.
    fn is_to_node(&self) -> bool;

    /// Its connection, unless it shares one with other carriers.
    fn wire(&self) -> Option<&Wire>;

    fn into_wire(self) -> Option<Wire>;
}

/// A connection that belongs to one side.
#[derive(Debug)]
pub(crate) enum Wire {
    /// A plain socket.
    Socket(TcpStream),
    /// A socket with a TLS session.
    Session(TcpStream, Box<Secured>),
}

impl Wire {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Wire::Socket(socket) | Wire::Session(socket, _) => socket,
        }
    }

    pub(super) fn session(&self) -> Option<&Secured> {
        match self {
            Wire::Session(_, secured) => Some(secured),
            Wire::Socket(_) => None,
        }
    }
}

impl Carrier for Wire {
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Chain,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        match self {
            Wire::Socket(socket) => socket::poll_fill(socket, cx, inbox, pool, want),
            Wire::Session(socket, secured) => secured.poll_fill(socket, cx, inbox, pool, want),
        }
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<usize>> {
        match self {
            Wire::Socket(socket) => socket::poll_discard(socket, cx).map_err(SideError::Socket),
            Wire::Session(socket, secured) => secured.poll_discard(socket, cx),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chain: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        let socket = match self {
            Wire::Socket(socket) => socket,
            Wire::Session(socket, secured) => {
                return secured.poll_write(socket, cx, chain, limit);
            }
        };
        let front = chain.front();
        let n = if front.len() >= limit || front.len() == chain.len() {
            let bytes = &front[..front.len().min(limit)];
            ready!(poll_send(socket, cx, bytes))?
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = limited(chain, &mut slices, limit);
            ready!(poll_writev(socket, cx, &slices[..count]))?
        };
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        Poll::Ready(Ok(n))
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<()>> {
        match self {
            Wire::Socket(_) => Poll::Ready(Ok(())),
            Wire::Session(socket, secured) => secured.poll_drain(socket, cx),
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Wire::Session(socket, secured) = self {
            let _gone = ready!(secured.poll_close(socket, cx));
        }
        let _gone = shutdown(self.socket(), Shutdown::Write);
        Poll::Ready(())
    }

    fn send(
        &mut self,
        cx: &mut Context<'_>,
        (pool, outbox): (&Pool, &mut Chain),
        message: &mut Message,
        from: &Chain,
        body: usize,
    ) -> SideResult<usize> {
        let message = &mut message.bytes;
        let socket = match self {
            Wire::Socket(socket) => socket,
            Wire::Session(socket, secured) => {
                let clear = outbox.is_empty() && secured.is_clear();
                if clear && message.len() <= MAX_PLAINTEXT {
                    let body = body.min(RECORD_BYTES.saturating_sub(message.len()));
                    append(message, from, body);
                    if !secured.send(socket, cx, message)? {
                        keep(outbox, pool, message)?;
                    }
                    return Ok(body);
                }
                keep(outbox, pool, message)?;
                return Ok(0);
            }
        };
        let length = message.len();
        let sent = if !outbox.is_empty() {
            0
        } else if body == 0 {
            written(poll_send(socket, cx, message))?
        } else if length + body <= COPY_BYTES {
            append(message, from, body);
            written(poll_send(socket, cx, message))?
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            slices[0] = IoSlice::new(message);
            let count = 1 + limited(from, &mut slices[1..], body);
            written(poll_writev(socket, cx, &slices[..count]))?
        };
        if sent < length {
            keep(outbox, pool, &message[sent..length])?;
        }
        Ok(sent.saturating_sub(length))
    }

    fn reset_on_close(&self, cut: bool) {
        // If this fails, the connection is closed normally.
        let wait = cut.then_some(Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(self.socket(), wait);
    }

    fn has_failed(&self) -> bool {
        let failed = self.socket().try_io(Interest::ERROR, || Ok(()));
        failed.is_ok()
    }

    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Wire::Socket(socket) => socket.poll_read_ready(cx).is_pending(),
            Wire::Session(socket, secured) => secured.poll_discard(socket, cx).is_pending(),
        }
    }

    fn proof(&self) -> Option<&Arc<Proof>> {
        self.session().map(Secured::proof)
    }

    fn is_to_node(&self) -> bool {
        let proof = self.proof();
        proof.is_some_and(|proof| proof.peer.node.is_some())
    }

    fn wire(&self) -> Option<&Wire> {
        Some(self)
    }

    fn into_wire(self) -> Option<Wire> {
        Some(self)
    }
}

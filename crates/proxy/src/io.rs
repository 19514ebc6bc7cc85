//! Sockets and chains: the few ways in which bytes move, each one system call at most.
//!
//! Edge-triggered readiness costs nothing as long as a short read or write is taken as "no more
//! for now": then the next try returns `Pending` without asking the kernel.

mod about;
mod gather;
mod packed;
mod reset;
mod secured;
mod socket;

use std::io::{self, IoSlice};
use std::mem;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_transport::MAX_PLAINTEXT;
use heddle_wire::buffer::{Chain, Pool};
use rustix::net::{RecvFlags, Shutdown, shutdown};
use tokio::net::TcpStream;

use crate::http2::Exchange;
use crate::link::Stream;
pub(crate) use gather::keep;
use gather::{append, limited};
pub(crate) use packed::Packed;
pub(crate) use reset::{is_reset, leave_out_reset};
use secured::RECORD_BYTES;
pub(crate) use secured::{Proof, Secured, count_in, count_received};
pub(crate) use socket::{once, poll_send};
use socket::{poll_writev, written};

/// Blocks in one vectored call. Linux takes 1,024; beyond this the gain is gone.
const SLICES: usize = 32;
/// Up to here, copying into one buffer and sending once is cheaper than gathering.
pub(crate) const COPY_BYTES: usize = 4096;

/// One side of the proxy: what carries its bytes, what was read and not yet used, what was not yet written.
#[derive(Debug)]
pub(crate) struct Side {
    carrier: Carrier,
    pub(crate) inbox: Chain,
    pub(crate) outbox: Chain,
    /// It speaks with one client's address, and is good for nobody else.
    one_clients: bool,
}

/// What carries the bytes of a side.
#[derive(Debug)]
enum Carrier {
    /// A socket, as they are.
    Socket(TcpStream),
    /// A socket, through a session.
    Session(TcpStream, Box<Secured>),
    /// A link to another node, beside others.
    Stream(Stream),
    /// A connection to another node that speaks HTTP/2, beside others.
    Exchange(Box<Exchange>),
}

impl Side {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Side::of(Carrier::Socket(stream))
    }

    fn of(carrier: Carrier) -> Self {
        Side {
            carrier,
            inbox: Chain::new(),
            outbox: Chain::new(),
            one_clients: false,
        }
    }

    /// A side that is one of many on a link.
    pub(crate) fn of_link(stream: Stream) -> Self {
        Side::of(Carrier::Stream(stream))
    }

    /// A side that is one of many on a connection that speaks HTTP/2.
    pub(crate) fn of_exchange(exchange: Box<Exchange>) -> Self {
        Side::of(Carrier::Exchange(exchange))
    }

    /// A side that speaks with the address of the client for whom it was made.
    pub(crate) fn of_one_client(stream: TcpStream) -> Self {
        Side {
            one_clients: true,
            ..Side::new(stream)
        }
    }

    /// A side whose bytes go through a session from now on.
    pub(crate) fn secured(stream: TcpStream, secured: Box<Secured>) -> Self {
        Side::of(Carrier::Session(stream, secured))
    }

    /// Everything of this message was sent. On a connection of its own the message says so itself; a stream
    /// carries one message and is over then.
    pub(crate) fn end_message(&mut self) {
        match &mut self.carrier {
            Carrier::Socket(_) | Carrier::Session(..) => return,
            Carrier::Stream(stream) => stream.end_message(),
            Carrier::Exchange(exchange) => exchange.end_message(),
        }
        debug_assert!(self.outbox.is_empty());
    }

    /// Lets go of a stream of which everything was received as well. False for what can be used again.
    pub(crate) fn part_with_stream(&mut self) -> bool {
        match &mut self.carrier {
            Carrier::Stream(stream) => {
                stream.detach(mem::take(&mut self.inbox));
                true
            }
            Carrier::Exchange(_) => true,
            Carrier::Socket(_) | Carrier::Session(..) => false,
        }
    }

    /// Reads once, up to `want` bytes, onto the end of the inbox. 0 means the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when the pool is at its bound, else what the socket says.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Pool,
        want: usize,
    ) -> Poll<io::Result<usize>> {
        let Side { carrier, inbox, .. } = self;
        let socket = match carrier {
            Carrier::Socket(socket) => socket,
            Carrier::Session(socket, secured) => {
                return secured.poll_fill(socket, cx, inbox, pool, want);
            }
            Carrier::Stream(stream) => return stream.poll_fill(cx, inbox, want),
            Carrier::Exchange(exchange) => return exchange.poll_fill(cx, inbox, pool, want),
        };
        socket::poll_fill(socket, cx, inbox, pool, want)
    }

    /// Reads once and throws away what was read, for which it takes no block. 0 means the end of the
    /// stream.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let socket = match &mut self.carrier {
            Carrier::Socket(socket) => socket,
            Carrier::Session(socket, secured) => return secured.poll_discard(socket, cx),
            Carrier::Stream(stream) => return stream.poll_discard(cx),
            Carrier::Exchange(exchange) => return exchange.poll_discard(cx),
        };
        socket::poll_discard(socket, cx)
    }

    /// Reads once and hands out what was read, for which it takes no block: whoever does nothing but read may
    /// as well take it at once. False means the end of the stream. Only for sessions.
    ///
    /// # Errors
    /// What the socket or the session says.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<bool>> {
        match &mut self.carrier {
            Carrier::Session(socket, secured) => secured.poll_receive(socket, cx, bytes),
            Carrier::Socket(_) | Carrier::Stream(_) | Carrier::Exchange(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// Sends bytes, at most [`MAX_PLAINTEXT`], of which the side keeps what the socket does not take. It must be
    /// flushed. Only for sessions.
    ///
    /// # Errors
    /// What the socket or the session says.
    pub(crate) fn put_all(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        match &mut self.carrier {
            Carrier::Session(socket, secured) => secured.put_all(socket, cx, bytes),
            Carrier::Socket(_) | Carrier::Stream(_) | Carrier::Exchange(_) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// Looks at what there is to read now, without a block and without taking it. Returns how much of
    /// it stands in `bytes`; of what is encrypted, nothing.
    pub(crate) fn peek(&self, bytes: &mut [u8]) -> usize {
        let Carrier::Socket(socket) = &self.carrier else {
            return 0;
        };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // An error is found by whoever reads.
        rustix::net::recv(socket, bytes, flags).map_or(0, |(n, _)| n)
    }

    /// Makes closing the socket say that the stream was cut, or again that it ended.
    pub(crate) fn reset_on_close(&self, cut: bool) {
        match &self.carrier {
            Carrier::Socket(socket) | Carrier::Session(socket, _) => {
                // What cannot be reset is closed.
                let wait = cut.then_some(Duration::ZERO);
                let _ = rustix::net::sockopt::set_socket_linger(socket, wait);
            }
            Carrier::Stream(stream) => stream.reset_on_close(cut),
            // What was not said to its end is reset anyway.
            Carrier::Exchange(_) => {}
        }
    }

    /// Waits until the other end says anything: bytes, the end of the stream or a reset. What it says may
    /// be in the inbox then.
    pub(crate) fn poll_speaks(&mut self, cx: &mut Context<'_>, pool: &Pool) -> Poll<()> {
        if !self.inbox.is_empty() {
            return Poll::Ready(());
        }
        match &self.carrier {
            Carrier::Socket(socket) => socket.poll_read_ready(cx).map(drop),
            // A session has things to say of its own.
            _ => self.poll_fill(cx, pool, pool.block_size()).map(drop),
        }
    }

    /// Writes what the outbox holds.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Side {
            carrier, outbox, ..
        } = self;
        while !outbox.is_empty() {
            let n = ready!(carrier.poll_write(cx, outbox, usize::MAX))?;
            outbox.consume(n);
        }
        match carrier {
            Carrier::Socket(_) | Carrier::Stream(_) | Carrier::Exchange(_) => Poll::Ready(Ok(())),
            Carrier::Session(socket, secured) => secured.poll_drain(socket, cx),
        }
    }

    /// Writes at most `limit` bytes from the front of a chain, which the caller consumes. As long as it is
    /// pending, the same bytes must be offered again. The outbox goes first: it must be empty.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &Chain,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.carrier.poll_write(cx, from, limit)
    }

    /// Says that nothing more will be sent; the other end may still send. The outbox must be empty.
    /// A side that is gone needs no telling: it is not an error.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = match &mut self.carrier {
            Carrier::Socket(socket) => socket,
            Carrier::Session(socket, secured) => {
                let _gone = ready!(secured.poll_close(socket, cx));
                socket
            }
            Carrier::Stream(stream) => {
                stream.end();
                return Poll::Ready(());
            }
            Carrier::Exchange(exchange) => {
                exchange.end();
                return Poll::Ready(());
            }
        };
        let _gone = shutdown(&*socket, Shutdown::Write);
        Poll::Ready(())
    }

    /// Sends `head` and then the first `body` bytes of `from` at once, as far as the socket takes
    /// them; keeps what is left of `head` in the outbox. Returns how many bytes of `from` went.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when the rest finds no block, else what the socket says.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Pool,
        head: &mut Vec<u8>,
        from: &Chain,
        body: usize,
    ) -> io::Result<usize> {
        let Side {
            carrier, outbox, ..
        } = self;
        let socket = match carrier {
            Carrier::Socket(socket) => socket,
            Carrier::Session(socket, secured) => {
                let clear = outbox.is_empty() && secured.is_clear();
                if clear && head.len() <= MAX_PLAINTEXT {
                    let body = body.min(RECORD_BYTES.saturating_sub(head.len()));
                    append(head, from, body);
                    if !secured.send(socket, cx, head)? {
                        keep(outbox, pool, head)?;
                    }
                    return Ok(body);
                }
                keep(outbox, pool, head)?;
                return Ok(0);
            }
            Carrier::Stream(stream) => return stream.send(cx, (pool, outbox), head, from, body),
            Carrier::Exchange(exchange) => {
                return exchange.send(cx, (pool, outbox), head, from, body);
            }
        };
        let head_bytes = head.len();
        let sent = if !outbox.is_empty() {
            0
        } else if body == 0 {
            written(poll_send(socket, cx, head))?
        } else if head_bytes + body <= COPY_BYTES {
            append(head, from, body);
            written(poll_send(socket, cx, head))?
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            slices[0] = IoSlice::new(head);
            let count = 1 + limited(from, &mut slices[1..], body);
            written(poll_writev(socket, cx, &slices[..count]))?
        };
        if sent < head_bytes {
            keep(outbox, pool, &head[sent..head_bytes])?;
        }
        Ok(sent.saturating_sub(head_bytes))
    }
}

impl Carrier {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chain: &Chain,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let socket = match self {
            Carrier::Socket(socket) => socket,
            Carrier::Session(socket, secured) => {
                return secured.poll_write(socket, cx, chain, limit);
            }
            Carrier::Stream(stream) => return stream.poll_write(cx, chain, limit),
            Carrier::Exchange(exchange) => return exchange.poll_write(cx, chain, limit),
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
}

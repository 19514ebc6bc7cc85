//! Sockets and chains: the few ways in which bytes move, each one system call at most.
//!
//! Edge-triggered readiness costs nothing as long as a short read or write is taken as "no more
//! for now": then the next try returns `Pending` without asking the kernel.

mod secured;
mod socket;

use std::io::{self, IoSlice, IoSliceMut};
use std::net;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_transport::MAX_PLAINTEXT;
use heddle_wire::buffer::{Chain, Pool};
use rustix::net::{RecvFlags, Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use secured::RECORD_BYTES;
pub(crate) use secured::{Proof, Secured, count_in, count_received};
pub(crate) use socket::{once, poll_send};
use socket::{poll_writev, written};

/// Blocks in one vectored call. Linux takes 1,024; beyond this the gain is gone.
const SLICES: usize = 32;
/// Up to here, copying into one buffer and sending once is cheaper than gathering.
pub(crate) const COPY_BYTES: usize = 4096;

/// One side of the proxy: a socket, what was read and not yet used, what was not yet written.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) stream: TcpStream,
    pub(crate) inbox: Chain,
    pub(crate) outbox: Chain,
    /// What its bytes go through; `None` for a socket that carries them as they are.
    secured: Option<Box<Secured>>,
    /// It speaks with one client's address, and is good for nobody else.
    one_clients: bool,
}

/// A side that belongs to no runtime, on its way to another Worker. Its inbox and outbox are empty, or
/// go along by another way.
#[derive(Debug)]
pub(crate) struct Packed {
    socket: net::TcpStream,
    secured: Option<Box<Secured>>,
    one_clients: bool,
}

impl Side {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Side {
            stream,
            inbox: Chain::new(),
            outbox: Chain::new(),
            secured: None,
            one_clients: false,
        }
    }

    /// A side that speaks with the address of the client for whom it was made.
    pub(crate) fn of_one_client(stream: TcpStream) -> Self {
        Side {
            one_clients: true,
            ..Side::new(stream)
        }
    }

    /// Whether it speaks with one client's address.
    pub(crate) fn is_one_clients(&self) -> bool {
        self.one_clients
    }

    /// A side whose bytes go through a session from now on.
    pub(crate) fn secured(stream: TcpStream, secured: Box<Secured>) -> Self {
        Side {
            secured: Some(secured),
            ..Side::new(stream)
        }
    }

    /// Takes it off its runtime.
    ///
    /// # Errors
    /// When the runtime does not let go of the socket, which only one that has ended does not.
    pub(crate) fn pack(self) -> io::Result<Packed> {
        Ok(Packed {
            socket: self.stream.into_std()?,
            secured: self.secured,
            one_clients: self.one_clients,
        })
    }

    /// Who proved to be at the other end, and until when.
    pub(crate) fn proof(&self) -> Option<&Arc<Proof>> {
        self.secured.as_deref().map(Secured::proof)
    }

    /// In whose name the connection was made to another node.
    pub(crate) fn caller(&self) -> Option<&ServiceAccountName> {
        self.secured.as_deref()?.caller()
    }

    /// Whom the other end asked for.
    pub(crate) fn called(&self) -> Option<&SpiffeId> {
        self.secured.as_deref()?.called()
    }

    /// Whether a certificate that it rests on expires so soon that nothing new should be begun on it.
    pub(crate) fn is_ending(&self, now: Instant) -> bool {
        let secured = self.secured.as_deref();
        secured.is_some_and(|secured| secured.is_ending(now))
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
        if let Some(secured) = &mut self.secured {
            return secured.poll_fill(&self.stream, cx, &mut self.inbox, pool, want);
        }
        loop {
            // An idle connection must hold no block, so the socket is asked before the pool.
            ready!(self.stream.poll_read_ready(cx))?;
            let room = self.inbox.reserve(pool, want.max(1));
            let got = if room == 0 {
                Err(io::ErrorKind::OutOfMemory.into())
            } else if want <= pool.block_size() {
                self.fill_one(pool)
            } else {
                self.fill_many()
            };
            self.inbox.release_spare();
            match got {
                // Readiness was stale and is cleared now: ask again, to be woken by the next.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn fill_one(&mut self, pool: &Pool) -> io::Result<usize> {
        let Some(spare) = self.inbox.spare(pool) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let n = once(&self.stream, Interest::READABLE, spare.len(), || {
            rustix::net::recv(&self.stream, &mut *spare, RecvFlags::empty()).map(|(n, _)| n)
        })?;
        self.inbox.commit(n);
        Ok(n)
    }

    fn fill_many(&mut self) -> io::Result<usize> {
        let mut slices: [IoSliceMut<'_>; SLICES] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let count = self.inbox.spare_slices(&mut slices);
        let slices = &mut slices[..count];
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        let n = once(&self.stream, Interest::READABLE, room, || {
            rustix::io::readv(&self.stream, slices)
        })?;
        self.inbox.commit(n);
        Ok(n)
    }

    /// Reads once and throws away what was read, for which it takes no block. 0 means the end of the
    /// stream.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(secured) = &mut self.secured {
            return secured.poll_discard(&self.stream, cx);
        }
        let mut bytes = [0; COPY_BYTES];
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let got = once(&self.stream, Interest::READABLE, bytes.len(), || {
                rustix::net::recv(&self.stream, &mut bytes, RecvFlags::empty()).map(|(n, _)| n)
            });
            match got {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Looks at what there is to read now, without a block and without taking it. Returns how much of
    /// it stands in `bytes`; of what is encrypted, nothing.
    pub(crate) fn peek(&self, bytes: &mut [u8]) -> usize {
        if self.secured.is_some() {
            return 0;
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // An error is found by whoever reads.
        rustix::net::recv(&self.stream, bytes, flags).map_or(0, |(n, _)| n)
    }

    /// Whether the connection is known to have broken, by a reset for instance, though nobody has tried to
    /// read or write since. Asks the runtime, not the kernel.
    pub(crate) fn has_failed(&self) -> bool {
        self.stream.try_io(Interest::ERROR, || Ok(())).is_ok()
    }

    /// Makes closing the socket say that the stream was cut, or again that it ended.
    pub(crate) fn reset_on_close(&self, cut: bool) {
        // What cannot be reset is closed.
        let _ =
            rustix::net::sockopt::set_socket_linger(&self.stream, cut.then_some(Duration::ZERO));
    }

    /// Waits until the other end says anything: bytes, the end of the stream or a reset. What it says may
    /// be in the inbox then.
    pub(crate) fn poll_speaks(&mut self, cx: &mut Context<'_>, pool: &Pool) -> Poll<()> {
        if !self.inbox.is_empty() {
            return Poll::Ready(());
        }
        match &self.secured {
            None => self.stream.poll_read_ready(cx).map(drop),
            // A session has things to say of its own.
            Some(_) => self.poll_fill(cx, pool, pool.block_size()).map(drop),
        }
    }

    /// Whether there is nothing to read from it: neither the end of the stream nor bytes that nobody asked
    /// for. Asks the runtime, and the kernel only for what a session says of its own.
    pub(crate) fn is_silent(&mut self) -> bool {
        if !self.inbox.is_empty() {
            return false;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        match &mut self.secured {
            None => self.stream.poll_read_ready(cx).is_pending(),
            Some(secured) => secured.poll_discard(&self.stream, cx).is_pending(),
        }
    }

    /// Writes what the outbox holds.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let Side {
                stream,
                outbox,
                secured,
                ..
            } = self;
            let n = ready!(poll_write(stream, secured, cx, outbox, usize::MAX))?;
            self.outbox.consume(n);
        }
        match &mut self.secured {
            None => Poll::Ready(Ok(())),
            Some(secured) => secured.poll_drain(&self.stream, cx),
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
        poll_write(&self.stream, &mut self.secured, cx, from, limit)
    }

    /// Says that nothing more will be sent; the other end may still send. The outbox must be empty.
    /// A side that is gone needs no telling: it is not an error.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(secured) = &mut self.secured {
            let _gone = ready!(secured.poll_close(&self.stream, cx));
        }
        let _gone = shutdown(&self.stream, Shutdown::Write);
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
        if let Some(secured) = &mut self.secured {
            let clear = self.outbox.is_empty() && secured.is_clear();
            if clear && head.len() <= MAX_PLAINTEXT {
                let body = body.min(RECORD_BYTES.saturating_sub(head.len()));
                append(head, from, body);
                if !secured.send(&self.stream, cx, head)? {
                    keep(&mut self.outbox, pool, head)?;
                }
                return Ok(body);
            }
            keep(&mut self.outbox, pool, head)?;
            return Ok(0);
        }
        let head_bytes = head.len();
        let sent = if !self.outbox.is_empty() {
            0
        } else if body == 0 {
            written(poll_send(&self.stream, cx, head))?
        } else if head_bytes + body <= COPY_BYTES {
            append(head, from, body);
            written(poll_send(&self.stream, cx, head))?
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            slices[0] = IoSlice::new(head);
            let count = 1 + limited(from, &mut slices[1..], body);
            written(poll_writev(&self.stream, cx, &slices[..count]))?
        };
        if sent < head_bytes {
            keep(&mut self.outbox, pool, &head[sent..head_bytes])?;
        }
        Ok(sent.saturating_sub(head_bytes))
    }
}

impl Packed {
    /// A side that carries bytes as they are.
    pub(crate) fn plain(socket: net::TcpStream) -> Self {
        Packed {
            socket,
            secured: None,
            one_clients: false,
        }
    }

    /// Puts it onto the runtime of the calling thread.
    ///
    /// # Errors
    /// When the socket cannot be registered with it.
    pub(crate) fn unpack(self) -> io::Result<Side> {
        Ok(Side {
            secured: self.secured,
            one_clients: self.one_clients,
            ..Side::new(TcpStream::from_std(self.socket)?)
        })
    }
}

/// Puts bytes into an outbox.
fn keep(outbox: &mut Chain, pool: &Pool, bytes: &[u8]) -> io::Result<()> {
    let kept = outbox.extend_from_slice(pool, bytes);
    kept.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

fn append(out: &mut Vec<u8>, from: &Chain, bytes: usize) {
    let mut left = bytes;
    for run in from.runs() {
        let take = run.len().min(left);
        out.extend_from_slice(&run[..take]);
        left -= take;
        if left == 0 {
            break;
        }
    }
}

/// Fills `out` with the first `bytes` bytes of a chain; returns how many entries were set.
fn limited<'a>(from: &'a Chain, out: &mut [IoSlice<'a>], bytes: usize) -> usize {
    let mut left = bytes;
    let mut count = 0;
    for (slot, run) in out.iter_mut().zip(from.runs()) {
        let take = run.len().min(left);
        *slot = IoSlice::new(&run[..take]);
        left -= take;
        count += 1;
        if left == 0 {
            break;
        }
    }
    count
}

fn poll_write(
    stream: &TcpStream,
    secured: &mut Option<Box<Secured>>,
    cx: &mut Context<'_>,
    chain: &Chain,
    limit: usize,
) -> Poll<io::Result<usize>> {
    if let Some(secured) = secured {
        return secured.poll_write(stream, cx, chain, limit);
    }
    let front = chain.front();
    let n = if front.len() >= limit || front.len() == chain.len() {
        let bytes = &front[..front.len().min(limit)];
        ready!(poll_send(stream, cx, bytes))?
    } else {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = limited(chain, &mut slices, limit);
        ready!(poll_writev(stream, cx, &slices[..count]))?
    };
    if n == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    Poll::Ready(Ok(n))
}

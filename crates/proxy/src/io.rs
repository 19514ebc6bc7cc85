//! Sockets and chains: the few ways in which bytes move, each one system call at most.
//!
//! Edge-triggered readiness costs nothing as long as a short read or write is taken as "no more
//! for now": then the next try returns `Pending` without asking the kernel.

use std::io::{self, IoSlice, IoSliceMut};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_wire::buffer::{Chain, Pool};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

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
}

impl Side {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Side {
            stream,
            inbox: Chain::new(),
            outbox: Chain::new(),
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
    /// it stands in `bytes`.
    pub(crate) fn peek(&self, bytes: &mut [u8]) -> usize {
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

    /// Writes what the outbox holds.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let n = ready!(poll_write_chain(&self.stream, cx, &self.outbox, usize::MAX))?;
            self.outbox.consume(n);
        }
        Poll::Ready(Ok(()))
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
            self.outbox
                .extend_from_slice(pool, &head[sent..head_bytes])
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        }
        Ok(sent.saturating_sub(head_bytes))
    }
}

/// Makes one system call that moves up to `room` bytes, given that the socket is ready for it.
///
/// Telling the runtime that a short read emptied the socket, or that a short write filled it, saves
/// the call that would only find that out.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when the socket was not ready after all and nothing moved.
fn once(
    stream: &TcpStream,
    interest: Interest,
    room: usize,
    call: impl FnOnce() -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    let mut moved = None;
    let outcome = stream.try_io(interest, || {
        let n = call()?;
        moved = Some(n);
        if n > 0 && n < room {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    });
    match moved {
        Some(n) => Ok(n),
        None => outcome.map(|()| 0),
    }
}

fn poll_send(stream: &TcpStream, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    poll_put(stream, cx, bytes.len(), || {
        rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)
    })
}

fn poll_writev(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let bytes = slices.iter().map(|slice| slice.len()).sum();
    poll_put(stream, cx, bytes, || {
        rustix::net::sendmsg(
            stream,
            slices,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )
    })
}

fn poll_put(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    bytes: usize,
    mut call: impl FnMut() -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match once(stream, Interest::WRITABLE, bytes, &mut call) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// A write that could not go at once wrote nothing.
fn written(poll: Poll<io::Result<usize>>) -> io::Result<usize> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Ok(0),
    }
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

/// Writes at most `limit` bytes from the front of a chain, in one call; the caller consumes them.
pub(crate) fn poll_write_chain(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    chain: &Chain,
    limit: usize,
) -> Poll<io::Result<usize>> {
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

//! The socket of a connection in the form that `h2` uses: below its frames, above TLS.
//!
//! It exists before the TLS connection, and buffers the first output. The driver flushes it once in each of its turns,
//! because `h2` would flush after every large frame.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::io::{SideError, SideResult, WireSide};

/// Limit of reads in one turn, before other work gets its turn.
const TURN_READS: usize = 4;
/// Bytes that are sealed at once, in a few records.
const FLIGHT_BYTES: usize = 60 * 1024;

thread_local! {
    /// Spare buffer for connections whose own is empty.
    static FLIGHT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static UNREAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One end of a connection, shared by `h2` and the driver.
#[derive(Debug, Clone, Default)]
pub(super) struct Http2Io(Rc<RefCell<Plug>>);

#[derive(Debug, Default)]
struct Plug {
    side: Option<WireSide>,
    /// Output that is not sealed yet.
    flight: Vec<u8>,
    /// Decrypted input; `h2` has consumed the first `read` bytes of it.
    unread: Vec<u8>,
    read: usize,
    /// Number of reads left in this turn.
    reads: usize,
    /// Whether the other end has sent anything, so that it has accepted us.
    heard: bool,
    /// The error that broke the connection, which `h2` does not keep.
    broken: Option<SideError>,
}

impl Http2Io {
    /// Attaches the TLS connection.
    pub(super) fn plug(&self, mut side: WireSide) {
        let plug = &mut *self.0.borrow_mut();
        let runs = side.inbox.runs();
        runs.for_each(|run| plug.unread.extend_from_slice(run));
        side.inbox.clear();
        plug.side = Some(side);
    }

    /// Begins a turn of the driver.
    pub(super) fn begin_turn(&self) {
        self.0.borrow_mut().reads = TURN_READS;
    }

    /// Whether one of its certificates expires so soon that no new request should begin on it.
    pub(super) fn is_ending(&self, now: Instant) -> bool {
        let plug = self.0.borrow();
        plug.side.as_ref().is_some_and(|side| side.is_ending(now))
    }

    /// Takes the error that broke the connection, if the other end had not sent anything before.
    pub(super) fn refused(&self) -> Option<SideError> {
        let plug = &mut *self.0.borrow_mut();
        plug.broken.take().filter(|_| !plug.heard)
    }

    /// Sends the buffered output.
    ///
    /// # Errors
    /// The error of the socket or the session.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let plug = &mut *self.0.borrow_mut();
        let sent = plug.poll_sent(cx);
        sent.map_err(|error| plug.breaks(error))
    }
}

impl Plug {
    fn breaks(&mut self, error: SideError) -> io::Error {
        let kind = match &error {
            SideError::Socket(error) => error.kind(),
            SideError::Memory => io::ErrorKind::OutOfMemory,
            SideError::Session(_) | SideError::Stream(_) => io::ErrorKind::InvalidData,
        };
        self.broken.get_or_insert(error);
        kind.into()
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<()>> {
        let Some(side) = &mut self.side else {
            return Poll::Pending;
        };
        ready!(side.poll_flush(cx))?;
        if self.flight.is_empty() {
            return Poll::Ready(Ok(()));
        }
        side.put_all(cx, &self.flight)?;
        self.flight.clear();
        FLIGHT.set(mem::take(&mut self.flight));
        side.poll_flush(cx)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<SideResult<usize>> {
        if self.flight.len() >= FLIGHT_BYTES {
            ready!(self.poll_sent(cx))?;
        }
        if self.flight.capacity() == 0 {
            self.flight = FLIGHT.take();
        }
        let mut room = FLIGHT_BYTES - self.flight.len();
        let before = room;
        for slice in bytes {
            let take = slice.len().min(room);
            self.flight.extend_from_slice(&slice[..take]);
            room -= take;
        }
        Poll::Ready(Ok(before - room))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<SideResult<()>> {
        while self.unread.is_empty() {
            let Some(side) = &mut self.side else {
                return Poll::Pending;
            };
            if self.reads == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.reads -= 1;
            let before = into.filled().len();
            let unread = &mut self.unread;
            let more = ready!(side.poll_receive(cx, &mut |bytes| {
                // Once some bytes are in `unread`, the following bytes must go there, too.
                let take = match unread.is_empty() {
                    true => bytes.len().min(into.remaining()),
                    false => 0,
                };
                into.put_slice(&bytes[..take]);
                if take < bytes.len() {
                    if unread.capacity() == 0 {
                        *unread = UNREAD.take();
                    }
                    unread.extend_from_slice(&bytes[take..]);
                }
            }))?;
            self.heard |= into.filled().len() > before;
            if !more || into.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        let rest = &self.unread[self.read..];
        let take = rest.len().min(into.remaining());
        into.put_slice(&rest[..take]);
        self.read += take;
        if self.read == self.unread.len() {
            self.read = 0;
            self.unread.clear();
            UNREAD.set(mem::take(&mut self.unread));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<SideResult<()>> {
        ready!(self.poll_sent(cx))?;
        match &mut self.side {
            Some(side) => side.poll_shutdown(cx).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Http2Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let plug = &mut *self.0.borrow_mut();
        let read = plug.poll_read(cx, into);
        read.map_err(|error| plug.breaks(error))
    }
}

impl AsyncWrite for Http2Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let plug = &mut *self.0.borrow_mut();
        let written = plug.poll_write(cx, bytes);
        written.map_err(|error| plug.breaks(error))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: the driver flushes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let plug = &mut *self.0.borrow_mut();
        let shut = plug.poll_shutdown(cx);
        shut.map_err(|error| plug.breaks(error))
    }
}

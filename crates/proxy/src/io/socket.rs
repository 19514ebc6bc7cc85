//! System calls on sockets, and what they say about readiness.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Makes one system call that moves up to `room` bytes, given that the socket is ready for it.
///
/// Telling the runtime that a short read emptied the socket, or that a short write filled it, saves
/// the call that would only find that out.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when the socket was not ready after all and nothing moved.
pub(crate) fn once(
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

/// Sends what the socket takes of `bytes`.
pub(crate) fn poll_send(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    poll_put(stream, cx, bytes.len(), || {
        rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)
    })
}

/// The same of several pieces.
pub(super) fn poll_writev(
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
pub(super) fn written(poll: Poll<io::Result<usize>>) -> io::Result<usize> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Ok(0),
    }
}

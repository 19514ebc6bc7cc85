//! System calls on sockets, and what their results tell the runtime about readiness.

use std::io::{self, IoSlice, IoSliceMut};
use std::task::{Context, Poll, ready};

use heddle_wire::buffer::{Chain, Pool};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::gather::{COPY_BYTES, SLICES};
use super::{SideError, SideResult};

/// Makes one system call that moves up to `room` bytes, if the socket is ready for it.
///
/// A short read has emptied the socket, and a short write has filled it. Telling the runtime so saves the call that
/// would only find that out.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the socket was not ready after all, and nothing moved.
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

/// Reads once, up to `want` bytes, to the end of a chain. 0 means the end of the stream.
///
/// # Errors
/// [`SideError::Memory`] if the pool is at its limit, otherwise the socket's error.
pub(super) fn poll_fill(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    inbox: &mut Chain,
    pool: &Pool,
    want: usize,
) -> Poll<SideResult<usize>> {
    loop {
        // An idle connection must hold no block, so the socket is checked before a block is reserved.
        ready!(socket.poll_read_ready(cx))?;
        let room = inbox.reserve(pool, want.max(1));
        let got = if room == 0 {
            Err(SideError::Memory)
        } else if want <= pool.block_size() {
            fill_one(socket, inbox, pool)
        } else {
            fill_many(socket, inbox).map_err(SideError::Socket)
        };
        inbox.release_spare();
        match got {
            // The readiness was stale and is cleared now: poll again, to be woken by the next event.
            Err(error) if error.is_too_early() => {}
            result => return Poll::Ready(result),
        }
    }
}

fn fill_one(socket: &TcpStream, inbox: &mut Chain, pool: &Pool) -> SideResult<usize> {
    let Some(spare) = inbox.spare(pool) else {
        return Err(SideError::Memory);
    };
    let n = once(socket, Interest::READABLE, spare.len(), || {
        rustix::net::recv(socket, &mut *spare, RecvFlags::empty()).map(|(n, _)| n)
    })?;
    inbox.commit(n);
    Ok(n)
}

fn fill_many(socket: &TcpStream, inbox: &mut Chain) -> io::Result<usize> {
    let mut slices: [IoSliceMut<'_>; SLICES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let count = inbox.spare_slices(&mut slices);
    let slices = &mut slices[..count];
    let room: usize = slices.iter().map(|slice| slice.len()).sum();
    let n = once(socket, Interest::READABLE, room, || {
        rustix::io::readv(socket, slices)
    })?;
    inbox.commit(n);
    Ok(n)
}

/// Reads once and discards the bytes. 0 means the end of the stream.
///
/// # Errors
/// The socket's error.
pub(super) fn poll_discard(socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut bytes = [0; COPY_BYTES];
    loop {
        ready!(socket.poll_read_ready(cx))?;
        let got = once(socket, Interest::READABLE, bytes.len(), || {
            rustix::net::recv(socket, &mut bytes, RecvFlags::empty()).map(|(n, _)| n)
        });
        match got {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// Sends `bytes` as far as the socket accepts them.
pub(crate) fn poll_send(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    poll_put(stream, cx, bytes.len(), || {
        rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)
    })
}

/// Sends several pieces as far as the socket accepts them.
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

/// The bytes written: 0 if the write is pending.
pub(super) fn written(poll: Poll<io::Result<usize>>) -> io::Result<usize> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Ok(0),
    }
}

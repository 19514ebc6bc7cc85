//! A listening socket, and accepting from its backlog.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::unix::AsyncFd;

use crate::io::leave_out_reset;

/// Connections accepted before other tasks get their turn.
pub(crate) const BATCH: usize = 32;

/// A client's connection and its address.
type Accepted = (TcpStream, SocketAddr);

/// A listening socket, registered with the runtime of the thread that accepts from it. The connections that it accepts
/// are registered with no runtime, so that they may go to any thread.
///
/// Threads share its single descriptor: another thread can take over accepting even if no descriptor is left.
#[derive(Debug)]
pub(crate) struct Socket(AsyncFd<SharedListener>);

#[derive(Debug)]
struct SharedListener(Arc<TcpListener>);

impl AsRawFd for SharedListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Socket {
    /// # Errors
    /// When the socket cannot be used with the runtime.
    pub(crate) fn new(socket: Arc<TcpListener>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        #[allow(
            unsafe_code,
            reason = "the runtime asks for a promise about the descriptor"
        )]
        // SAFETY: the descriptor is open, and stays the same open descriptor for as long as the registration lives: a
        // `TcpListener` closes it only when it is dropped, which the `Arc` prevents, and nothing takes that `Arc` out
        // of the `AsyncFd` before.
        let socket = unsafe { AsyncFd::register(SharedListener(socket)) }?;
        Ok(Socket(socket))
    }

    /// Accepts the connections in the backlog, at most [`BATCH`] before other tasks get their turn. Counts in
    /// `abandoned` those that are already reset, and admits the others. Ready only with the kernel's error when it has
    /// no descriptor or memory for another connection.
    pub(crate) fn poll_batch(
        &self,
        cx: &mut Context<'_>,
        abandoned: &mut u64,
        admit: impl FnMut(TcpStream, SocketAddr),
    ) -> Poll<io::Error> {
        let mut batch = Vec::new();
        let polled = self.poll_accept(cx, &mut batch);
        hand_over(batch, abandoned, admit);
        polled
    }

    fn poll_accept(&self, cx: &mut Context<'_>, batch: &mut Vec<Accepted>) -> Poll<io::Error> {
        for _ in 0..BATCH {
            let mut ready = match ready!(self.0.poll_read_ready(cx)) {
                Ok(ready) => ready,
                Err(error) => return Poll::Ready(error),
            };
            match self.accept(batch) {
                Ok(()) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Poll::Ready(error.into()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Accepts the connections in the backlog, at most [`BATCH`], without regard to the runtime's readiness. Returns
    /// how many were accepted.
    ///
    /// # Errors
    /// The kernel's error when it has no descriptor or memory for another connection.
    pub(crate) fn accept_batch(
        &self,
        abandoned: &mut u64,
        admit: impl FnMut(TcpStream, SocketAddr),
    ) -> io::Result<usize> {
        let mut batch = Vec::new();
        let mut accepted = Ok(());
        while batch.len() < BATCH && accepted.is_ok() {
            accepted = self.accept(&mut batch);
        }
        let taken = batch.len();
        hand_over(batch, abandoned, admit);
        match accepted {
            Ok(()) | Err(Errno::AGAIN) => Ok(taken),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&self, batch: &mut Vec<Accepted>) -> rustix::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match acceptfrom_with(&*self.0.get_ref().0, flags) {
            Ok((client, peer)) => {
                if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                    batch.push((client.into(), peer));
                }
                Ok(())
            }
            // The error concerns a connection that was gone before it was accepted, and not the listener.
            Err(
                Errno::CONNABORTED | Errno::CONNRESET | Errno::INTR | Errno::PERM | Errno::PROTO,
            ) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Admits the connections that were not reset while they waited, and counts the others.
fn hand_over(
    mut batch: Vec<Accepted>,
    abandoned: &mut u64,
    mut admit: impl FnMut(TcpStream, SocketAddr),
) {
    *abandoned += leave_out_reset(&mut batch, |(client, _)| Some(client.as_fd()));
    batch
        .into_iter()
        .for_each(|(client, peer)| admit(client, peer));
}

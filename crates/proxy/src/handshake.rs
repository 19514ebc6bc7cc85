//! TLS handshakes with other nodes (RFC 8446 section 2), as client and as server.
//!
//! Handshakes are the most expensive work that a peer can cause, so a Worker runs only a few steps of them before other
//! work gets its turn ([`Pace`]). Refused peers are counted by the reason.
//!
//! [`Pace`]: crate::pace::Pace

use std::fmt;
use std::io;
use std::mem;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use heddle_model::ServiceAccountName;
use heddle_transport::{Identities, Received, Refusal, Session, TlsError};
use heddle_wire::buffer::Pool;
use rustix::net::{RecvFlags, Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::io::SideError;
use crate::io::{Secured, WireSide, count_received, once, poll_send};
use crate::pace::Pace;

/// Bytes read at a time: enough for a whole flight with a certificate chain of usual size.
const READ_BYTES: usize = 8 * 1024;
/// Limit of plaintext that may arrive with the last handshake message, in bytes.
const MAX_EARLY: usize = 2 * READ_BYTES;
/// Limit of bytes that a refused peer may still send.
const MAX_UNHEARD: usize = 64 * 1024;

/// A handshake under way.
pub(crate) struct Handshake {
    stream: TcpStream,
    session: Session,
    /// The calling workload's account; `None` if this node is called.
    caller: Option<ServiceAccountName>,
    /// Whether the first message was sent, or the peer has to send it: the client speaks first.
    begun: bool,
    established: bool,
    /// Output; its first `sent` bytes have been sent.
    out: Vec<u8>,
    sent: usize,
    /// Plaintext that the peer has sent after the handshake.
    early: Vec<u8>,
    /// Whether our side was half-closed after a refusal, and the bytes received since then.
    parted: bool,
    unheard: usize,
}

/// Why a handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// One end refuses the other's identity, or a message violates the protocol.
    Refused(Refusal),
    /// The connection failed or was closed.
    Io(io::Error),
    /// No buffer block is left for the received plaintext.
    Memory,
}

impl Handshake {
    /// A handshake as server, with a peer that has connected.
    pub(crate) fn accept(stream: TcpStream, session: Session) -> Self {
        Handshake::new(stream, session, None, true)
    }

    /// A handshake as client, with the identity of `caller`.
    pub(crate) fn connect(
        stream: TcpStream,
        session: Session,
        caller: Option<ServiceAccountName>,
    ) -> Self {
        Handshake::new(stream, session, caller, false)
    }

    fn new(
        stream: TcpStream,
        session: Session,
        caller: Option<ServiceAccountName>,
        begun: bool,
    ) -> Self {
        Handshake {
            stream,
            session,
            caller,
            begun,
            established: false,
            out: Vec::new(),
            sent: 0,
            early: Vec::new(),
            parted: false,
            unheard: 0,
        }
    }

    /// Runs the handshake as far as possible. Ready when both ends have proven their identities and all output is sent.
    ///
    /// # Errors
    /// Why the handshake failed. The alert for a refused peer is sent only as far as the socket accepts it at once.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        pace: &Pace,
    ) -> Poll<Result<(), HandshakeError>> {
        loop {
            ready!(self.poll_say(cx)).map_err(HandshakeError::Io)?;
            if self.established {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [0; READ_BYTES];
            let mut n = 0;
            if mem::replace(&mut self.begun, true) {
                ready!(self.stream.poll_read_ready(cx)).map_err(HandshakeError::Io)?;
                ready!(pace.poll_step(cx));
                let got = once(&self.stream, Interest::READABLE, bytes.len(), || {
                    rustix::net::recv(&self.stream, &mut bytes, RecvFlags::empty()).map(|(n, _)| n)
                });
                n = match got {
                    Ok(0) => {
                        return Poll::Ready(Err(HandshakeError::Io(
                            io::ErrorKind::UnexpectedEof.into(),
                        )));
                    }
                    Ok(n) => n,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Poll::Ready(Err(HandshakeError::Io(error))),
                };
            }
            if let Err(refusal) = self.take(&mut bytes[..n]) {
                // Sends the alert to the refused peer, without waiting for the socket.
                let _told = self.poll_say(cx);
                return Poll::Ready(Err(HandshakeError::Refused(refusal)));
            }
        }
    }

    fn take(&mut self, cipher: &mut [u8]) -> Result<(), Refusal> {
        let early = &mut self.early;
        let before = early.len();
        let received = self.session.receive(cipher, &mut self.out, &mut |plain| {
            early.extend_from_slice(plain);
        });
        count_received(self.session.protocol(), self.early.len() - before);
        let Received {
            established,
            closed,
        } = received.map_err(|error| match error {
            TlsError::Refused(refusal) => refusal,
            other => Refusal::Tls(other.to_string()),
        })?;
        self.established |= established;
        if closed || self.early.len() > MAX_EARLY {
            let why = "the peer closed, or sent too much data, during the handshake";
            return Err(Refusal::Tls(why.to_owned()));
        }
        Ok(())
    }

    fn poll_say(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            self.sent += ready!(poll_send(&self.stream, cx, &self.out[self.sent..]))?;
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Waits until a refused peer has received the alert: closing with unread bytes would make the kernel reset the
    /// connection, and the alert could be lost. Ready when the peer has closed, or sent too much.
    pub(crate) fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !mem::replace(&mut self.parted, true) {
            let _gone = shutdown(&self.stream, Shutdown::Write);
        }
        let mut bytes = [0; READ_BYTES];
        while self.unheard < MAX_UNHEARD {
            if ready!(self.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(());
            }
            let got = once(&self.stream, Interest::READABLE, bytes.len(), || {
                rustix::net::recv(&self.stream, &mut bytes, RecvFlags::empty()).map(|(n, _)| n)
            });
            match got {
                Ok(n) if n > 0 => self.unheard += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }

    /// Returns the connection, with the plaintext received so far in its inbox. The caller must still check the peer
    /// against the current trust and revocations, which may have changed since the handshake began.
    ///
    /// # Errors
    /// When no current root vouches for the peer: a resumed session has not verified a certificate. Or when no buffer
    /// block is left.
    pub(crate) fn finish(
        self,
        now: Instant,
        pool: &Pool,
        identities: &Identities,
    ) -> Result<WireSide, HandshakeError> {
        let now_s = identities.clock().now();
        let root = identities.root_of(&self.session);
        let root = root.ok_or(HandshakeError::Refused(Refusal::UnknownAuthority))?;
        let secured = Secured::new(self.session, root, self.caller, now, now_s);
        let secured = secured.ok_or(HandshakeError::Refused(Refusal::Anonymous))?;
        let mut side = WireSide::secured(self.stream, secured);
        let kept = side.inbox.extend_from_slice(pool, &self.early);
        kept.map_err(|_| HandshakeError::Memory)?;
        Ok(side)
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Refused(refusal) => refusal.fmt(f),
            HandshakeError::Io(error) => error.fmt(f),
            HandshakeError::Memory => f.write_str("all buffers are in use"),
        }
    }
}

impl HandshakeError {
    /// Classifies an error of an established connection. The peer may refuse our identity late (RFC 8446 section 2),
    /// before it has processed anything. Every other error counts as a cut connection, including bytes of an attacker
    /// on the path, who must not be able to cause a request to be sent twice.
    pub(crate) fn of(error: SideError) -> Self {
        match error {
            SideError::Session(error) => match *error {
                TlsError::Refused(refusal @ Refusal::ByPeer(_)) => HandshakeError::Refused(refusal),
                error => HandshakeError::Io(io::Error::new(io::ErrorKind::InvalidData, error)),
            },
            SideError::Memory => HandshakeError::Memory,
            SideError::Socket(error) => HandshakeError::Io(error),
            SideError::Stream(_) => HandshakeError::Io(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

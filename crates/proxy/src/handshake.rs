//! Handshakes with other nodes (RFC 8446 section 2), on either side.
//!
//! They are the most expensive thing that a peer can ask for, so a Worker takes few steps of them before
//! other work gets its turn ([`Pace`]). What a peer is refused for is counted by its reason.
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

/// Bytes read at a time: a whole flight, with a chain of usual certificates in it.
const READ_BYTES: usize = 8 * 1024;
/// Plaintext that may come with the last message of a handshake, in bytes.
const MAX_EARLY: usize = 2 * READ_BYTES;
/// What a peer that is refused may go on to say, in bytes.
const MAX_UNHEARD: usize = 64 * 1024;

/// A handshake under way.
pub(crate) struct Handshake {
    stream: TcpStream,
    session: Session,
    /// In whose name it is made.
    caller: Option<ServiceAccountName>,
    /// A client speaks first.
    begun: bool,
    established: bool,
    /// What is to be said is what follows the first `sent` bytes.
    out: Vec<u8>,
    sent: usize,
    /// What the peer said after the handshake.
    early: Vec<u8>,
    /// It was told that nothing more comes, and has said so much since then.
    parted: bool,
    unheard: usize,
}

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// One of the two ends is not believed, or breaks the rules.
    Refused(Refusal),
    /// The connection ended.
    Io(io::Error),
    /// There is no block for what the peer said.
    Memory,
}

impl Handshake {
    /// With a peer that has connected.
    pub(crate) fn accept(stream: TcpStream, session: Session) -> Self {
        Handshake::new(stream, session, None, true)
    }

    /// With a peer that we have connected to, in the name of a caller.
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

    /// Goes on as far as possible. Ready when the peer has proven who it is and was told who we are.
    ///
    /// # Errors
    /// Why it came to nothing. A peer that is refused was told as far as its socket took it.
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
                // A peer that is refused is told why, without waiting for it.
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
            let why = "it ended, or said too much, in the middle of a handshake";
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

    /// Waits until a peer that was refused has heard why: closing with unread bytes would make the kernel
    /// reset the connection, and the alert could be lost. Ready when it has gone, or said too much.
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

    /// The connection, with what the peer said already in its inbox. Whether the peer is believed by what holds now,
    /// which may have changed since the handshake began, is for the caller to look at.
    ///
    /// # Errors
    /// When the peer is not believed after all: a session that was resumed verified no certificate.
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
    /// What an error of an established connection means. The peer may say late that it does not believe us (RFC
    /// 8446 section 2), and has looked at nothing then. Anything else has cut the connection: also bytes of
    /// an attacker on the way, who must not be able to have a request sent twice.
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

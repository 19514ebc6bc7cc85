//! A TLS session between two nodes: which identities are at its ends, and what is spoken.
//!
//! ```text
//!   handshaking ── the peer has proven who it is ─▶ established ── close_notify, each way ─▶ over
//!        │                                               │
//!        └── refused: what is to be sent still says why ─┘
//! ```
//!
//! Bytes are the business of the [`Tls`] under it.

use std::fmt;
use std::sync::Arc;

use heddle_model::SpiffeId;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;

use crate::identities::Asked;
use crate::tls::{Tls, TlsError};
use crate::{Peer, Protocol, Refusal};

#[cfg(test)]
mod tests;

/// A session with a peer.
pub struct Session {
    tls: Tls,
    role: Role,
    peer: Option<Peer>,
    /// The identity that the client asked for; known once established.
    server: Option<SpiffeId>,
    /// What is spoken; known once established.
    protocol: Option<Protocol>,
    /// When the certificate that we showed expires, in seconds since 1970.
    shown_not_after: u64,
}

enum Role {
    /// Calls this identity, to speak this.
    Client(SpiffeId, Protocol),
    /// Answers as the identity that the client asks for.
    Server(Arc<Asked>),
}

/// What became of ciphertext.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// The handshake is over, with this: the peer is known.
    pub established: bool,
    /// The peer has said that it will send no more.
    pub closed: bool,
}

impl Session {
    pub(crate) fn client(
        connection: UnbufferedClientConnection,
        expected: SpiffeId,
        protocol: Protocol,
        shown_not_after: u64,
    ) -> Session {
        let role = Role::Client(expected, protocol);
        Session::new(Tls::client(connection), role, shown_not_after)
    }

    pub(crate) fn server(connection: UnbufferedServerConnection, asked: Arc<Asked>) -> Session {
        Session::new(Tls::server(connection), Role::Server(asked), u64::MAX)
    }

    fn new(tls: Tls, role: Role, shown_not_after: u64) -> Session {
        Session {
            tls,
            role,
            peer: None,
            server: None,
            protocol: None,
            shown_not_after,
        }
    }

    /// Who is at the other end, once that is proven.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// The identity that the client asked for, once the session is established.
    pub fn server_id(&self) -> Option<&SpiffeId> {
        self.server.as_ref()
    }

    /// What is spoken, once the session is established.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// What the peer showed, in this handshake or the one that is resumed.
    pub(crate) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.tls.certificates()
    }

    pub(crate) fn is_client(&self) -> bool {
        matches!(self.role, Role::Client(..))
    }

    /// When the first of both certificates expires, in seconds since 1970. Meaningful once the
    /// session is established.
    pub fn not_after(&self) -> u64 {
        let peer = self.peer.as_ref().map_or(u64::MAX, |peer| peer.not_after);
        peer.min(self.shown_not_after)
    }

    /// Bytes of ciphertext that wait for the rest of their record: at most so much plaintext comes of them.
    pub fn held(&self) -> usize {
        self.tls.held()
    }

    /// Takes ciphertext, hands plaintext to `plain`, and adds to `out` what is to be sent in answer. Call
    /// it with nothing to begin: a client speaks first.
    ///
    /// # Errors
    /// When the peer is refused or breaks the rules. What was added to `out` tells it why.
    pub fn receive(
        &mut self,
        cipher: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<Received, TlsError> {
        let progress = self.tls.receive(cipher, out, plain).map_err(|refusal| {
            // The library has no word for it.
            TlsError::Refused(match &self.role {
                Role::Server(asked) if asked.is_missing() => Refusal::UnknownServer,
                _ => refusal,
            })
        })?;
        let fresh = progress.is_established && self.peer.is_none();
        if fresh {
            self.establish()?;
        }
        Ok(Received {
            established: fresh,
            closed: progress.is_closed,
        })
    }

    /// Makes ciphertext of plaintext, at most [`MAX_PLAINTEXT`](crate::MAX_PLAINTEXT) bytes of it. Returns how many
    /// bytes of `out` are to be sent.
    ///
    /// # Errors
    /// When the session is not established, or its keys are used up.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, TlsError> {
        self.tls.seal(plain, out)
    }

    /// Says that nothing more will be sent (RFC 8446 section 6.1); the peer may still send. Returns how
    /// many bytes of `out` are to be sent.
    ///
    /// # Errors
    /// When the session is not established.
    pub fn close(&mut self, out: &mut [u8]) -> Result<usize, TlsError> {
        self.tls.close(out)
    }

    /// Learns who the peer is, and compares it with the identity that we called.
    fn establish(&mut self) -> Result<(), TlsError> {
        let protocol = self.tls.alpn().and_then(Protocol::of);
        let wanted = match (&self.role, protocol) {
            (Role::Client(_, wanted), Some(agreed)) => *wanted == agreed,
            (Role::Server(_), Some(_)) => true,
            (_, None) => false,
        };
        if !wanted {
            return Err(TlsError::Refused(Refusal::Protocol));
        }
        let leaf = self.certificates().and_then(<[_]>::first);
        let leaf = leaf.ok_or(TlsError::Refused(Refusal::Anonymous))?;
        let peer = Peer::read(leaf).map_err(TlsError::Refused)?;
        let server = match &self.role {
            // A resumed session verified nothing: it is the peer of the ticket, and that is looked at.
            Role::Client(expected, _) if peer.id != *expected => {
                return Err(TlsError::Refused(Refusal::WrongIdentity {
                    expected: expected.clone(),
                    found: peer.id,
                }));
            }
            Role::Client(expected, _) => expected.clone(),
            Role::Server(asked) => {
                let shown = asked.shown();
                let shown = shown.ok_or(TlsError::Refused(Refusal::UnknownServer))?;
                self.shown_not_after = shown.not_after();
                shown.id().clone()
            }
        };
        self.server = Some(server);
        self.protocol = protocol;
        self.peer = Some(peer);
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("server", &self.server)
            .field("closed", &self.tls.is_closed())
            .finish()
    }
}

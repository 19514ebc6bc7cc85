//! A TLS session with another node or a stock proxy: the identities at both ends, and the application protocol.
//!
//! ```text
//!   handshaking ── the peer has proven who it is ─▶ established ── close_notify, each way ─▶ over
//!        │                                               │
//!        └── refused: what is to be sent still says why ─┘
//! ```
//!
//! Which certificates a peer may have follows from the protocol: a node's for those between nodes, the own one of a
//! workload for those with stock proxies. A server knows the protocol only once its handshake is complete, so that it
//! says no more than close to a peer of the wrong kind.
//!
//! The [`Tls`] below it handles the bytes.

use std::fmt;
use std::sync::Arc;

use heddle_model::{SpiffeId, StockDestination};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;

use crate::identities::Asked;
use crate::tls::{Tls, TlsError};
use crate::verify::PeerKind;
use crate::{Peer, Protocol, Refusal};

#[cfg(test)]
mod tests;

/// A TLS session with one peer.
pub struct Session {
    tls: Tls,
    role: Role,
    peer: Option<Peer>,
    /// The identity that the client asked for; set once established.
    server: Option<SpiffeId>,
    /// The application protocol; set once established.
    protocol: Option<Protocol>,
    /// When our own certificate expires, in seconds since 1970.
    shown_not_after: u64,
}

enum Role {
    /// The identity that the client calls, and the protocol that it offers.
    Client(SpiffeId, Protocol),
    /// The server answers as the identity that the client asks for.
    Server(Arc<Asked>),
}

/// Result of processing some ciphertext.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// The handshake was completed by these bytes: [`Session::peer`] is now known.
    pub established: bool,
    /// The peer has sent `close_notify`.
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

    /// The proven identity of the peer, once the session is established.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// The identity that the client asked for, once the session is established.
    pub fn server_id(&self) -> Option<&SpiffeId> {
        self.server.as_ref()
    }

    /// What a stock proxy asked this server for, once the session is established. `None` for sessions between nodes.
    pub fn asked(&self) -> Option<&StockDestination> {
        match &self.role {
            Role::Server(asked) if self.peer.is_some() => asked.destination(),
            Role::Server(_) | Role::Client(..) => None,
        }
    }

    /// The application protocol, once the session is established.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// The peer's certificate chain, from this handshake or from the session that was resumed.
    pub(crate) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.tls.certificates()
    }

    pub(crate) fn is_client(&self) -> bool {
        matches!(self.role, Role::Client(..))
    }

    /// The earlier expiry of both certificates, in seconds since 1970. Meaningful once the session is established.
    pub fn not_after(&self) -> u64 {
        let peer = self.peer.as_ref().map_or(u64::MAX, |peer| peer.not_after);
        peer.min(self.shown_not_after)
    }

    /// Bytes of ciphertext that wait for the rest of their record: an upper limit on the plaintext still in it.
    pub fn held(&self) -> usize {
        self.tls.held()
    }

    /// Decrypts `cipher`, hands the plaintext to `plain`, and appends the bytes to send in reply to `out`. A client
    /// starts the handshake by calling it with empty input.
    ///
    /// # Errors
    /// When a certificate is rejected or the peer breaks the protocol. An alert to send may then be in `out`.
    pub fn receive(
        &mut self,
        cipher: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<Received, TlsError> {
        let progress = self.tls.receive(cipher, out, plain).map_err(|refusal| {
            // rustls has no error for an unknown server name.
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

    /// Encrypts at most [`MAX_PLAINTEXT`](crate::MAX_PLAINTEXT) bytes into `out`. Returns the number of bytes to send.
    ///
    /// # Errors
    /// When the session is not established, or its keys have reached their limit.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, TlsError> {
        self.tls.seal(plain, out)
    }

    /// Half-closes: sends `close_notify` (RFC 8446 section 6.1); the peer may still send. Returns the number of bytes
    /// of `out` to send.
    ///
    /// # Errors
    /// When the session is not established.
    pub fn close(&mut self, out: &mut [u8]) -> Result<usize, TlsError> {
        self.tls.close(out)
    }

    /// Reads the peer's identity from its certificate, and on a client compares it with the identity that was called.
    /// Resumed sessions are judged here like new ones.
    fn establish(&mut self) -> Result<(), TlsError> {
        let agreed = self.tls.alpn().and_then(Protocol::of);
        let protocol = agreed.filter(|agreed| match &self.role {
            Role::Client(_, wanted) => wanted == agreed,
            // A stock proxy names its destination in the server name, a node never does.
            Role::Server(asked) => agreed.is_stock() == asked.destination().is_some(),
        });
        let protocol = protocol.ok_or(TlsError::Refused(Refusal::Protocol))?;
        let leaf = self.certificates().and_then(<[_]>::first);
        let leaf = leaf.ok_or(TlsError::Refused(Refusal::Anonymous))?;
        let peer = Peer::read(leaf).map_err(TlsError::Refused)?;
        let kind = PeerKind::of(protocol);
        kind.check(&peer).map_err(TlsError::Refused)?;
        let server = match &self.role {
            // A resumption verifies no certificate, but the ticket still has the peer's: compare its identity here.
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
        self.protocol = Some(protocol);
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

//! One TLS 1.3 connection (RFC 8446) as a state machine. It owns no socket.
//!
//! ```text
//!   handshaking ── the peer has proven who it is ─▶ established ── close_notify, each way ─▶ over
//!        │                                               │
//!        └── refused: what is to be sent still says why ─┘
//! ```
//!
//! Ciphertext is given to [`Session::receive`], which hands out plaintext and keeps at most one record
//! that is not whole; an idle session holds no buffer. [`Session::seal`] makes ciphertext of plaintext.

use std::fmt;
use std::sync::Arc;

use heddle_model::SpiffeId;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedConnectionCommon, UnbufferedStatus,
};

use crate::identities::Asked;
use crate::{Peer, Protocol, Refusal};

#[cfg(test)]
mod tests;

/// Most plaintext that is sealed at once, in bytes: four records.
pub const MAX_PLAINTEXT: usize = 64 * 1024;
/// Room for what [`Session::seal`] makes of that much: head, content type and tag for each record, and
/// what a change of keys takes.
pub const MAX_SEALED: usize = MAX_PLAINTEXT + 4 * 22 + 1024;
/// Ciphertext that may wait for the rest of a record, or a handshake message for its other records
/// (RFC 8446 section 5.1; the library's own bound for such a message), in bytes.
const MAX_INCOMING: usize = 96 * 1024;
/// First guess at the length of what a handshake says at once.
const FLIGHT_BYTES: usize = 4096;

/// A session with a peer.
pub struct Session {
    machine: Machine,
    role: Role,
    /// A record, or a handshake message, that is not whole.
    incoming: Vec<u8>,
    peer: Option<Peer>,
    /// The identity that the client asked for; known once established.
    server: Option<SpiffeId>,
    /// What is spoken; known once established.
    protocol: Option<Protocol>,
    /// When the certificate that we showed expires, in seconds since 1970.
    shown_not_after: u64,
    closed: bool,
}

enum Machine {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
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

/// Why a session cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsError {
    /// One side is not believed, or breaks the rules.
    Refused(Refusal),
    /// It is not established yet.
    TooEarly,
    /// As much was sent as one set of keys may protect.
    Exhausted,
}

impl Session {
    pub(crate) fn client(
        connection: UnbufferedClientConnection,
        expected: SpiffeId,
        protocol: Protocol,
        shown_not_after: u64,
    ) -> Session {
        let machine = Machine::Client(Box::new(connection));
        Session::new(machine, Role::Client(expected, protocol), shown_not_after)
    }

    pub(crate) fn server(connection: UnbufferedServerConnection, asked: Arc<Asked>) -> Session {
        let machine = Machine::Server(Box::new(connection));
        Session::new(machine, Role::Server(asked), u64::MAX)
    }

    fn new(machine: Machine, role: Role, shown_not_after: u64) -> Session {
        Session {
            machine,
            role,
            incoming: Vec::new(),
            peer: None,
            server: None,
            protocol: None,
            shown_not_after,
            closed: false,
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
        match &self.machine {
            Machine::Client(machine) => machine.peer_certificates(),
            Machine::Server(machine) => machine.peer_certificates(),
        }
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
        self.incoming.len()
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
        let mut driven = if self.incoming.is_empty() {
            // The usual case: whole records, which need not be kept.
            let driven = self.machine.drive(cipher, out, plain);
            self.incoming.extend_from_slice(&cipher[driven.discard..]);
            driven
        } else {
            self.incoming.extend_from_slice(cipher);
            let driven = self.machine.drive(&mut self.incoming, out, plain);
            self.incoming.drain(..driven.discard);
            driven
        };
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        if let Some(refusal) = driven.refusal.take() {
            // The library has no word for it.
            return Err(TlsError::Refused(match &self.role {
                Role::Server(asked) if asked.is_missing() => Refusal::UnknownServer,
                _ => refusal,
            }));
        }
        if self.incoming.len() > MAX_INCOMING {
            let why = "a handshake message is too long".to_owned();
            return Err(TlsError::Refused(Refusal::Tls(why)));
        }
        let fresh = driven.established && self.peer.is_none();
        if fresh {
            self.establish()?;
        }
        self.closed |= driven.closed;
        Ok(Received {
            established: fresh,
            closed: self.closed,
        })
    }

    /// Makes ciphertext of plaintext, at most [`MAX_PLAINTEXT`] bytes of it. Returns how many bytes of
    /// `out` are to be sent.
    ///
    /// # Errors
    /// When the session is not established, or its keys are used up.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, TlsError> {
        debug_assert!(plain.len() <= MAX_PLAINTEXT);
        self.write(out, |writer, out| writer.encrypt(plain, out))
    }

    /// Says that nothing more will be sent (RFC 8446 section 6.1); the peer may still send. Returns how
    /// many bytes of `out` are to be sent.
    ///
    /// # Errors
    /// When the session is not established.
    pub fn close(&mut self, out: &mut [u8]) -> Result<usize, TlsError> {
        self.write(out, |writer, out| writer.queue_close_notify(out))
    }

    fn write(
        &mut self,
        out: &mut [u8],
        write: impl FnOnce(&mut dyn Writer, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<usize, TlsError> {
        let written = match &mut self.machine {
            Machine::Client(machine) => put(&mut ***machine, &mut self.incoming, out, write),
            Machine::Server(machine) => put(&mut ***machine, &mut self.incoming, out, write),
        }?;
        Ok(written)
    }

    /// Learns who the peer is, and compares it with the identity that we called.
    fn establish(&mut self) -> Result<(), TlsError> {
        let protocol = match &self.machine {
            Machine::Client(machine) => machine.alpn_protocol(),
            Machine::Server(machine) => machine.alpn_protocol(),
        };
        let protocol = protocol.and_then(Protocol::of);
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

/// What a look at some ciphertext came to.
#[derive(Default)]
struct Driven {
    /// Bytes from the front that are done with.
    discard: usize,
    established: bool,
    closed: bool,
    refusal: Option<Refusal>,
}

impl Machine {
    fn drive(
        &mut self,
        cipher: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Driven {
        match self {
            Machine::Client(machine) => drive(&mut ***machine, cipher, out, plain),
            Machine::Server(machine) => drive(&mut ***machine, cipher, out, plain),
        }
    }
}

/// What the library calls the same on both sides but does not name.
trait Process {
    type Data;
    fn process<'c, 'i>(&'c mut self, cipher: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Process for UnbufferedConnectionCommon<ClientConnectionData> {
    type Data = ClientConnectionData;
    fn process<'c, 'i>(&'c mut self, cipher: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(cipher)
    }
}

impl Process for UnbufferedConnectionCommon<ServerConnectionData> {
    type Data = ServerConnectionData;
    fn process<'c, 'i>(&'c mut self, cipher: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(cipher)
    }
}

fn drive<P: Process>(
    machine: &mut P,
    cipher: &mut [u8],
    out: &mut Vec<u8>,
    plain: &mut dyn FnMut(&[u8]),
) -> Driven {
    let mut driven = Driven::default();
    loop {
        let UnbufferedStatus { discard, state } = machine.process(&mut cipher[driven.discard..]);
        let mut done = false;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(Ok(record)) = traffic.next_record() {
                    plain(record.payload);
                }
            }
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            // What was encoded is in `out`, which the caller sends.
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => driven.closed = true,
            Ok(ConnectionState::WriteTraffic(_)) => {
                driven.established = true;
                done = true;
            }
            Ok(ConnectionState::Closed) => {
                driven.closed = true;
                done = true;
            }
            Ok(ConnectionState::BlockedHandshake) => done = true,
            // No client was offered to send any.
            Ok(_) => {
                driven.refusal = Some(Refusal::Tls("early data".to_owned()));
                done = true;
            }
            Err(error) => {
                driven.refusal = Some(error.into());
                done = true;
            }
        }
        driven.discard += discard;
        if done {
            break;
        }
    }
    if driven.refusal.is_some() {
        // The alert that says so is the next thing that the machine wants to say, and the last.
        let state = machine.process(&mut cipher[driven.discard..]).state;
        if let Ok(ConnectionState::EncodeTlsData(data)) = state {
            encode(data, out);
        }
    }
    driven
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut room = FLIGHT_BYTES;
    loop {
        out.resize(start + room, 0);
        match data.encode(&mut out[start..]) {
            Ok(written) => return out.truncate(start + written),
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > room =>
            {
                room = required_size;
            }
            // It was encoded before, or asks for less than it had: there is nothing to send.
            Err(_) => return out.truncate(start),
        }
    }
}

/// The library's writer, of either side.
trait Writer {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError>;
    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<D> Writer for rustls::unbuffered::WriteTraffic<'_, D> {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError> {
        Self::encrypt(self, plain, out)
    }
    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError> {
        Self::queue_close_notify(self, out)
    }
}

/// Comes to the state in which plaintext can be sealed; what is to be sent before it goes first.
fn put<P: Process>(
    machine: &mut P,
    incoming: &mut Vec<u8>,
    out: &mut [u8],
    write: impl FnOnce(&mut dyn Writer, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<usize, TlsError> {
    let mut written = 0;
    let mut discarded = 0;
    let result = loop {
        // An unfinished message stays where the machine has seen it.
        let UnbufferedStatus { discard, state } = machine.process(&mut incoming[discarded..]);
        match state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                discarded += discard;
                break match write(&mut traffic, &mut out[written..]) {
                    Ok(n) => Ok(written + n),
                    Err(_) => Err(TlsError::Exhausted),
                };
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                match data.encode(&mut out[written..]) {
                    Ok(n) => written += n,
                    Err(_) => break Err(TlsError::Exhausted),
                }
            }
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => {}
            Ok(_) => break Err(TlsError::TooEarly),
            Err(error) => break Err(TlsError::Refused(error.into())),
        }
        discarded += discard;
    };
    incoming.drain(..discarded);
    result
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("server", &self.server)
            .field("closed", &self.closed)
            .finish()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Refused(refusal) => refusal.fmt(f),
            TlsError::TooEarly => f.write_str("the handshake is not over"),
            TlsError::Exhausted => f.write_str("the keys are used up"),
        }
    }
}

impl std::error::Error for TlsError {}

//! One TLS 1.3 connection (RFC 8446) as a state machine: ciphertext in, plaintext out, and the other way round. Whose
//! certificates are believed, and what a peer may be, is for its configuration to say: nothing here is of the mesh.
//!
//! Ciphertext is given to [`Tls::receive`], which hands out plaintext and keeps at most one record that is not whole; an
//! idle connection holds no buffer. [`Tls::seal`] makes ciphertext of plaintext.

use std::fmt;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedConnectionCommon, UnbufferedStatus,
};

use crate::Refusal;

/// Most plaintext that is sealed at once, in bytes: four records.
pub const MAX_PLAINTEXT: usize = 64 * 1024;
/// Room for what [`Session::seal`](crate::Session::seal) makes of that much: head, content type and tag for each
/// record, and what a change of keys takes.
pub const MAX_SEALED: usize = MAX_PLAINTEXT + 4 * 22 + 1024;
/// Ciphertext that may wait for the rest of a record, or a handshake message for its other records
/// (RFC 8446 section 5.1; the library's own bound for such a message), in bytes.
const MAX_INCOMING: usize = 96 * 1024;
/// First guess at the length of what a handshake says at once.
const FLIGHT_BYTES: usize = 4096;

/// One connection. It owns no socket.
pub(crate) struct Tls {
    machine: Machine,
    /// A record, or a handshake message, that is not whole.
    incoming: Vec<u8>,
    is_closed: bool,
}

enum Machine {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The handshake is over.
    pub(crate) is_established: bool,
    /// The peer has said that it will send no more.
    pub(crate) is_closed: bool,
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

impl Tls {
    pub(crate) fn client(connection: UnbufferedClientConnection) -> Self {
        Tls::new(Machine::Client(Box::new(connection)))
    }

    pub(crate) fn server(connection: UnbufferedServerConnection) -> Self {
        Tls::new(Machine::Server(Box::new(connection)))
    }

    fn new(machine: Machine) -> Self {
        Tls {
            machine,
            incoming: Vec::new(),
            is_closed: false,
        }
    }

    /// What the peer showed, in this handshake or the one that is resumed.
    pub(crate) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.machine {
            Machine::Client(machine) => machine.peer_certificates(),
            Machine::Server(machine) => machine.peer_certificates(),
        }
    }

    /// What both want to speak (RFC 7301), once established.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match &self.machine {
            Machine::Client(machine) => machine.alpn_protocol(),
            Machine::Server(machine) => machine.alpn_protocol(),
        }
    }

    /// Whether it took no handshake of its own.
    #[cfg(test)]
    pub(crate) fn was_resumed(&self) -> bool {
        let kind = match &self.machine {
            Machine::Client(machine) => machine.handshake_kind(),
            Machine::Server(machine) => machine.handshake_kind(),
        };
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Whether nothing is kept between two calls.
    #[cfg(test)]
    pub(crate) fn holds_no_buffer(&self) -> bool {
        self.incoming.capacity() == 0
    }

    /// Bytes of ciphertext that wait for the rest of their record: at most so much plaintext comes of them.
    pub(crate) fn held(&self) -> usize {
        self.incoming.len()
    }

    /// Whether the peer has said that it will send no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes ciphertext, hands plaintext to `plain`, and adds to `out` what is to be sent in answer. Call
    /// it with nothing to begin: a client speaks first.
    ///
    /// # Errors
    /// When the peer is refused or breaks the rules. What was added to `out` tells it why.
    pub(crate) fn receive(
        &mut self,
        cipher: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, Refusal> {
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
            return Err(refusal);
        }
        if self.incoming.len() > MAX_INCOMING {
            let why = "a handshake message is too long".to_owned();
            return Err(Refusal::Tls(why));
        }
        self.is_closed |= driven.closed;
        Ok(Progress {
            is_established: driven.established,
            is_closed: self.is_closed,
        })
    }

    /// Makes ciphertext of plaintext, at most [`MAX_PLAINTEXT`] bytes of it. Returns how many bytes of
    /// `out` are to be sent.
    ///
    /// # Errors
    /// When the handshake is not over, or the keys are used up.
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, TlsError> {
        debug_assert!(plain.len() <= MAX_PLAINTEXT);
        self.write(out, |writer, out| writer.encrypt(plain, out))
    }

    /// Says that nothing more will be sent (RFC 8446 section 6.1); the peer may still send. Returns how
    /// many bytes of `out` are to be sent.
    ///
    /// # Errors
    /// When the handshake is not over.
    pub(crate) fn close(&mut self, out: &mut [u8]) -> Result<usize, TlsError> {
        self.write(out, |writer, out| writer.queue_close_notify(out))
    }

    fn write(
        &mut self,
        out: &mut [u8],
        write: impl FnOnce(&mut dyn Writer, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<usize, TlsError> {
        match &mut self.machine {
            Machine::Client(machine) => put(&mut ***machine, &mut self.incoming, out, write),
            Machine::Server(machine) => put(&mut ***machine, &mut self.incoming, out, write),
        }
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

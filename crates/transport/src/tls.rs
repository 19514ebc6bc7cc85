//! One TLS 1.3 connection (RFC 8446) as a state machine: ciphertext in, plaintext out, and the reverse. The rustls
//! configuration decides which certificates are accepted; this module knows nothing of the mesh.
//!
//! [`Tls::receive`] takes ciphertext and hands out plaintext; between calls it keeps only an incomplete record or
//! handshake message, so an idle connection holds no buffer. [`Tls::seal`] encrypts plaintext.

use std::fmt;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedConnectionCommon, UnbufferedStatus,
};

use crate::Refusal;

/// Limit on the plaintext of one call to [`Session::seal`](crate::Session::seal), in bytes: four records.
pub const MAX_PLAINTEXT: usize = 64 * 1024;
/// Buffer size that holds the ciphertext of [`MAX_PLAINTEXT`] bytes, in bytes: 22 per record for header, content type
/// and tag, and 1,024 for a key update.
pub const MAX_SEALED: usize = MAX_PLAINTEXT + 4 * 22 + 1024;
/// Limit on buffered ciphertext, in bytes: an incomplete record, or an incomplete handshake message that spans several
/// records (RFC 8446 section 5.1). rustls has the same limit for such a message.
const MAX_INCOMING: usize = 96 * 1024;
/// Initial buffer size for one handshake flight, in bytes.
const FLIGHT_BYTES: usize = 4096;

/// One connection. The caller owns the socket.
pub(crate) struct Tls {
    machine: Machine,
    /// An incomplete record or handshake message.
    incoming: Vec<u8>,
    is_closed: bool,
}

enum Machine {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// State of a connection after some ciphertext was processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) is_established: bool,
    /// The peer has sent `close_notify`.
    pub(crate) is_closed: bool,
}

/// Why a session has failed, or cannot send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsError {
    /// One side rejected the other's certificate, or broke the TLS protocol.
    Refused(Refusal),
    /// The handshake is not complete yet.
    TooEarly,
    /// The keys have protected as many records as they may.
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

    /// The peer's certificate chain, from this handshake or from the session that was resumed.
    pub(crate) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.machine {
            Machine::Client(machine) => machine.peer_certificates(),
            Machine::Server(machine) => machine.peer_certificates(),
        }
    }

    /// The application protocol that both sides agreed on (RFC 7301), once established.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match &self.machine {
            Machine::Client(machine) => machine.alpn_protocol(),
            Machine::Server(machine) => machine.alpn_protocol(),
        }
    }

    /// Whether the handshake resumed an earlier session.
    #[cfg(test)]
    pub(crate) fn was_resumed(&self) -> bool {
        let kind = match &self.machine {
            Machine::Client(machine) => machine.handshake_kind(),
            Machine::Server(machine) => machine.handshake_kind(),
        };
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Whether no buffer is allocated between two calls.
    #[cfg(test)]
    pub(crate) fn holds_no_buffer(&self) -> bool {
        self.incoming.capacity() == 0
    }

    /// Bytes of ciphertext that wait for the rest of their record: an upper limit on the plaintext still in it.
    pub(crate) fn held(&self) -> usize {
        self.incoming.len()
    }

    /// Whether the peer has sent `close_notify`.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Decrypts `cipher`, hands the plaintext to `plain`, and appends the bytes to send in reply to `out`. A client
    /// starts the handshake by calling it with empty input.
    ///
    /// # Errors
    /// When a certificate is rejected or the peer breaks the protocol. `out` then holds the alert to send.
    pub(crate) fn receive(
        &mut self,
        cipher: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, Refusal> {
        let mut driven = if self.incoming.is_empty() {
            // The usual case: whole records, nothing to buffer.
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

    /// Encrypts at most [`MAX_PLAINTEXT`] bytes into `out`. Returns the number of bytes to send.
    ///
    /// # Errors
    /// When the handshake is not complete, or the keys have reached their limit.
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, TlsError> {
        debug_assert!(plain.len() <= MAX_PLAINTEXT);
        self.write(out, |writer, out| writer.encrypt(plain, out))
    }

    /// Half-closes: sends `close_notify` (RFC 8446 section 6.1); the peer may still send. Returns the number of bytes
    /// of `out` to send.
    ///
    /// # Errors
    /// When the handshake is not complete.
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

/// Result of processing some ciphertext.
#[derive(Default)]
struct Driven {
    /// Bytes at the front that were processed.
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

/// The method that rustls has on both sides, but in no common trait.
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
            // The encoded bytes are already in `out`, which the caller sends.
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
            // Early data: the only state left. This server accepts none.
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
        // The next and last output of the machine is the alert for this error.
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
            // The data was encoded before, or rustls asks for less room than it had: nothing to send.
            Err(_) => return out.truncate(start),
        }
    }
}

/// The rustls writer, for both sides.
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

/// Drives the machine until it can encrypt; output that is still pending, such as a key update, goes first.
fn put<P: Process>(
    machine: &mut P,
    incoming: &mut Vec<u8>,
    out: &mut [u8],
    write: impl FnOnce(&mut dyn Writer, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<usize, TlsError> {
    let mut written = 0;
    let mut discarded = 0;
    let result = loop {
        // An incomplete message stays in the buffer, which the machine has already seen.
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
            TlsError::TooEarly => f.write_str("the handshake is not complete"),
            TlsError::Exhausted => f.write_str("the keys have reached their limit"),
        }
    }
}

impl std::error::Error for TlsError {}

//! The traffic over the interfaces of a network namespace, as the kernel shows it to a packet socket.
//!
//! It answers one question: whether data that should be secret can be read on the way. So it understands only IPv4 and
//! TCP, and of TLS the ServerHello, which is not encrypted.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use anyhow::Context;
use memchr::memmem;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};

/// The receive buffer, for the packets between two reads, in bytes.
const BUFFER: usize = 64 << 20;
/// More than the longest packet of a loopback interface, in bytes.
const MAX_PACKET: usize = 128 << 10;
/// `ETH_P_ALL`: packets of every protocol.
const EVERYTHING: u16 = 3;
const TCP: u8 = 6;

/// A packet socket that sees every packet from its creation on.
pub(super) struct Wire(OwnedFd);

impl Wire {
    /// Starts to listen.
    ///
    /// # Errors
    /// When that is not allowed: it needs root.
    pub(super) fn open() -> anyhow::Result<Wire> {
        let protocol = NonZeroU32::new(u32::from(EVERYTHING.to_be())).map(Protocol::from_raw);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // DGRAM: packets begin with the network header, whatever the link is
        let socket =
            rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol)
                .context("packet socket")?;
        if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            set_socket_recv_buffer_size(&socket, BUFFER)?;
        }
        Ok(Wire(socket))
    }

    /// The payload of the packets since the last call.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) fn passed(&self) -> anyhow::Result<Passed> {
        let mut passed = Passed::default();
        let mut packet = vec![0; MAX_PACKET];
        loop {
            match rustix::net::recv(&self.0, &mut packet[..], RecvFlags::empty()) {
                Ok((_, count)) => passed.add(&packet[..count.min(MAX_PACKET)]),
                Err(Errno::AGAIN) => return Ok(passed),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("packet socket"),
            }
        }
    }
}

/// Source port, destination port and sequence number.
type SegmentKey = (u16, u16, u32);

/// The payload of TCP segments.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// By key, since a loopback interface shows each segment twice.
    segments: BTreeMap<SegmentKey, Vec<u8>>,
}

impl Passed {
    fn add(&mut self, packet: &[u8]) {
        if let Some((key, payload)) = segment(packet) {
            self.segments.insert(key, payload.to_owned());
        }
    }

    /// Payloads that were sent to a port.
    pub(super) fn to(&self, port: u16) -> impl Iterator<Item = &[u8]> {
        let of_port = self.segments.iter().filter(move |(key, _)| key.1 == port);
        of_port.map(|(_, payload)| payload.as_slice())
    }

    /// Payloads that were sent from a port.
    pub(super) fn from(&self, port: u16) -> impl Iterator<Item = &[u8]> {
        let of_port = self.segments.iter().filter(move |(key, _)| key.0 == port);
        of_port.map(|(_, payload)| payload.as_slice())
    }
}

/// Whether one of these payloads holds the text.
pub(super) fn readable<'a>(mut payloads: impl Iterator<Item = &'a [u8]>, text: &str) -> bool {
    payloads.any(|payload| memmem::find(payload, text.as_bytes()).is_some())
}

/// Key and payload of a TCP segment; `None` where there is no payload.
fn segment(packet: &[u8]) -> Option<(SegmentKey, &[u8])> {
    let first = *packet.first()?;
    if first >> 4 != 4 || *packet.get(9)? != TCP {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    // A segment that is longer than the limit of an IP packet has a total length of 0.
    let packet = match total {
        0 => packet,
        total => packet.get(..total)?,
    };
    let tcp = packet.get(usize::from(first & 0xf) * 4..)?;
    let port = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
    (!payload.is_empty()).then_some(((port(0)?, port(2)?, sequence), payload))
}

/// The cipher suite that a TLS server chose, if these are the first bytes that it sent: a record of type
/// handshake whose message is a ServerHello (RFC 8446 sections 5.1 and 4.1.3).
pub(super) fn chosen_suite(sent: &[u8]) -> Option<u16> {
    let message = sent.strip_prefix(&[22, 3, 3])?.get(2..)?;
    // type, length, version, random
    let rest = message.strip_prefix(&[2])?.get(3 + 2 + 32..)?;
    let session = usize::from(*rest.first()?);
    let suite = rest.get(1 + session..3 + session)?;
    Some(u16::from_be_bytes([suite[0], suite[1]]))
}

#[cfg(test)]
mod tests;

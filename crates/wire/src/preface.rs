//! The first bytes of a connection between two nodes: the endpoint that it is for.
//!
//! ```text
//!   0      1      2        4                    20       22      24        25 …        …             …
//!   ┌──────┬──────┬────────┬────────────────────┬────────┬───────┬─────────┬───────────┬──────┬──────┬──────┬────────┐
//!   │ kind │flags │ length │ endpoint's address │ its    │ port  │ length  │ namespace │ len. │ name │ len. │ caller │
//!   │      │      │        │ (IPv6, or mapped)  │ port   │ of the Service  │           │      │      │      │        │
//!   └──────┴──────┴────────┴────────────────────┴────────┴───────┴─────────┴───────────┴──────┴──────┴──────┴────────┘
//! ```
//!
//! Numbers are big-endian; `length` counts the bytes after it. Bit 0 of the flags: the caller's name is present; the
//! other bits are 0. TLS carries the identities of both sides, ALPN the version of the protocol. A connection for bytes
//! ([`Kind::Bytes`]) is first answered with one byte ([`Status`]), so that the caller learns whether the endpoint can
//! be reached. A connection for HTTP is answered in HTTP.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

#[cfg(test)]
mod tests;

/// Limit on a preface, in bytes.
pub const MAX_PREFACE_BYTES: usize = HEAD + FIXED + 3 * (1 + MAX_NAME);

/// Bytes of kind, flags and length.
const HEAD: usize = 4;
/// Flag: the preface names the caller.
const NAMES_CALLER: u8 = 1;
/// Bytes of the endpoint's address and port, and of the Service's port.
const FIXED: usize = 16 + 2 + 2;
/// Limit on a namespace or name (RFC 1123, as in Kubernetes), in bytes.
const MAX_NAME: usize = 253;

/// The traffic on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTTP requests; the first one follows the preface.
    Http,
    /// Raw bytes, or a protocol that is not known yet.
    Bytes,
}

/// The first bytes of a connection: its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface<'a> {
    /// The traffic on the connection.
    pub kind: Kind,
    /// The endpoint that the calling node chose.
    pub endpoint: SocketAddr,
    /// The namespace of the called Service.
    pub namespace: &'a str,
    /// The name of the called Service.
    pub service: &'a str,
    /// The called port of the Service.
    pub port: u16,
    /// The name of the calling workload, in the namespace of the caller's identity. It is for metrics and logs only:
    /// the calling node asserts it, but proves only the identity.
    pub caller: Option<&'a str>,
}

/// The first byte of the answer on a connection for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The endpoint is connected: all further bytes pass between it and the client.
    Joined,
    /// Policies deny the connection.
    Denied,
    /// The endpoint is not on this node, or does not belong to the Service.
    NoEndpoint,
    /// The endpoint accepts no connection.
    ConnectFailed,
    /// A limit is reached, or the node is shutting down: another endpoint may accept the connection.
    Busy,
}

/// A malformed preface or status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl<'a> Preface<'a> {
    /// Parses a preface at the front of `bytes`. Returns it with its length, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`Malformed`], as soon as it is certain. The characters of names are not checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let kind = match bytes.first() {
            None => return Ok(None),
            Some(1) => Kind::Http,
            Some(2) => Kind::Bytes,
            Some(_) => return Err(Malformed("its kind is unknown")),
        };
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
            return Ok(None);
        };
        let names_caller = match head[1] {
            0 => false,
            NAMES_CALLER => true,
            _ => return Err(Malformed("its flags are unknown")),
        };
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if !(FIXED + 4..=MAX_PREFACE_BYTES - HEAD).contains(&length) {
            return Err(Malformed("its length is out of bounds"));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let mut body = PrefaceReader(body);
        let preface = Preface {
            kind,
            endpoint: SocketAddr::new(body.address()?, body.number()?),
            port: body.number()?,
            namespace: body.name()?,
            service: body.name()?,
            caller: match names_caller {
                true => Some(body.name()?),
                false => None,
            },
        };
        match body.0 {
            [] => Ok(Some((preface, HEAD + length))),
            _ => Err(Malformed("extra bytes follow the names")),
        }
    }

    /// Appends the encoded preface to `out`.
    ///
    /// # Errors
    /// [`Malformed`] when a name is empty or too long; then nothing is added.
    pub fn write_to(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let names = || {
            [self.namespace, self.service]
                .into_iter()
                .chain(self.caller)
        };
        for name in names() {
            if !(1..=MAX_NAME).contains(&name.len()) {
                return Err(Malformed("a name is empty or too long"));
            }
        }
        let length = FIXED + names().map(|name| 1 + name.len()).sum::<usize>();
        out.extend_from_slice(&[
            match self.kind {
                Kind::Http => 1,
                Kind::Bytes => 2,
            },
            match self.caller {
                Some(_) => NAMES_CALLER,
                None => 0,
            },
        ]);
        // Names are limited, so the sum fits 16 bits.
        out.extend_from_slice(&(length as u16).to_be_bytes());
        let address = match self.endpoint.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        out.extend_from_slice(&address.octets());
        out.extend_from_slice(&self.endpoint.port().to_be_bytes());
        out.extend_from_slice(&self.port.to_be_bytes());
        for name in names() {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
        Ok(())
    }
}

/// The part of the payload that is not read yet.
struct PrefaceReader<'a>(&'a [u8]);

impl<'a> PrefaceReader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Malformed("it is cut"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn address(&mut self) -> Result<IpAddr, Malformed> {
        let mut octets = [0; 16];
        octets.copy_from_slice(self.take(16)?);
        Ok(Ipv6Addr::from(octets).to_canonical())
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn name(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::from(self.take(1)?[0]);
        if !(1..=MAX_NAME).contains(&length) {
            return Err(Malformed("a name is empty or too long"));
        }
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed("a name is not UTF-8"))
    }
}

impl Status {
    /// The byte on the wire.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Status::Joined => 0,
            Status::Denied => 1,
            Status::NoEndpoint => 2,
            Status::ConnectFailed => 3,
            Status::Busy => 4,
        }
    }

    /// Decodes the byte on the wire.
    ///
    /// # Errors
    /// [`Malformed`] for an unknown byte.
    pub fn from_byte(byte: u8) -> Result<Self, Malformed> {
        Ok(match byte {
            0 => Status::Joined,
            1 => Status::Denied,
            2 => Status::NoEndpoint,
            3 => Status::ConnectFailed,
            4 => Status::Busy,
            _ => return Err(Malformed("the status is unknown")),
        })
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the preface is malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

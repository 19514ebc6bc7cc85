//! One request or connection as one line.

use std::io::Write;
use std::net::SocketAddr;

use super::clock::Clock;
use super::json::escape;
use crate::{Reporter, Tls};

/// What is said about a request or a connection that is over, or about a connection that is open for long. Everything
/// borrowed: nothing is kept.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When the request began, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Which proxy speaks.
    pub reporter: Reporter,
    /// The workload that calls, `namespace/workload`, or `unidentified`.
    pub source: &'a str,
    /// Its identity, a SPIFFE ID; empty when it has none.
    pub source_principal: &'a str,
    /// The client of the connection: the workload that calls, or the proxy of its node.
    pub client: SocketAddr,
    /// The Service that was called, `namespace/name`; empty when none was found.
    pub destination_service: &'a str,
    /// The workload behind the endpoint, `namespace/workload`; empty when none was chosen, or it is none of the mesh.
    pub destination_workload: &'a str,
    /// How it went between nodes.
    pub tls: Tls,
    /// The route that matched, `namespace/name`; empty when there is none.
    pub route: &'a str,
    /// What the client spoke: `http/1.0`, `http/1.1`, or `tcp` for what is passed on as bytes.
    pub protocol: &'a str,
    /// The host that the request named, as it came; what stands before the last `@` is not logged, since it may be a
    /// password.
    pub authority: &'a [u8],
    /// The method as it came.
    pub method: &'a [u8],
    /// The path as it came; whatever follows the first `?` is not logged, since queries carry
    /// credentials.
    pub path: &'a [u8],
    /// The response's status; 0 when none was sent.
    pub status: u16,
    /// `ok`, the code of what went wrong, or [`OPEN`].
    pub reason: &'a str,
    /// Whose fault it was: `downstream`, `upstream`, `heddle`; empty when nothing went wrong.
    pub blame: &'a str,
    /// From the first byte of the request's head to the last byte of the response, in µs.
    pub duration_us: u64,
    /// The endpoint that answered, if one was reached.
    pub upstream: Option<SocketAddr>,
    /// Bytes of the request's body, as received.
    pub request_bytes: u64,
    /// Bytes of the response's body, as sent.
    pub response_bytes: u64,
    /// How many endpoints were tried.
    pub attempts: u32,
}

/// The reason of a connection that goes on: its line is written when it has been open for a while, and another when it
/// is over.
pub const OPEN: &str = "open";

/// Longest part of a path, a name, a method and a code that is logged, in bytes before escaping.
const MAX_PATH: usize = 1_024;
const MAX_NAME: usize = 256;
const MAX_METHOD: usize = 32;
const MAX_REASON: usize = 64;
/// Longest identity (SPIFFE ID, section 2.4, bounds it by 2,048; those of a mesh are far shorter).
const MAX_PRINCIPAL: usize = 512;

/// No line is longer: six names, an identity, reason, blame and protocol, a path and a method, six bytes each at
/// worst, and a kilobyte for keys and numbers.
pub(super) const MAX_LINE: usize =
    6 * (MAX_PATH + 6 * MAX_NAME + MAX_PRINCIPAL + MAX_METHOD + 3 * MAX_REASON) + 1_024;

impl Record<'_> {
    /// Appends the record as a line of JSON, written by the proxy of `node`, if that has a name.
    pub(super) fn write(&self, out: &mut Vec<u8>, clock: &mut Clock, node: &str) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(clock.format(self.unix_ms));
        out.push(b'"');
        let path = self.path.split(|b| *b == b'?').next().unwrap_or_default();
        let name = |out: &mut Vec<u8>, key, value: &str| text(out, key, value.as_bytes(), MAX_NAME);
        name(out, "node", node);
        name(out, "reporter", self.reporter.name());
        name(out, "source", self.source);
        let principal = self.source_principal.as_bytes();
        text(out, "source_principal", principal, MAX_PRINCIPAL);
        address(out, "client", Some(self.client));
        name(out, "destination_service", self.destination_service);
        name(out, "destination_workload", self.destination_workload);
        address(out, "upstream", self.upstream);
        name(out, "tls", self.tls.name());
        name(out, "route", self.route);
        text(out, "protocol", self.protocol.as_bytes(), MAX_REASON);
        let authority = self.authority.rsplit(|b| *b == b'@').next();
        text(out, "authority", authority.unwrap_or_default(), MAX_NAME);
        text(out, "method", self.method, MAX_METHOD);
        text(out, "path", path, MAX_PATH);
        number(out, "status", u64::from(self.status));
        text(out, "reason", self.reason.as_bytes(), MAX_REASON);
        text(out, "blame", self.blame.as_bytes(), MAX_REASON);
        number(out, "duration_us", self.duration_us);
        number(out, "request_bytes", self.request_bytes);
        number(out, "response_bytes", self.response_bytes);
        number(out, "attempts", u64::from(self.attempts));
        out.extend_from_slice(b"}\n");
    }
}

fn address(out: &mut Vec<u8>, name: &str, address: Option<SocketAddr>) {
    key(out, name);
    match address {
        Some(address) => {
            let written = write!(out, "\"{address}\"");
            debug_assert!(written.is_ok(), "a vector takes everything");
        }
        None => out.extend_from_slice(b"null"),
    }
}

fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn text(out: &mut Vec<u8>, name: &str, value: &[u8], max: usize) {
    key(out, name);
    out.push(b'"');
    escape(out, value, max);
    out.push(b'"');
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    key(out, name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

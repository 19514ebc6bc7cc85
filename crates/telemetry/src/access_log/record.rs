//! The log line of a request or a connection.

use std::io::Write;
use std::net::SocketAddr;

use super::clock::Clock;
use super::json::escape;
use crate::{Reporter, Tls};

/// The fields of a log line, for a finished request or connection, or for one that has been open for long. All fields
/// are borrowed: nothing is kept.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When the request began, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The proxy that writes the line.
    pub reporter: Reporter,
    /// The calling workload, `namespace/workload`, or `unidentified`.
    pub source: &'a str,
    /// SPIFFE ID of the calling workload; empty when it has none.
    pub source_principal: &'a str,
    /// The peer of the downstream connection: the calling workload, or the proxy of its node.
    pub client: SocketAddr,
    /// The Service that was called, `namespace/name`; empty when none was found.
    pub destination_service: &'a str,
    /// The workload behind the endpoint, `namespace/workload`; empty when no endpoint was chosen, or it is outside
    /// the mesh.
    pub destination_workload: &'a str,
    /// Whether the traffic between nodes was under mutual TLS.
    pub tls: Tls,
    /// The matching route, `namespace/name`; empty when there is none.
    pub route: &'a str,
    /// Protocol of the client, such as `http/1.1`; `tcp` for opaque bytes.
    pub protocol: &'a str,
    /// The authority of the request, as received. The part before the last `@` is not logged, since it may contain a
    /// password.
    pub authority: &'a [u8],
    /// The method, as received.
    pub method: &'a [u8],
    /// The path, as received. The query, from the first `?` on, is not logged, since queries may carry credentials.
    pub path: &'a [u8],
    /// The status of the response; 0 when no response was sent.
    pub status: u16,
    /// `ok`, the reason code of the failure, or [`OPEN`].
    pub reason: &'a str,
    /// Which side failed: `downstream`, `upstream` or `heddle`; empty on success.
    pub blame: &'a str,
    /// From the first byte of the request head to the last byte of the response, in µs.
    pub duration_us: u64,
    /// The endpoint that was reached, if any.
    pub upstream: Option<SocketAddr>,
    /// Bytes of the request body, as received.
    pub request_bytes: u64,
    /// Bytes of the response body, as sent.
    pub response_bytes: u64,
    /// Number of endpoints tried.
    pub attempts: u32,
}

/// The reason of a connection that is still open: one line is written when it has been open for a while, and another
/// when it ends.
pub const OPEN: &str = "open";

/// Limits for logging a path, a name, a method and a code, in bytes before escaping. Longer values are cut.
const MAX_PATH: usize = 1_024;
const MAX_NAME: usize = 256;
const MAX_METHOD: usize = 32;
const MAX_REASON: usize = 64;
/// Limit for a SPIFFE ID. The specification, section 2.4, allows 2,048 bytes; those of a mesh are far shorter.
const MAX_PRINCIPAL: usize = 512;

/// Upper bound of the length of a line: six names, an identity, reason, blame and protocol, a path and a method, with
/// each byte escaped to six at worst, and 1 KiB for keys and numbers.
pub(super) const MAX_LINE: usize =
    6 * (MAX_PATH + 6 * MAX_NAME + MAX_PRINCIPAL + MAX_METHOD + 3 * MAX_REASON) + 1_024;

impl Record<'_> {
    /// Appends the record as a line of JSON. `node` is the name of this proxy's node; it may be empty.
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

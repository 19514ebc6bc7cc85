//! One request as one line.

use std::io::Write;
use std::net::SocketAddr;

use super::clock::Clock;
use super::json::escape;

/// What is said about a finished request. Everything borrowed: nothing is kept.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When the request began, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The caller, `namespace/workload`, or `unidentified`.
    pub source: &'a str,
    /// The Service that was called, `namespace/name`; empty when none was found.
    pub destination_service: &'a str,
    /// The route that matched, `namespace/name`; empty when there is none.
    pub route: &'a str,
    /// The method as it came.
    pub method: &'a [u8],
    /// The path as it came; whatever follows the first `?` is not logged, since queries carry
    /// credentials.
    pub path: &'a [u8],
    /// The response's status; 0 when none was sent.
    pub status: u16,
    /// `ok`, or the code of what went wrong.
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

/// Longest part of a path, a name, a method and a code that is logged, in bytes before escaping.
const MAX_PATH: usize = 1_024;
const MAX_NAME: usize = 256;
const MAX_METHOD: usize = 32;
const MAX_REASON: usize = 64;

/// No line is longer: three names, reason and blame, a path and a method, six bytes each at
/// worst, and half a kilobyte for keys and numbers.
pub(super) const MAX_LINE: usize =
    6 * (MAX_PATH + 3 * MAX_NAME + MAX_METHOD + 2 * MAX_REASON) + 512;

impl Record<'_> {
    /// Appends the record as a line of JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>, clock: &mut Clock) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(clock.format(self.unix_ms));
        out.push(b'"');
        let path = self.path.split(|b| *b == b'?').next().unwrap_or_default();
        text(out, "source", self.source.as_bytes(), MAX_NAME);
        text(
            out,
            "destination_service",
            self.destination_service.as_bytes(),
            MAX_NAME,
        );
        text(out, "route", self.route.as_bytes(), MAX_NAME);
        text(out, "method", self.method, MAX_METHOD);
        text(out, "path", path, MAX_PATH);
        number(out, "status", u64::from(self.status));
        text(out, "reason", self.reason.as_bytes(), MAX_REASON);
        text(out, "blame", self.blame.as_bytes(), MAX_REASON);
        number(out, "duration_us", self.duration_us);
        key(out, "upstream");
        match self.upstream {
            Some(address) => {
                let written = write!(out, "\"{address}\"");
                debug_assert!(written.is_ok(), "a vector takes everything");
            }
            None => out.extend_from_slice(b"null"),
        }
        number(out, "request_bytes", self.request_bytes);
        number(out, "response_bytes", self.response_bytes);
        number(out, "attempts", u64::from(self.attempts));
        out.extend_from_slice(b"}\n");
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

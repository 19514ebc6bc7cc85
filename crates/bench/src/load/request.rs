//! The requests of a connection: a head like that of a front end, a browser or gRPC, a body, and the parts of both that
//! change with every request.
//!
//! A request is written once. Runs of `#` in it are *slots*: hexadecimal digits, which stay as they are, or are written
//! anew before every request. The digits come from a generator whose seed is the connection's number, so that every
//! system under test gets the same requests, at the cost of a few stores each.

use std::fmt::Write;
use std::ops::Range;

use clap::ValueEnum;

use heddle_model::Random;

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The bytes that bodies repeat.
const BODY: &[u8; 16] = b"0123456789abcdef";

/// The kind of client whose head a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Head {
    /// A browser's front end: a GET with eleven fields, about 450 bytes. It has no body and no slots.
    Plain,
    /// A browser behind an ingress: a POST with twelve fields.
    Browser,
    /// gRPC: a POST with eight fields. What it calls is a method, which never changes.
    Grpc,
}

/// The contents of a request.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) head: Head,
    /// Bytes of body to send.
    pub(crate) body_bytes: u64,
    /// Bytes of body to ask for.
    pub(crate) answer_bytes: u64,
    /// Whether the slots change with every request.
    pub(crate) changing: bool,
    /// Whether the body is a slot too, instead of always the same.
    pub(crate) random_body: bool,
    /// The end of the path, instead of the number of bytes that are asked for.
    pub(crate) tail: Option<String>,
}

/// A request that changes into the next one.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    slots: Vec<Range<usize>>,
    random: Random,
    changing: bool,
}

impl Request {
    /// The requests of a connection with this number.
    pub(crate) fn new(shape: &Shape, authority: &str, number: u64) -> Request {
        let mut bytes = text(shape, authority).into_bytes();
        let mut slots = slots(&bytes);
        let head = bytes.len();
        if shape.head != Head::Plain {
            let body = usize::try_from(shape.body_bytes).unwrap_or(usize::MAX);
            bytes.extend(BODY.iter().cycle().take(body));
        }
        if shape.random_body {
            slots.push(head..bytes.len());
        }
        let mut request = Request {
            bytes,
            slots,
            // Constant requests are the same on all connections.
            random: Random::new(if shape.changing { number } else { 0 }),
            changing: shape.changing,
        };
        request.fill();
        request
    }

    /// The bytes to send next.
    pub(crate) fn next(&mut self) -> &[u8] {
        if self.changing {
            self.fill();
        }
        &self.bytes
    }

    fn fill(&mut self) {
        let mut pool = 0;
        let mut left = 0;
        for slot in &self.slots {
            for digit in &mut self.bytes[slot.clone()] {
                if left == 0 {
                    (pool, left) = (self.random.draw(), 16);
                }
                *digit = DIGITS[(pool & 0xf) as usize];
                (pool, left) = (pool >> 4, left - 1);
            }
        }
    }
}

fn text(shape: &Shape, authority: &str) -> String {
    let Shape {
        body_bytes,
        answer_bytes,
        ..
    } = shape;
    let tail = shape.tail.clone();
    let tail = tail.unwrap_or_else(|| answer_bytes.to_string());
    let mut text = String::new();
    let written = match shape.head {
        Head::Plain => write!(
            text,
            "GET /api/v1/items/{tail}?page=2&sort=title HTTP/1.1\r\n\
             Host: {authority}\r\n\
             User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36\r\n\
             Accept: application/json, text/plain, */*\r\n\
             Accept-Language: en-GB,en;q=0.9\r\n\
             Accept-Encoding: identity\r\n\
             Referer: http://{authority}/catalogue\r\n\
             Cache-Control: no-cache\r\n\
             X-Request-Id: 5f1c7a52-9d0e-4b7e-8a35-2f6f3f0c9b11\r\n\
             Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
             X-Lab-Canary: no\r\n\
             Dnt: 1\r\n\
             \r\n"
        ),
        Head::Browser => write!(
            text,
            "POST /api/v1/items/############/{tail} HTTP/1.1\r\n\
             Host: {authority}\r\n\
             User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36\r\n\
             Accept: application/json, text/plain, */*\r\n\
             Accept-Language: en-GB,en;q=0.9\r\n\
             Accept-Encoding: gzip, deflate, br\r\n\
             Referer: http://{authority}/catalogue\r\n\
             Cache-Control: no-cache\r\n\
             Dnt: 1\r\n\
             Content-Type: application/json\r\n\
             Content-Length: {body_bytes}\r\n\
             X-Request-Id: ########-####-####-####-############\r\n\
             Traceparent: 00-################################-################-01\r\n\
             \r\n"
        ),
        Head::Grpc => write!(
            text,
            "POST /api/v1/lab.Catalogue/GetItem/{tail} HTTP/1.1\r\n\
             Host: {authority}\r\n\
             User-Agent: grpc-go/1.75.0\r\n\
             Content-Type: application/grpc\r\n\
             Grpc-Accept-Encoding: gzip\r\n\
             Grpc-Timeout: 4999m\r\n\
             Content-Length: {body_bytes}\r\n\
             X-Request-Id: ########-####-####-####-############\r\n\
             Traceparent: 00-################################-################-01\r\n\
             \r\n"
        ),
    };
    debug_assert!(written.is_ok(), "a string takes everything");
    text
}

/// The places of the runs of `#`.
fn slots(text: &[u8]) -> Vec<Range<usize>> {
    let mut slots: Vec<Range<usize>> = Vec::new();
    for at in memchr::memchr_iter(b'#', text) {
        match slots.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => slots.push(at..at + 1),
        }
    }
    slots
}

#[cfg(test)]
mod tests;

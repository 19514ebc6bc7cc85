//! Heads as they are converted. For fuzz targets only.

use heddle_wire::http1::{Framing, Method};
use http::{HeaderValue, request, response};

use super::head;

/// A request's head as HTTP/2 has it, and how its body is framed.
#[must_use]
pub fn request(head: &[u8]) -> Option<(request::Parts, Framing)> {
    let translated = head::request(head, &HeaderValue::from_static("01"))?;
    Some((translated.head.into_parts().0, translated.framing))
}

/// The head of an answer to a request with `method` as HTTP/2 has it, and how its body is framed.
#[must_use]
pub fn response(head: &[u8], method: Method) -> Option<(response::Parts, Framing)> {
    let translated = head::response(head, method)?;
    Some((translated.head.into_parts().0, translated.framing))
}

/// A request's head as HTTP/1.1 has it. `ended` says that no body follows.
#[must_use]
pub fn write_request(head: &request::Parts, ended: bool) -> Vec<u8> {
    let mut text = Vec::new();
    head::write_request(head, ended, &mut text);
    text
}

/// The head of an answer to a request with `method` as HTTP/1.1 has it. `ended` says that no body follows.
#[must_use]
pub fn write_response(head: &response::Parts, method: Method, ended: bool) -> Vec<u8> {
    let mut text = Vec::new();
    head::write_response(head, method, ended, &mut text);
    text
}

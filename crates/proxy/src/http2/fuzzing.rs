//! Conversion of heads, for fuzz targets only.

use heddle_wire::http1::{Framing, Method};
use http::{HeaderValue, request, response};

use super::head;

/// Converts a request's head from HTTP/1.1 to HTTP/2. Returns the framing of its body, too; `None` if HTTP/2 cannot
/// represent the head.
#[must_use]
pub fn request(head: &[u8]) -> Option<(request::Parts, Framing)> {
    let translated = head::request(head, &HeaderValue::from_static("01"))?;
    Some((translated.head.into_parts().0, translated.framing))
}

/// Converts the head of a response to a request with `method` from HTTP/1.1 to HTTP/2, and returns the framing of its
/// body, too; `None` if HTTP/2 cannot represent the head.
#[must_use]
pub fn response(head: &[u8], method: Method) -> Option<(response::Parts, Framing)> {
    let translated = head::response(head, method)?;
    Some((translated.head.into_parts().0, translated.framing))
}

/// Converts a request's head from HTTP/2 to HTTP/1.1. `ended` means that no body follows.
#[must_use]
pub fn write_request(head: &request::Parts, ended: bool) -> Vec<u8> {
    let mut text = Vec::new();
    head::write_request(head, ended, &mut text);
    text
}

/// Converts the head of a response to a request with `method` from HTTP/2 to HTTP/1.1. `ended` means that no body
/// follows.
#[must_use]
pub fn write_response(head: &response::Parts, method: Method, ended: bool) -> Vec<u8> {
    let mut text = Vec::new();
    head::write_response(head, method, ended, &mut text);
    text
}

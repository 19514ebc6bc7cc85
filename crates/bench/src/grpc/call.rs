//! The form of a unary call of gRPC on HTTP/2 (the protocol's `PROTOCOL-HTTP2.md`).

use bytes::{BufMut, Bytes, BytesMut};
use heddle_model::Random;
use http::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode, Uri, Version};

/// The media type of a call and its answer.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The longest message, in bytes.
pub(super) const MAX_MESSAGE: u64 = 64 << 10;

/// Makes the calls of one connection: all alike but for their ids.
pub(super) struct Calls {
    uri: Uri,
    fields: HeaderMap,
    ids: Random,
    /// The message of each call, and of its answer.
    pub(super) message: Bytes,
}

impl Calls {
    /// Calls to `authority` with messages of `bytes` bytes.
    ///
    /// # Errors
    /// When `authority` is not valid.
    pub(super) fn new(authority: &str, bytes: u64, seed: u64) -> anyhow::Result<Calls> {
        let uri = Uri::builder()
            .scheme("http")
            .authority(authority)
            .path_and_query("/heddle.lab.v1.Echo/Say")
            .build()?;
        // The token is as long as a short JWT.
        let token = format!("Bearer {}", "eyJhbGciOiJSUzI1NiJ9".repeat(5));
        let mut fields = HeaderMap::with_capacity(16);
        fields.insert(CONTENT_TYPE, GRPC);
        fields.insert(TE, HeaderValue::from_static("trailers"));
        fields.insert(USER_AGENT, HeaderValue::from_static("grpc-go/1.77.0"));
        fields.insert("grpc-timeout", HeaderValue::from_static("5S"));
        fields.insert("grpc-accept-encoding", HeaderValue::from_static("gzip"));
        fields.insert(AUTHORIZATION, HeaderValue::from_str(&token[..100])?);
        Ok(Calls {
            uri,
            fields,
            ids: Random::new(seed),
            message: message(bytes),
        })
    }

    /// The request head of the next call.
    pub(super) fn next(&mut self) -> Request<()> {
        let mut fields = self.fields.clone();
        let (high, low) = (self.ids.draw(), self.ids.draw());
        let id = request_id(high, low);
        if let Ok(id) = HeaderValue::from_maybe_shared(Bytes::from(id)) {
            fields.insert(HeaderName::from_static("x-request-id"), id);
        }
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = fields;
        request
    }
}

/// A request id of 36 characters, in the form of a UUID.
fn request_id(high: u64, low: u64) -> String {
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    format!(
        "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}",
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// A message of `bytes` bytes behind its prefix: not compressed, and its length.
fn message(bytes: u64) -> Bytes {
    let bytes = bytes.min(MAX_MESSAGE) as usize;
    let mut message = BytesMut::with_capacity(5 + bytes);
    message.put_u8(0);
    message.put_u32(bytes as u32);
    message.put_bytes(b'm', bytes);
    message.freeze()
}

/// Whether a request head is that of a call.
pub(super) fn is_call<Body>(request: &Request<Body>) -> bool {
    let fields = request.headers();
    request.method() == Method::POST
        && fields.get(CONTENT_TYPE) == Some(&GRPC)
        && fields.get(TE).is_some_and(|te| te == "trailers")
        && fields
            .get(AUTHORIZATION)
            .is_some_and(|token| token.len() == 100)
        && fields.get("x-request-id").is_some_and(|id| id.len() == 36)
}

/// The response head of an answer.
pub(super) fn answer() -> Response<()> {
    let mut answer = Response::new(());
    answer.headers_mut().insert(CONTENT_TYPE, GRPC);
    answer
}

/// Whether a response head is that of an answer.
pub(super) fn is_answer<Body>(answer: &Response<Body>) -> bool {
    answer.status() == StatusCode::OK && answer.headers().get(CONTENT_TYPE) == Some(&GRPC)
}

/// The trailers that end a call with this status.
pub(super) fn trailers(status: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    trailers
}

/// Whether a call succeeded.
pub(super) fn is_ok(trailers: &HeaderMap) -> bool {
    trailers
        .get("grpc-status")
        .is_some_and(|status| status == "0")
}

#[cfg(test)]
mod tests;

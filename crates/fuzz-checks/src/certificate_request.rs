//! A certificate request that is taken is no longer than it may be, and has a key of a kind that is.

use heddle_authority::{CertificateRequest, MAX_REQUEST_BYTES};
use heddle_transport::secrets::JoinToken;

/// Checks one input.
pub fn check(raw: &[u8]) {
    if let Ok(request) = CertificateRequest::parse(raw) {
        assert!(raw.len() <= MAX_REQUEST_BYTES);
        match request.public_key() {
            [4, point @ ..] if point.len() == 64 => {}
            key => assert_eq!(key.len(), 32),
        }
    }
    // What is read as a token is written as it was read.
    if let Some(token) = std::str::from_utf8(raw).ok().and_then(JoinToken::parse) {
        let text = token.to_text();
        let again = JoinToken::parse(&text).expect("its own text");
        assert_eq!(again.id, token.id);
        assert_eq!(again.root_sha256, token.root_sha256);
        assert_eq!(again.secret.as_bytes(), token.secret.as_bytes());
    }
}

//! An accepted certificate request is within the length limit, and has a supported kind of key.

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
    // A parsed token encodes to the same text.
    if let Some(token) = std::str::from_utf8(raw).ok().and_then(JoinToken::parse) {
        let text = token.to_text();
        let again = JoinToken::parse(&text).expect("its own text");
        assert_eq!(again.id, token.id);
        assert_eq!(again.root_sha256, token.root_sha256);
        assert_eq!(again.secret.as_bytes(), token.secret.as_bytes());
    }
}

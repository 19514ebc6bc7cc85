use heddle_authority::CertificateRequest;

use super::*;

#[test]
fn an_authority_takes_the_request_and_finds_the_key() {
    for _ in 0..16 {
        let key = LeafKey::generate().expect("random bytes");
        let request = key.request().expect("a request");
        // It checks the signature as well.
        let read =
            CertificateRequest::parse(&request).expect("a request as the authority takes it");
        assert_eq!(read.public_key(), key.pair.public_key().as_ref());
    }
}

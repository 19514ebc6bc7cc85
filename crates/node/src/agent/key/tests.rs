use heddle_authority::CertificateRequest;

use super::*;

/// Certificates of tests are made with it.
impl rcgen::PublicKeyData for LeafKey {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

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

#[test]
fn a_request_whose_content_was_changed_is_refused() {
    let key = LeafKey::generate().expect("random bytes");
    let request = key.request().expect("a request");
    let mut windows = request.windows(ECDSA_WITH_SHA256.len());
    let signed = windows.rposition(|window| window == ECDSA_WITH_SHA256);
    for at in 0..signed.expect("what it is signed with") {
        let mut changed = request.clone();
        changed[at] ^= 1;
        assert!(CertificateRequest::parse(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn an_element_says_its_length_in_as_few_bytes_as_can_be() {
    for (length, head) in [
        (0, &[0x30, 0][..]),
        (127, &[0x30, 127]),
        (128, &[0x30, 0x81, 128]),
        (255, &[0x30, 0x81, 255]),
        (256, &[0x30, 0x82, 1, 0]),
        (65_535, &[0x30, 0x82, 255, 255]),
    ] {
        let content = vec![7; length];
        let whole = element(SEQUENCE, &[&content]).expect("short enough");
        assert_eq!(whole.split_at(head.len()), (head, &content[..]), "{length}");
    }
    assert!(element(SEQUENCE, &[&vec![7; 65_536]]).is_none());
}

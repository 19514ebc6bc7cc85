use rcgen::{DistinguishedName, DnType, IsCa, KeyUsagePurpose, SanType};

use super::*;

fn der(params: &CertificateParams, key: &KeyPair) -> Vec<u8> {
    params.serialize_request(key).unwrap().der().to_vec()
}

#[test]
fn only_the_key_of_a_request_counts() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let uri = "spiffe://cluster.local/heddle/control";
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    let parsed = CertificateRequest::parse(&der(&params, &key)).unwrap();
    assert_eq!(parsed, request_of(&key));

    let place = Place::new();
    let authority = place.open();
    let issued = authority
        .issue(&workload("shop", "cart"), &parsed, at(NOW))
        .unwrap();
    let (_, leaf) = x509_parser::parse_x509_certificate(&issued.chain[0]).unwrap();
    assert!(!leaf.is_ca());
    let names = leaf.subject_alternative_name().unwrap().unwrap().value;
    assert_eq!(names.general_names.len(), 1);
    assert!(format!("{names:?}").contains("/ns/shop/sa/cart"));
    assert_eq!(leaf.subject().iter().count(), 0);
}

#[test]
fn other_keys_and_broken_requests_are_refused() {
    let params = CertificateParams::default();
    let good = der(&params, &KeyPair::generate().unwrap());
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let mut longer = good.clone();
    longer.push(0);
    let mut signature = good.clone();
    *signature.last_mut().unwrap() ^= 1;
    // The key is in the middle; the signature does not verify with another key.
    let mut other_key = good.clone();
    let key = request_key(&good);
    let position = good.windows(65).position(|bytes| bytes == key).unwrap();
    other_key[position + 40] ^= 1;
    for (name, bytes, fault) in [
        ("nothing", Vec::new(), RequestFault::Malformed),
        (
            "cut",
            good[..good.len() - 1].to_vec(),
            RequestFault::Malformed,
        ),
        ("more behind it", longer, RequestFault::Malformed),
        ("P-384", der(&params, &p384), RequestFault::Key),
        ("signature", signature, RequestFault::Signature),
        ("key", other_key, RequestFault::Signature),
        (
            "long",
            vec![0x30; MAX_REQUEST_BYTES + 1],
            RequestFault::TooLong,
        ),
    ] {
        assert_eq!(CertificateRequest::parse(&bytes), Err(fault), "{name}");
    }
}

fn request_key(der: &[u8]) -> Vec<u8> {
    CertificateRequest::parse(der)
        .unwrap()
        .public_key()
        .to_vec()
}

#[test]
fn any_bytes_are_answered() {
    let good = der(&CertificateParams::default(), &KeyPair::generate().unwrap());
    for position in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[position] ^= flip;
            let _ = CertificateRequest::parse(&bytes);
        }
        let _ = CertificateRequest::parse(&good[..position]);
    }
}

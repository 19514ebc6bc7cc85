//! Certificate signing requests (PKCS #10, RFC 2986).
//!
//! A request carries a public key and proves that the asker has the private one. All other content, such as names, is
//! ignored: the asker's authenticated identity decides which identity it gets.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use heddle_transport::secrets::pem;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer as _;

/// Longest accepted request, in bytes. One with a key of Heddle's and no names takes about 250.
pub const MAX_REQUEST_BYTES: usize = 8 * 1024;
/// The PEM label of a request.
pub(super) const PEM_LABEL: &str = "CERTIFICATE REQUEST";

/// A public key for which a certificate is requested; the sender has proved that it has the private key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// An uncompressed point or an Ed25519 key, in the encoding of X.509.
    key: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

/// Why a certificate signing request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// It is longer than [`MAX_REQUEST_BYTES`].
    TooLong,
    /// The bytes are not a PKCS #10 request in DER, or more bytes follow it.
    Malformed,
    /// The key is neither P-256 nor Ed25519, or the signature algorithm does not fit it.
    Key,
    /// The signature does not verify with the key in the request.
    Signature,
}

impl CertificateRequest {
    /// Reads a request in DER and checks its signature.
    ///
    /// # Errors
    /// [`RequestFault`] says what is wrong with it.
    pub fn parse(der: &[u8]) -> Result<Self, RequestFault> {
        if der.len() > MAX_REQUEST_BYTES {
            return Err(RequestFault::TooLong);
        }
        let (rest, request) =
            X509CertificationRequest::from_der(der).map_err(|_| RequestFault::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestFault::Malformed);
        }
        let info = &request.certification_request_info;
        let named = &info.subject_pki.algorithm;
        let signed = &request.signature_algorithm.algorithm;
        let key = info.subject_pki.subject_public_key.data.as_ref();
        let signature = request.signature_value.data.as_ref();
        let parameters = named.parameters.as_ref();
        let curve = parameters.and_then(|any| any.as_oid().ok());
        let (algorithm, verified): (&'static SignatureAlgorithm, _) = if named.algorithm
            == OID_KEY_TYPE_EC_PUBLIC_KEY
            && curve == Some(OID_EC_P256)
            && *signed == OID_SIG_ECDSA_WITH_SHA256
            && matches!(key, [4, rest @ ..] if rest.len() == 64)
        {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
            (&PKCS_ECDSA_P256_SHA256, key.verify(info.raw, signature))
        } else if named.algorithm == OID_SIG_ED25519
            && parameters.is_none()
            && *signed == OID_SIG_ED25519
            && key.len() == 32
        {
            let key = UnparsedPublicKey::new(&ED25519, key);
            (&PKCS_ED25519, key.verify(info.raw, signature))
        } else {
            return Err(RequestFault::Key);
        };
        verified.map_err(|_| RequestFault::Signature)?;
        Ok(Self {
            key: key.to_vec(),
            algorithm,
        })
    }

    /// Reads a request in PEM (RFC 7468), as [`site_request_pem`](super::site_request_pem) writes it.
    ///
    /// # Errors
    /// As [`CertificateRequest::parse`].
    pub fn parse_pem(text: &[u8]) -> Result<Self, RequestFault> {
        if text.len() > 2 * MAX_REQUEST_BYTES {
            return Err(RequestFault::TooLong);
        }
        let sections = pem::sections(text).map_err(|_| RequestFault::Malformed)?;
        match sections.as_slice() {
            [only] if only.label == PEM_LABEL => Self::parse(&only.der),
            _ => Err(RequestFault::Malformed),
        }
    }

    /// A request for a key of this process, which needs no proof of possession.
    pub(super) fn of(key: &impl PublicKeyData) -> Self {
        Self {
            key: key.der_bytes().to_vec(),
            algorithm: key.algorithm(),
        }
    }

    /// The public key, in the encoding of X.509.
    pub fn public_key(&self) -> &[u8] {
        &self.key
    }
}

impl PublicKeyData for CertificateRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.key
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl fmt::Debug for CertificateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateRequest").finish_non_exhaustive()
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the certificate request is longer than 8192 bytes",
            Self::Malformed => "the certificate request is no PKCS #10",
            Self::Key => {
                "the key of the certificate request is of another kind than P-256 with SHA-256 \
                 and Ed25519 (make one of these)"
            }
            Self::Signature => "the certificate request is not signed by its own key",
        })
    }
}

impl std::error::Error for RequestFault {}

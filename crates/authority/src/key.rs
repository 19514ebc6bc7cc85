//! The private key with which an authority signs.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
};
use rcgen::{
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PublicKeyData, SignatureAlgorithm, SigningKey,
};
use zeroize::Zeroizing;

use heddle_transport::secrets::pem;

/// A private key on P-256 or P-384. The library that holds it clears its memory.
pub(super) struct CaKey {
    pair: EcdsaKeyPair,
    algorithm: &'static SignatureAlgorithm,
}

impl CaKey {
    /// Makes a P-256 key, with the text for its file. `None` when the system gives no random bytes.
    pub(super) fn generate() -> Option<(Self, Zeroizing<String>)> {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok()?;
        let text = pem::encode("PRIVATE KEY", document.as_ref());
        Some((Self::from_der(document.as_ref())?, text))
    }

    /// Accepts PKCS #8 or SEC 1.
    fn from_der(der: &[u8]) -> Option<Self> {
        let p256 = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
        if let Ok(pair) = p256 {
            let algorithm = &PKCS_ECDSA_P256_SHA256;
            return Some(Self { pair, algorithm });
        }
        let p384 = EcdsaKeyPair::from_private_key_der(&ECDSA_P384_SHA384_ASN1_SIGNING, der);
        let algorithm = &PKCS_ECDSA_P384_SHA384;
        p384.ok().map(|pair| Self { pair, algorithm })
    }

    /// Reads a PEM file with exactly one private key. An error says what is wrong.
    pub(super) fn from_pem(bytes: &[u8]) -> Result<Self, &'static str> {
        let sections = pem::sections(bytes)?;
        let mut keys = sections
            .iter()
            .filter(|section| section.label != "EC PARAMETERS");
        let (Some(section), None) = (keys.next(), keys.next()) else {
            return Err("it must hold one private key and nothing else");
        };
        match section.label.as_str() {
            "PRIVATE KEY" | "EC PRIVATE KEY" => Self::from_der(&section.der)
                .ok_or("it is no key that can be used, which are ECDSA keys of P-256 and P-384"),
            "ENCRYPTED PRIVATE KEY" => Err("the key is encrypted"),
            _ => Err("it holds no private key"),
        }
    }
}

impl PublicKeyData for CaKey {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl SigningKey for CaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.pair
            .sign(&SystemRandom::new(), message)
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// Shows nothing of the key.
impl fmt::Debug for CaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaKey").finish_non_exhaustive()
    }
}

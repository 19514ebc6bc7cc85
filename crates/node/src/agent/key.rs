//! The private key of an identity: made here, and never sent anywhere.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rcgen::{
    CertificateParams, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey,
};
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// A key of P-256. Its memory is cleared when it is dropped.
pub(super) struct LeafKey {
    pair: EcdsaKeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
}

impl LeafKey {
    /// Makes a key. `None` when the system gives no random bytes.
    pub(super) fn generate() -> Option<Self> {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok()?;
        let pkcs8 = Zeroizing::new(document.as_ref().to_vec());
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8).ok()?;
        Some(Self { pair, pkcs8 })
    }

    /// The key in PKCS #8, DER.
    pub(super) fn pkcs8(&self) -> &Zeroizing<Vec<u8>> {
        &self.pkcs8
    }

    /// A certificate signing request (PKCS #10) in DER. It holds no name: the identity is sent beside it. `None` when
    /// the library fails, which would be a bug in Heddle.
    pub(super) fn request(&self) -> Option<Vec<u8>> {
        let request = CertificateParams::default().serialize_request(self).ok()?;
        Some(request.der().to_vec())
    }
}

impl PublicKeyData for LeafKey {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for LeafKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        let signature = signature.map_err(|_| rcgen::Error::RemoteKeyError)?;
        Ok(signature.as_ref().to_vec())
    }
}

/// Prints no part of the key.
impl fmt::Debug for LeafKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafKey").finish_non_exhaustive()
    }
}

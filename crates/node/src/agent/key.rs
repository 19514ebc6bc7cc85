//! The private key of an identity: made here, and never sent anywhere.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// Tags of DER (ITU-T X.690).
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
/// `version INTEGER { v1(0) }`.
const VERSION: &[u8] = &[0x02, 0x01, 0x00];
/// A name of no parts.
const NO_SUBJECT: &[u8] = &[SEQUENCE, 0x00];
/// `attributes [0]`, of which there are none.
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0x00];
/// `ecdsa-with-SHA256`, 1.2.840.10045.4.3.2 (RFC 5758 section 3.2).
const ECDSA_WITH_SHA256: &[u8] = &[
    SEQUENCE, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
];

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

    /// A certificate signing request in DER (PKCS #10, RFC 2986 section 4). It asks for nothing by name: who is
    /// meant is said beside it. `None` when the library fails, which only a fault of ours explains.
    pub(super) fn request(&self) -> Option<Vec<u8>> {
        let key: PublicKeyX509Der<'_> = self.pair.public_key().as_der().ok()?;
        let info = element(
            SEQUENCE,
            &[VERSION, NO_SUBJECT, key.as_ref(), NO_ATTRIBUTES],
        )?;
        let signature = self.pair.sign(&SystemRandom::new(), &info).ok()?;
        // All bits of its last byte count.
        let signature = element(BIT_STRING, &[&[0], signature.as_ref()])?;
        element(SEQUENCE, &[&info, ECDSA_WITH_SHA256, &signature])
    }
}

/// One element of DER. `None` when it is longer than any request.
fn element(tag: u8, parts: &[&[u8]]) -> Option<Vec<u8>> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).ok()?;
    let mut element = vec![tag];
    match (length.to_be_bytes(), length) {
        ([_, short], ..0x80) => element.push(short),
        ([_, long], ..0x100) => element.extend([0x81, long]),
        ([high, low], _) => element.extend([0x82, high, low]),
    }
    element.extend(content);
    Some(element)
}

/// Nothing of the key.
impl fmt::Debug for LeafKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafKey").finish_non_exhaustive()
    }
}

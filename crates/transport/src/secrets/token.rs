//! Join tokens.
//!
//! A token is `heddle-ID.SECRET.ROOT`: its id, a secret of 32 random bytes in base64url (RFC 4648 section 5), and the
//! SHA-256 of the authority's root certificate in hexadecimal. The node compares the authority's root with this digest
//! before it sends the secret, as kubeadm does with its discovery hash.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use zeroize::Zeroizing;

use super::folder::FolderError;
use super::random::fill;
use crate::hex;

const PREFIX: &str = "heddle-";
const ID_BYTES: usize = 9;
const SECRET_BYTES: usize = 32;
/// Limit on the text of a token, in bytes.
const MAX_TOKEN_TEXT: usize = 256;

/// The id of a token. It is not secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TokenId(String);

impl TokenId {
    /// Parses an id as it is shown: 12 characters of base64url.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; ID_BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        (length == ID_BYTES).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The secret part of a token. It is erased when dropped, and never printed.
#[derive(Clone)]
pub struct TokenSecret(Zeroizing<[u8; SECRET_BYTES]>);

impl TokenSecret {
    /// A secret of exactly 32 bytes; `None` for another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        if bytes.len() != SECRET_BYTES {
            return None;
        }
        secret.copy_from_slice(bytes);
        Some(Self(secret))
    }

    /// The secret's bytes. Send them only to an authority whose root was verified.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(..)")
    }
}

/// A join token with its secret, as a node holds it.
#[derive(Debug, Clone)]
pub struct JoinToken {
    /// Names the token at the authority.
    pub id: TokenId,
    /// Proves that the holder was given the token.
    pub secret: TokenSecret,
    /// SHA-256 of the authority's root certificate (DER).
    pub root_sha256: [u8; 32],
}

impl JoinToken {
    /// A new token for the authority with this root.
    ///
    /// # Errors
    /// [`FolderError`] when the system's random generator fails.
    pub fn random(root_sha256: [u8; 32]) -> Result<Self, FolderError> {
        let mut id = [0; ID_BYTES];
        fill(&mut id)?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        fill(secret.as_mut_slice())?;
        Ok(Self {
            id: TokenId(URL_SAFE_NO_PAD.encode(id)),
            secret: TokenSecret(secret),
            root_sha256,
        })
    }

    /// Parses `heddle-ID.SECRET.ROOT`. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TOKEN_TEXT {
            return None;
        }
        let (id, rest) = text.trim().strip_prefix(PREFIX)?.split_once('.')?;
        let (secret, root) = rest.split_once('.')?;
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        let length = URL_SAFE_NO_PAD
            .decode_slice(secret, bytes.as_mut_slice())
            .ok()?;
        Some(Self {
            id: TokenId::parse(id)?,
            secret: TokenSecret::from_bytes(bytes.get(..length)?)?,
            root_sha256: hex::decode(root)?,
        })
    }

    /// The token's text, to give to the node. It includes the secret: show it once, never log it.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(MAX_TOKEN_TEXT));
        text.push_str(PREFIX);
        text.push_str(&self.id.0);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(self.secret.as_bytes(), &mut text);
        text.push('.');
        text.push_str(&hex::encode(&self.root_sha256));
        text
    }
}

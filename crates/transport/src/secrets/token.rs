//! Join tokens, as a node holds them.
//!
//! A token is `heddle-ID.SECRET.ROOT`: what it is called, 32 random bytes in base64url (RFC 4648
//! section 5), and the SHA-256 of the authority's root certificate in hexadecimal. The node
//! checks the authority against the last before it sends the secret, as kubeadm's discovery hash lets
//! it.

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
/// Longest text that is read as a token.
const MAX_TOKEN_TEXT: usize = 256;

/// What a token is called. It is no secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TokenId(String);

impl TokenId {
    /// Takes the id of a token as it is shown: 12 characters of base64url.
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

/// The part of a token that only its holder knows. It is cleared when dropped and never shown.
#[derive(Clone)]
pub struct TokenSecret(Zeroizing<[u8; SECRET_BYTES]>);

impl TokenSecret {
    /// Takes 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        if bytes.len() != SECRET_BYTES {
            return None;
        }
        secret.copy_from_slice(bytes);
        Some(Self(secret))
    }

    /// The bytes, to send them to an authority that was checked.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(..)")
    }
}

/// A token, as a node holds it.
#[derive(Debug, Clone)]
pub struct JoinToken {
    /// What it is called.
    pub id: TokenId,
    /// What proves that its holder was given it.
    pub secret: TokenSecret,
    /// The SHA-256 of the root certificate, in DER, of the authority that it is for.
    pub root_sha256: [u8; 32],
}

impl JoinToken {
    /// A new one, for an authority with this root.
    ///
    /// # Errors
    /// [`FolderError`] when the system gives no random bytes.
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

    /// Reads `heddle-ID.SECRET.ROOT`. `None` for anything else.
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

    /// The text that a node is given. It holds the secret: show it once, log it never.
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

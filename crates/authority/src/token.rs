//! The usable join tokens: with one a node that is not known yet becomes a member, once.
//!
//! [`JoinToken`] describes the token itself. Each has its own file here, with only a digest of the secret in it. Using
//! a token up removes its file, durably, before the node gets an answer.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use heddle_model::NodeName;
use heddle_model::calendar::utc;
use heddle_transport::hex;
use heddle_transport::secrets::{Folder, FolderError, JoinToken, TokenId, TokenSecret};
use serde::{Deserialize, Serialize};

use super::UnixTime;
use super::digest::sha256;
use super::error::AuthorityError;

/// Largest number of usable tokens.
pub const MAX_TOKENS: usize = 10_000;
/// How long a token can be used by default.
pub const DEFAULT_TOKEN_LIFE: Duration = Duration::from_secs(3_600);
/// Longest life of a token.
pub const MAX_TOKEN_LIFE: Duration = Duration::from_secs(7 * 86_400);

const MAX_FILE_BYTES: usize = 4 * 1024;

/// The record of an unused token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenInfo {
    /// The token's public part, by which an operator revokes it.
    pub id: TokenId,
    /// The node that may join with it.
    pub node: NodeName,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// From when on it cannot be used, in seconds since 1970.
    pub expires: u64,
}

/// Why a token is refused. The log gets the reason; the caller learns only that it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefusal {
    /// No token has this id: it was used, revoked, removed after it expired, or never made.
    Unknown,
    /// The token has expired.
    Expired,
    /// The secret differs.
    Secret,
    /// The token is for another node.
    OtherNode,
    /// The token's removal could not be made durable.
    NotDurable,
}

/// Why a token was not made.
#[derive(Debug)]
pub enum TokenError {
    /// The life is zero or longer than [`MAX_TOKEN_LIFE`].
    Life,
    /// The limit of [`MAX_TOKENS`] is reached.
    Full,
    /// The token's file could not be written.
    Folder(FolderError),
}

/// The content of a token's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    node: NodeName,
    /// SHA-256 of a prefix, the id and the secret, in hexadecimal.
    secret_sha256: String,
    created: u64,
    expires: u64,
    /// SHA-256 of the root that the token names, in hexadecimal. Files of earlier versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root_sha256: Option<String>,
}

#[derive(Debug)]
pub(super) struct Tokens {
    folder: Folder,
    records: BTreeMap<TokenId, Record>,
}

impl Tokens {
    /// Reads every token of a folder and removes expired ones.
    pub(super) fn open(folder: Folder, now: UnixTime) -> Result<Self, AuthorityError> {
        folder.sweep()?;
        let mut records = BTreeMap::new();
        for name in folder.names()? {
            let corrupt = |why: &str| AuthorityError::corrupt(&folder, &name, why.to_owned());
            let id = name.strip_suffix(".json").and_then(TokenId::parse);
            let id = id.ok_or_else(|| corrupt("it is no token's file"))?;
            if records.len() == MAX_TOKENS {
                return Err(corrupt("there are too many tokens"));
            }
            let bytes = folder.read(&name, MAX_FILE_BYTES)?.unwrap_or_default();
            let record: Record =
                serde_json::from_slice(&bytes).map_err(|error| corrupt(&error.to_string()))?;
            if hex::decode::<32>(&record.secret_sha256).is_none() {
                return Err(corrupt("secret_sha256 is no digest"));
            }
            records.insert(id, record);
        }
        let mut tokens = Self { folder, records };
        tokens.forget_expired(now);
        Ok(tokens)
    }

    pub(super) fn create(
        &mut self,
        node: &NodeName,
        life: Duration,
        root_sha256: [u8; 32],
        now: UnixTime,
    ) -> Result<JoinToken, TokenError> {
        if life.is_zero() || life > MAX_TOKEN_LIFE {
            return Err(TokenError::Life);
        }
        self.forget_expired(now);
        if self.records.len() >= MAX_TOKENS {
            return Err(TokenError::Full);
        }
        let token = JoinToken::random(root_sha256)?;
        let record = Record {
            node: node.clone(),
            secret_sha256: hex::encode(&digest(&token.id, &token.secret)),
            created: now.as_secs(),
            expires: now.as_secs().saturating_add(life.as_secs().max(1)),
            root_sha256: Some(hex::encode(&root_sha256)),
        };
        // A record of names and numbers always serialises.
        let text = serde_json::to_vec(&record).unwrap_or_default();
        self.folder.write(&file(&token.id), &text)?;
        self.records.insert(token.id.clone(), record);
        Ok(token)
    }

    /// Uses a token up. When this returns `Ok`, the token stays used even after a crash.
    pub(super) fn redeem(
        &mut self,
        id: &TokenId,
        secret: &TokenSecret,
        node: &NodeName,
        now: UnixTime,
    ) -> Result<(), TokenRefusal> {
        let record = self.records.get(id).ok_or(TokenRefusal::Unknown)?;
        let wanted = hex::decode::<32>(&record.secret_sha256).unwrap_or_default();
        // Checked first: only a caller with the secret learns anything about the token.
        if verify_slices_are_equal(&wanted, &digest(id, secret)).is_err() {
            return Err(TokenRefusal::Secret);
        }
        if now.as_secs() >= record.expires {
            self.forget_expired(now);
            return Err(TokenRefusal::Expired);
        }
        if record.node != *node {
            return Err(TokenRefusal::OtherNode);
        }
        // Removed from memory first: a token whose file could not be removed is not accepted again either.
        self.records.remove(id);
        match self.folder.remove(&file(id)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(TokenRefusal::Unknown),
            Err(_) => Err(TokenRefusal::NotDurable),
        }
    }

    /// Removes a token; returns whether it existed.
    pub(super) fn revoke(&mut self, id: &TokenId) -> Result<bool, FolderError> {
        if self.records.remove(id).is_none() {
            return Ok(false);
        }
        self.folder.remove(&file(id))
    }

    /// Tokens that have not expired and name the root that nodes are shown.
    pub(super) fn list(&self, root_sha256: &[u8; 32], now: UnixTime) -> Vec<TokenInfo> {
        let root = hex::encode(root_sha256);
        let alive = |record: &&Record| {
            let names_it = record
                .root_sha256
                .as_ref()
                .is_none_or(|named| *named == root);
            now.as_secs() < record.expires && names_it
        };
        let info = |(id, record): (&TokenId, &Record)| {
            Some(record).filter(alive).map(|record| TokenInfo {
                id: id.clone(),
                node: record.node.clone(),
                created: record.created,
                expires: record.expires,
            })
        };
        self.records.iter().filter_map(info).collect()
    }

    /// Fills the list up to the limit with copies of one token, without files.
    #[cfg(test)]
    pub(super) fn fill_for_test(&mut self, like: &TokenId) {
        let Some(record) = self.records.get(like).cloned() else {
            return;
        };
        for number in 0u32.. {
            if self.records.len() >= MAX_TOKENS {
                return;
            }
            let id = TokenId::parse(&format!("{number:012}"));
            self.records.insert(id.expect("an id"), record.clone());
        }
    }

    fn forget_expired(&mut self, now: UnixTime) {
        let folder = &self.folder;
        self.records.retain(|id, record| {
            let keep = now.as_secs() < record.expires;
            if !keep {
                // A file that cannot be removed now has expired all the same, and is removed at the next start.
                folder.forget(&file(id));
            }
            keep
        });
    }
}

fn file(id: &TokenId) -> String {
    format!("{id}.json")
}

/// The digest of the secret, which is stored in its place.
fn digest(id: &TokenId, secret: &TokenSecret) -> [u8; 32] {
    let id = id.as_str().as_bytes();
    sha256(&[b"heddle join token 1\0", id, secret.as_bytes()])
}

impl From<FolderError> for TokenError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl TokenRefusal {
    /// The reason in one word, for logs and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "token_unknown",
            Self::Expired => "token_expired",
            Self::Secret => "token_secret",
            Self::OtherNode => "token_other_node",
            Self::NotDurable => "token_not_durable",
        }
    }
}

impl fmt::Display for TokenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => {
                "there is no such token: it was used, revoked or has expired (make a new one)"
            }
            Self::Expired => "the token has expired (make a new one)",
            Self::Secret => "the token's secret is wrong (copy the whole token, or make a new one)",
            Self::OtherNode => "the token is for another node (make one for this node)",
            Self::NotDurable => {
                "the use of the token could not be written to disk (check the authority's disk, \
                 and make a new token)"
            }
        })
    }
}

impl std::error::Error for TokenRefusal {}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Life => write!(
                f,
                "a token lives for 1 s to {} days (choose a time between)",
                MAX_TOKEN_LIFE.as_secs() / 86_400
            ),
            Self::Full => write!(
                f,
                "there are {MAX_TOKENS} tokens already (revoke some, or wait until they expire)"
            ),
            Self::Folder(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TokenError {}

impl fmt::Display for TokenInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, node) = (&self.id, &self.node);
        write!(f, "{id} for node {node} until {}", utc(self.expires))
    }
}

//! Which nodes may hold a certificate of their own: those that a rotation waits for.
//!
//! What a node was issued last is written down before the node gets it, each in a file of its own, so that
//! a control plane that comes back knows for whom it has to wait.

use std::collections::BTreeMap;

use heddle_model::NodeName;
use serde::{Deserialize, Serialize};

use super::error::AuthorityError;
use super::folder::{Folder, FolderError};
use super::{UnixTime, random};

/// Nodes that there may be at once.
pub const MAX_MEMBERS: usize = 10_000;
const MAX_FILE_BYTES: usize = 4 * 1024;

/// A node, and how long its newest certificate lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name.
    pub node: NodeName,
    /// When the certificate expires, in seconds since 1970.
    pub until: u64,
}

/// The nodes whose certificates have not expired.
#[derive(Debug)]
pub(super) struct Members {
    folder: Folder,
    until: BTreeMap<NodeName, u64>,
}

/// Why a node is not written down.
#[derive(Debug)]
pub(super) enum MemberError {
    /// There are [`MAX_MEMBERS`].
    Full,
    Folder(FolderError),
}

impl Members {
    /// Reads every file of a folder; what has expired is forgotten.
    pub(super) fn open(folder: Folder, now: UnixTime) -> Result<Self, AuthorityError> {
        folder.sweep()?;
        let mut until = BTreeMap::new();
        for name in folder.names()? {
            let corrupt = |why: &str| AuthorityError::corrupt(&folder, &name, why.to_owned());
            if until.len() == MAX_MEMBERS {
                return Err(corrupt("there are too many nodes"));
            }
            let bytes = folder.read(&name, MAX_FILE_BYTES)?.unwrap_or_default();
            let member: Member =
                serde_json::from_slice(&bytes).map_err(|error| corrupt(&error.to_string()))?;
            if file(&member.node) != name {
                return Err(corrupt("it is another node's file"));
            }
            until.insert(member.node, member.until);
        }
        let mut members = Self { folder, until };
        members.forget_expired(now);
        Ok(members)
    }

    /// Whether a node could be written down.
    pub(super) fn has_room(&mut self, node: &NodeName, now: UnixTime) -> bool {
        if self.until.len() >= MAX_MEMBERS && !self.until.contains_key(node) {
            self.forget_expired(now);
        }
        self.until.len() < MAX_MEMBERS || self.until.contains_key(node)
    }

    /// Writes down what a node gets. When this returns `Ok` it is on the disk.
    pub(super) fn note(
        &mut self,
        node: &NodeName,
        until: u64,
        now: UnixTime,
    ) -> Result<(), MemberError> {
        if !self.has_room(node, now) {
            return Err(MemberError::Full);
        }
        if self.until.get(node).is_some_and(|known| *known >= until) {
            return Ok(());
        }
        let member = Member {
            node: node.clone(),
            until,
        };
        // A name and a number always have a text.
        let text = serde_json::to_vec(&member).unwrap_or_default();
        let written = self.folder.write(&file(node), &text);
        written.map_err(MemberError::Folder)?;
        self.until.insert(node.clone(), until);
        Ok(())
    }

    pub(super) fn list(&self, now: UnixTime) -> Vec<Member> {
        let alive = self
            .until
            .iter()
            .filter(|(_, until)| now.as_secs() < **until);
        let member = |(node, until): (&NodeName, &u64)| Member {
            node: node.clone(),
            until: *until,
        };
        alive.map(member).collect()
    }

    fn forget_expired(&mut self, now: UnixTime) {
        let folder = &self.folder;
        self.until.retain(|node, until| {
            let keep = now.as_secs() < *until;
            if !keep {
                // One that stays is forgotten at the next start.
                folder.forget(&file(node));
            }
            keep
        });
    }
}

/// A node's name may be as long as a file's may: its digest is not.
fn file(node: &NodeName) -> String {
    let digest = random::sha256(&[node.as_str().as_bytes()]);
    format!("{}.json", random::to_hex(&digest[..16]))
}

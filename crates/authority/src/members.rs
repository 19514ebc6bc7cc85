//! Which nodes may hold a certificate of their own: those that a rotation waits for.
//!
//! What a node was issued last is written down before the node gets it, each in a file of its own, so that
//! a control plane that comes back knows which nodes it has to wait for; and where other nodes reach it, so that
//! it does not cut off from them a node that has not come back to it yet.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use heddle_model::NodeName;
use heddle_transport::hex;
use heddle_transport::secrets::{Folder, FolderError};
use serde::{Deserialize, Serialize};

use super::UnixTime;
use super::digest::sha256;
use super::error::AuthorityError;

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
    /// Where other nodes reached it last; absent until it was present once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

/// The nodes whose certificates have not expired.
#[derive(Debug)]
pub(super) struct Members {
    folder: Folder,
    known: BTreeMap<NodeName, MemberRecord>,
}

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
struct MemberRecord {
    until: u64,
    address: Option<SocketAddr>,
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
        let mut known = BTreeMap::new();
        for name in folder.names()? {
            let corrupt = |why: &str| AuthorityError::corrupt(&folder, &name, why.to_owned());
            if known.len() == MAX_MEMBERS {
                return Err(corrupt("there are too many nodes"));
            }
            let bytes = folder.read(&name, MAX_FILE_BYTES)?.unwrap_or_default();
            let member: Member =
                serde_json::from_slice(&bytes).map_err(|error| corrupt(&error.to_string()))?;
            if file(&member.node) != name {
                return Err(corrupt("it is another node's file"));
            }
            let (until, address) = (member.until, member.address);
            if !address.is_none_or(|address| is_reachable(&address)) {
                return Err(corrupt("its address is none that others could reach"));
            }
            known.insert(member.node, MemberRecord { until, address });
        }
        let mut members = Self { folder, known };
        members.forget_expired(now);
        Ok(members)
    }

    /// Whether a node could be written down.
    pub(super) fn has_room(&mut self, node: &NodeName, now: UnixTime) -> bool {
        if self.known.len() >= MAX_MEMBERS && !self.known.contains_key(node) {
            self.forget_expired(now);
        }
        self.known.len() < MAX_MEMBERS || self.known.contains_key(node)
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
        let known = self.known.get(node).copied();
        if known.is_some_and(|known| known.until >= until) {
            return Ok(());
        }
        let address = known.and_then(|known| known.address);
        let written = self.write(node, MemberRecord { until, address });
        written.map_err(MemberError::Folder)
    }

    /// Writes down where a node is reached, if there is such a node and that is news.
    pub(super) fn note_address(
        &mut self,
        node: &NodeName,
        address: SocketAddr,
    ) -> Result<(), FolderError> {
        let address = Some(address);
        match self.known.get(node).copied() {
            Some(known) if known.address != address => {
                self.write(node, MemberRecord { address, ..known })
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, node: &NodeName, known: MemberRecord) -> Result<(), FolderError> {
        // Names, numbers and addresses always have a text.
        let text = serde_json::to_vec(&member((node, &known))).unwrap_or_default();
        self.folder.write(&file(node), &text)?;
        self.known.insert(node.clone(), known);
        Ok(())
    }

    pub(super) fn list(&self, now: UnixTime) -> Vec<Member> {
        let alive = self.known.iter();
        let alive = alive.filter(|(_, known)| now.as_secs() < known.until);
        alive.map(member).collect()
    }

    fn forget_expired(&mut self, now: UnixTime) {
        let folder = &self.folder;
        self.known.retain(|node, known| {
            let keep = now.as_secs() < known.until;
            if !keep {
                // One that stays is forgotten at the next start.
                folder.forget(&file(node));
            }
            keep
        });
    }
}

fn member((node, known): (&NodeName, &MemberRecord)) -> Member {
    Member {
        node: node.clone(),
        until: known.until,
        address: known.address,
    }
}

/// Whether other nodes could connect to an address.
pub fn is_reachable(address: &SocketAddr) -> bool {
    let ip = address.ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()
}

/// A node's name may be as long as a file's may: its digest is not.
fn file(node: &NodeName) -> String {
    let digest = sha256(&[node.as_str().as_bytes()]);
    format!("{}.json", hex::encode(&digest[..16]))
}

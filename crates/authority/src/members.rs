//! Members: the nodes that may hold a certificate of their own, for which a rotation waits.
//!
//! The end of a node's newest certificate is recorded before the node gets it, one file for each node, so that a
//! restarted control plane knows for which nodes it has to wait. So is the address at which other nodes reach it, so
//! that a restarted control plane does not cut a node off from the others before that node has reconnected.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use heddle_model::{NodeName, is_one_place};
use heddle_transport::hex;
use heddle_transport::secrets::{Folder, FolderError};
use serde::{Deserialize, Serialize};

use super::UnixTime;
use super::digest::sha256;
use super::error::AuthorityError;

/// Largest number of members.
pub const MAX_MEMBERS: usize = 10_000;
const MAX_FILE_BYTES: usize = 4 * 1024;

/// A node, and when its newest certificate expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The node's name, unique among the members.
    pub node: NodeName,
    /// When the certificate expires, in seconds since 1970.
    pub until: u64,
    /// The address at which other nodes last reached it; absent until it has been present once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

/// The nodes whose certificates have not expired.
#[derive(Debug)]
pub(super) struct Members {
    folder: Folder,
    known: BTreeMap<NodeName, MemberRecord>,
}

#[derive(Debug, Clone, Copy)]
struct MemberRecord {
    until: u64,
    address: Option<SocketAddr>,
}

/// Why a node was not recorded.
#[derive(Debug)]
pub(super) enum MemberError {
    /// The limit of [`MAX_MEMBERS`] is reached.
    Full,
    Folder(FolderError),
}

impl Members {
    /// Reads every file of a folder and removes expired members.
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
                return Err(corrupt("its address is not one that others could reach"));
            }
            known.insert(member.node, MemberRecord { until, address });
        }
        let mut members = Self { folder, known };
        members.forget_expired(now);
        Ok(members)
    }

    /// Whether a node could be recorded within [`MAX_MEMBERS`].
    pub(super) fn has_room(&mut self, node: &NodeName, now: UnixTime) -> bool {
        if self.known.len() >= MAX_MEMBERS && !self.known.contains_key(node) {
            self.forget_expired(now);
        }
        self.known.len() < MAX_MEMBERS || self.known.contains_key(node)
    }

    /// Records the end of a node's certificate. When this returns `Ok`, the record is on the disk.
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

    /// Records the address of a member; writes nothing if it is unchanged or the node is not a member.
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
        // Names, numbers and addresses always serialise.
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
                // A file that cannot be removed now is removed at the next start.
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

/// Whether other nodes could connect to an address: it has a port, and is neither unspecified nor multicast.
pub fn is_reachable(address: &SocketAddr) -> bool {
    address.port() != 0 && is_one_place(address.ip())
}

/// The file is named by a digest: a node's name may be as long as a file name, which leaves no room for `.json`.
fn file(node: &NodeName) -> String {
    let digest = sha256(&[node.as_str().as_bytes()]);
    format!("{}.json", hex::encode(&digest[..16]))
}

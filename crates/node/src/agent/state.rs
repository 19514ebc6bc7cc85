//! What a node keeps on its disk, so that it can start again while the control plane cannot be reached.
//!
//! | file | holds | when it is damaged |
//! |---|---|---|
//! | `node.leaf` | key and certificate of the node's own identity | the node does not start |
//! | `trust.json` | what to trust: roots and deny-list | the node does not start |
//! | `leaves/DIGEST.leaf` | key and certificate of a workload's identity | reported, and requested again |
//! | `mesh.json` | the last mesh | reported; the control plane sends another |
//! | `floor` | the time floor | the node does not start |
//!
//! Every file is written whole or not at all, as in the authority's folder.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use heddle_model::{Mesh, SpiffeId};
use heddle_transport::secrets::{Folder, FolderError, Lock, pem};
use heddle_transport::{FloorFile, Leaf, hex};
use heddle_xds::{MAX_EPOCH_BYTES, MAX_MESH_BYTES};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::trusted::Trusted;
use files::{FLOOR, LEAF, MESH, OWN, TRUST};

#[cfg(test)]
pub(super) mod tests;

/// Names of single files, and the suffix of leaf files.
pub(crate) mod files {
    pub(crate) const OWN: &str = "node.leaf";
    pub(crate) const TRUST: &str = "trust.json";
    pub(crate) const MESH: &str = "mesh.json";
    pub(crate) const FLOOR: &str = "floor";
    /// Suffix of leaf files, one for each workload.
    pub(crate) const LEAF: &str = ".leaf";
}

const LEAVES: &str = "leaves";
/// The lock, and the floor while it is being written.
const OTHERS: [&str; 2] = ["lock", "floor.new"];

/// Files that only a control plane's authority has in its folder.
const OF_AN_AUTHORITY: [&str; 5] = [
    "state.json",
    "root.key",
    "root.pem",
    "intermediate.key",
    "intermediate.pem",
];

/// Largest files that are read, in bytes.
const MAX_LEAF_FILE: usize = 128 * 1024;
const MAX_TRUST_FILE: usize = 32 * 1024 * 1024;
const MAX_MESH_FILE: usize = MAX_MESH_BYTES + 1_024;
/// Most leaf files that are read: more than a node can have workloads.
const MAX_LEAVES: usize = 100_000;

/// The state folder, locked by this process until it is dropped.
#[derive(Debug)]
pub(crate) struct State {
    folder: Folder,
    leaves: Folder,
    floor: FloorFile,
    _lock: Lock,
}

/// Content of the state folder.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The node's own identity and its trust; `None` when the node has not joined.
    pub(crate) joined: Option<(Arc<Leaf>, Trusted)>,
    /// Certificates of its workloads.
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Epoch and content of the last mesh.
    pub(crate) mesh: Option<(String, Mesh)>,
    /// Unusable files that the node can start without.
    pub(crate) problems: Vec<Problem>,
}

/// A file that could not be used.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) file: String,
    /// The reason, in one line.
    pub(crate) why: String,
}

/// Why a node's state cannot be used.
#[derive(Debug)]
pub(crate) enum StateError {
    Folder(FolderError),
    /// A file is damaged or missing, or belongs to another node.
    Damaged {
        path: PathBuf,
        why: String,
        remedy: &'static str,
    },
    /// The folder is a control plane's: it holds this file.
    OfAnAuthority(PathBuf),
    /// Path, failed operation, and the system's error.
    Io(PathBuf, &'static str, io::Error),
}

impl State {
    /// Locks the folder for this process; creates it if it is missing. `shown` is its path in messages, `path` the one
    /// that is opened.
    ///
    /// # Errors
    /// When it cannot be created, other users have access to it, another process has locked it, or it is a control
    /// plane's.
    pub(crate) fn open(path: &Path, shown: &Path) -> Result<State, StateError> {
        let folder = Folder::open_as(path, shown)?;
        let names = folder.names()?;
        if let Some(name) = names.iter().find(|name| is_of_an_authority(name)) {
            return Err(StateError::OfAnAuthority(folder.path_of(name)));
        }
        let lock = folder.lock()?;
        folder.sweep()?;
        let leaves = Folder::open_as(&path.join(LEAVES), &folder.path_of(LEAVES))?;
        leaves.sweep()?;
        Ok(State {
            floor: FloorFile::new(path.join(FLOOR)),
            folder,
            leaves,
            _lock: lock,
        })
    }

    /// The time floor; 0 when there is none yet.
    ///
    /// # Errors
    /// When its file is damaged.
    pub(crate) fn floor(&self) -> Result<u64, StateError> {
        let failed =
            |error| StateError::Io(self.folder.path_of(FLOOR), "read the time floor", error);
        self.floor.read().map_err(failed)
    }

    /// Reads all but the time floor. The folder must belong to the node `own`, in any trust domain.
    ///
    /// # Errors
    /// When a file that the node cannot start without is damaged, or belongs to another node.
    pub(crate) fn load(&self, own: &heddle_model::NodeName) -> Result<Found, StateError> {
        let mut found = Found::default();
        let Some(leaf) = self.own(own)? else {
            return Ok(found);
        };
        let trusted = self.trusted(&leaf)?;
        self.load_leaves(&trusted, &mut found)?;
        match self.mesh(&trusted) {
            Ok(mesh) => found.mesh = mesh,
            Err(error @ StateError::Damaged { .. }) => found.problems.push(Problem {
                file: MESH.to_owned(),
                why: error.to_string(),
            }),
            Err(error) => return Err(error),
        }
        found.joined = Some((leaf, trusted));
        Ok(found)
    }

    fn own(&self, own: &heddle_model::NodeName) -> Result<Option<Arc<Leaf>>, StateError> {
        let rejoin = "move it away, and join with a new token: heddle token create NODE";
        let Some(bytes) = self.folder.read(OWN, MAX_LEAF_FILE)? else {
            return Ok(None);
        };
        let damaged = |why| self.damaged(OWN, why, rejoin);
        let leaf = read_leaf(&bytes).map_err(damaged)?;
        let expected = SpiffeId::node(leaf.id().trust_domain.clone(), own.clone());
        if *leaf.id() != expected {
            let why = format!("it is of {}, not of node {own}", leaf.id());
            let remedy = "give each node a folder of its own with --state, or the name that it joined \
                          with to --name";
            return Err(self.damaged(OWN, why, remedy));
        }
        Ok(Some(Arc::new(leaf)))
    }

    fn trusted(&self, own: &Leaf) -> Result<Trusted, StateError> {
        let rejoin = "bring it back from a backup, or move node.leaf away and join with a new token: \
                      heddle token create NODE";
        let damaged = |why| self.damaged(TRUST, why, rejoin);
        let bytes = self.folder.read(TRUST, MAX_TRUST_FILE)?;
        let bytes = bytes.ok_or_else(|| damaged("it is missing".to_owned()))?;
        let trusted = Trusted::from_json(&bytes).map_err(damaged)?;
        if trusted.domain != own.id().trust_domain {
            let domain = &trusted.domain;
            return Err(damaged(format!(
                "it is of {domain}, the node is {}",
                own.id()
            )));
        }
        Ok(trusted)
    }

    fn load_leaves(&self, trusted: &Trusted, found: &mut Found) -> Result<(), StateError> {
        let names = self.leaves.names()?;
        for name in names
            .iter()
            .filter(|name| name.ends_with(LEAF))
            .take(MAX_LEAVES)
        {
            let bytes = self.leaves.read(name, MAX_LEAF_FILE)?.unwrap_or_default();
            let leaf = read_leaf(&bytes).and_then(|leaf| {
                let is_ours = leaf.id().trust_domain == trusted.domain;
                match is_ours && file_of(leaf.id()) == *name {
                    true => Ok(leaf),
                    false => Err(format!("it is of {}", leaf.id())),
                }
            });
            match leaf {
                Ok(leaf) => found.leaves.push(Arc::new(leaf)),
                Err(why) => {
                    let path = self.leaves.path_of(name);
                    let remedy = "remove it; another certificate is asked for as soon as the \
                                  control plane can be reached";
                    let error = StateError::Damaged { path, why, remedy };
                    found.problems.push(Problem {
                        file: name.clone(),
                        why: error.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn mesh(&self, trusted: &Trusted) -> Result<Option<(String, Mesh)>, StateError> {
        let Some(bytes) = self.folder.read(MESH, MAX_MESH_FILE)? else {
            return Ok(None);
        };
        let remedy = "remove it; the control plane sends another as soon as it can be reached";
        let damaged = |why| self.damaged(MESH, why, remedy);
        let file: MeshFile =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if file.epoch.len() > MAX_EPOCH_BYTES {
            return Err(damaged("its epoch is too long".to_owned()));
        }
        if file.on_demand != file.mesh.named.is_some() {
            return Err(damaged(
                "on_demand says otherwise than the mesh does".to_owned(),
            ));
        }
        check_mesh(&file.mesh, &Mesh::default(), trusted).map_err(damaged)?;
        Ok(Some((file.epoch, file.mesh)))
    }

    /// Removes the node's own identity: from here on, the node counts as not joined.
    ///
    /// # Errors
    /// When that could not be made durable.
    pub(crate) fn forget_own(&self) -> Result<(), StateError> {
        self.folder.remove(OWN)?;
        Ok(())
    }

    /// Removes the keys and certificates of all workloads.
    ///
    /// # Errors
    /// When a removal could not be made durable.
    pub(crate) fn forget_leaves(&self) -> Result<(), StateError> {
        for name in self.leaves.names()? {
            if name.ends_with(LEAF) {
                self.leaves.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Writes a key with its certificate.
    ///
    /// # Errors
    /// When it could not be made durable.
    pub(crate) fn save_leaf(
        &self,
        id: &SpiffeId,
        pkcs8: &Zeroizing<Vec<u8>>,
        chain: &[CertificateDer<'static>],
    ) -> Result<(), StateError> {
        let text = write_leaf(id, pkcs8, chain);
        match id.service_account() {
            Some(_) => self.leaves.write(&file_of(id), text.as_bytes())?,
            None => self.folder.write(OWN, text.as_bytes())?,
        }
        Ok(())
    }

    /// Removes a workload's key and certificate.
    ///
    /// # Errors
    /// When that could not be made durable.
    pub(crate) fn forget_leaf(&self, id: &SpiffeId) -> Result<(), StateError> {
        self.leaves.remove(&file_of(id))?;
        Ok(())
    }

    /// Writes the roots and the deny-list.
    ///
    /// # Errors
    /// When it could not be made durable.
    pub(crate) fn save_trust(&self, trusted: &Trusted) -> Result<(), StateError> {
        Ok(self.folder.write(TRUST, &trusted.to_json())?)
    }

    /// Writes a mesh for the next start.
    ///
    /// # Errors
    /// When it could not be made durable.
    pub(crate) fn save_mesh(&self, epoch: &str, mesh: &Mesh) -> Result<(), StateError> {
        // A mesh that was parsed from JSON can be serialised.
        let json = serde_json::to_vec(&MeshRef {
            epoch,
            mesh,
            on_demand: mesh.named.is_some(),
        })
        .unwrap_or_default();
        Ok(self.folder.write(MESH, &json)?)
    }

    /// Removes the mesh that is kept for the next start.
    ///
    /// # Errors
    /// When that could not be made durable.
    pub(crate) fn forget_mesh(&self) -> Result<(), StateError> {
        self.folder.remove(MESH)?;
        Ok(())
    }

    /// Writes the time floor.
    ///
    /// # Errors
    /// When it could not be made durable.
    pub(crate) fn save_floor(&self, floor: u64) -> Result<(), StateError> {
        let failed =
            |error| StateError::Io(self.folder.path_of(FLOOR), "write the time floor", error);
        self.floor.write(floor).map_err(failed)
    }

    fn damaged(&self, name: &str, why: String, remedy: &'static str) -> StateError {
        let path = self.folder.path_of(name);
        StateError::Damaged { path, why, remedy }
    }
}

/// Whether a node creates a file of this name in its folder, even if only during a write.
pub(crate) fn is_kept(name: &str) -> bool {
    [OWN, TRUST, MESH, FLOOR].contains(&name) || OTHERS.contains(&name) || is_being_written(name)
}

/// Whether only the authority of a control plane has a file of that name in its folder.
pub(crate) fn is_of_an_authority(name: &str) -> bool {
    OF_AN_AUTHORITY.contains(&name)
}

/// Error message when a node was given a folder that holds such a file.
pub(crate) const AUTHORITYS: &str = "a control plane keeps its authority in this folder, and a node needs one of its \
                                     own (name another folder with --state)";

/// Whether a node creates a file of this name in the folder of its workloads' keys.
pub(crate) fn is_kept_leaf(name: &str) -> bool {
    name.ends_with(LEAF) || is_being_written(name)
}

fn is_being_written(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".tmp")
}

/// Checks that a received or stored mesh can be served: its invariants hold, and it is of this trust domain. `before` is
/// one that has passed: what is the same in both is not looked at again.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn check_mesh(mesh: &Mesh, before: &Mesh, trusted: &Trusted) -> Result<(), String> {
    if mesh.trust_domain != trusted.domain {
        return Err(format!(
            "it is of the trust domain {}, this node is of {}",
            mesh.trust_domain, trusted.domain
        ));
    }
    mesh.check_part_after(before)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshFile {
    epoch: String,
    mesh: Mesh,
    /// Whether the mesh has only what the node has named. A program that does not know of that must not take the rest for
    /// something outside of the mesh, and refuses the file.
    #[serde(default)]
    on_demand: bool,
}

#[derive(Serialize)]
struct MeshRef<'a> {
    epoch: &'a str,
    mesh: &'a Mesh,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    on_demand: bool,
}

/// Name of a workload's leaf file. It is a digest of fixed length: an identity may be longer than a file name can be.
pub(crate) fn file_of(id: &SpiffeId) -> String {
    let digest = digest(&SHA256, id.to_string().as_bytes());
    hex::encode(&digest.as_ref()[..16]) + LEAF
}

fn write_leaf(
    id: &SpiffeId,
    pkcs8: &Zeroizing<Vec<u8>>,
    chain: &[CertificateDer<'static>],
) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(MAX_LEAF_FILE));
    text.push_str(&id.to_string());
    text.push('\n');
    text.push_str(&pem::encode("PRIVATE KEY", pkcs8));
    for certificate in chain {
        text.push_str(&pem::encode("CERTIFICATE", certificate));
    }
    text
}

fn read_leaf(bytes: &[u8]) -> Result<Leaf, String> {
    let mut sections = pem::sections(bytes)?.into_iter();
    let key = sections.next().filter(|key| key.label == "PRIVATE KEY");
    let key = key.ok_or("it does not begin with a private key")?;
    let mut chain = Vec::new();
    for section in sections {
        if section.label != "CERTIFICATE" {
            return Err("behind the key there is something else than certificates".to_owned());
        }
        chain.push(section.der.to_vec());
    }
    Leaf::new(chain, &key.der).map_err(|error| error.to_string())
}

impl From<FolderError> for StateError {
    fn from(error: FolderError) -> Self {
        StateError::Folder(error)
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Folder(error) => error.fmt(f),
            StateError::Damaged { path, why, remedy } => {
                write!(f, "{} cannot be used: {why} ({remedy})", path.display())
            }
            StateError::OfAnAuthority(path) => write!(f, "{}: {AUTHORITYS}", path.display()),
            StateError::Io(path, what, error) => {
                write!(f, "{}: cannot {what}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for StateError {}

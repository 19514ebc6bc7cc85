//! How a holder does its work: which hooks, whether there is a guard, who the proxy is.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Reply, Request, converse};
use crate::hooks::{Guarded, Kind};

/// How a holder does its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderStatus {
    /// Its process.
    pub pid: u32,
    /// Which hooks there are, never [`Kind::Auto`].
    pub hooks: Kind,
    /// Why there are no BPF programs, if they were wanted.
    pub without_bpf: Option<String>,
    /// The folder that the guard is pinned in: what refuses pods when the holder is gone.
    pub guard: Option<PathBuf>,
    /// Why there is none.
    pub without_guard: Option<String>,
    /// The proxy's process; absent until it is started again.
    pub proxy: Option<ProxyStatus>,
    /// Namespaces that the guard of a holder before refuses, and that are no enrolled pod's.
    pub guarded: Vec<Guarded>,
}

/// The proxy as a process. Whether it answers its holder is said of its pods
/// ([`PodState::Unresponsive`](super::PodState::Unresponsive)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Its process.
    pub pid: u32,
    /// Time since it was started, in seconds.
    pub age_s: u64,
}

/// Asks the holder that listens at `socket` how it does its work.
///
/// # Errors
/// As [`super::ask`].
pub fn describe(socket: &Path) -> io::Result<HolderStatus> {
    let mut holder = None;
    let mut guarded = Vec::new();
    converse(socket, &Request::Describe, None, |reply| match reply {
        Reply::Holder(status) => holder = Some(*status),
        Reply::Guarded(namespace) => guarded.push(namespace),
        Reply::Done | Reply::Pod(_) | Reply::Warning(_) | Reply::Refused(_) => {}
    })?;
    let mut holder =
        holder.ok_or_else(|| io::Error::other("the holder does not say how it works"))?;
    holder.guarded = guarded;
    Ok(holder)
}

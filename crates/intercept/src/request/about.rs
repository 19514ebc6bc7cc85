//! Status of a holder: kind of hooks, guard, and proxy process.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Reply, Request, converse};
use crate::hooks::{Guarded, Kind};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderStatus {
    /// Process ID of the holder.
    pub pid: u32,
    /// Kind of hooks in use, never [`Kind::Auto`].
    pub hooks: Kind,
    /// Why BPF programs are not used, if they were wanted.
    pub without_bpf: Option<String>,
    /// Folder in which the guard is pinned. The guard refuses pods' traffic when the holder is gone.
    pub guard: Option<PathBuf>,
    /// Why there is no guard.
    pub without_guard: Option<String>,
    /// The proxy process; `None` while no proxy runs.
    pub proxy: Option<ProxyStatus>,
    /// Namespaces that the guard of an earlier holder refuses, and that belong to no enrolled pod.
    pub guarded: Vec<Guarded>,
}

/// The proxy process. If it does not answer its holder, its pods are
/// [`PodState::Unresponsive`](super::PodState::Unresponsive).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Process ID of the proxy.
    pub pid: u32,
    /// Time since the proxy was started, in seconds.
    pub age_s: u64,
}

/// Asks the holder that listens at `socket` for its status.
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
        holder.ok_or_else(|| io::Error::other("the holder did not send its status"))?;
    holder.guarded = guarded;
    Ok(holder)
}

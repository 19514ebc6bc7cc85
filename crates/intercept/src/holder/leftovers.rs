//! Removes what a killed holder has left in pods' namespaces: packet filter rules and routes.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use super::memory::{Memory, Remembered};
use super::{Claim, HolderError, pods};
use crate::hooks::{self, HookError};
use crate::routes;

/// Result of [`uninstall`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of pods from whose namespaces rules or routes were removed.
    pub pods: usize,
    /// One line for each pod from which they could not be removed, with the reason.
    pub failures: Vec<String>,
}

/// Removes rules and routes that holders have left in the namespaces of the pods stored in the file `memory`
/// ([`super::Config::claim`]). The file is not changed. Pods that are gone need nothing.
///
/// # Errors
/// When a running holder has these pods, or the file cannot be read.
pub fn uninstall(memory: &Path) -> Result<Removed, HolderError> {
    let mut removed = Removed::default();
    if !memory.exists() {
        return Ok(removed);
    }
    let _ours = Claim::quietly(memory.to_owned())?;
    let mut memory = Memory::open(memory.to_owned())?;
    for pod in memory.recalled() {
        let Some(netns) = still_there(&pod) else {
            continue;
        };
        match clear(&netns, &pod) {
            Ok(true) => removed.pods += 1,
            Ok(false) => {}
            Err(why) => removed
                .failures
                .push(format!("pod {}: {why}", pod.workload)),
        }
    }
    Ok(removed)
}

/// Removes rules and routes of a lost pod that is about to be forgotten.
pub(super) fn forget(pod: &Remembered) {
    let cleared = still_there(pod).map(|netns| clear(&netns, pod));
    if let Some(Err(why)) = cleared {
        tracing::error!(workload = %pod.workload, "cannot remove the rules and routes of a lost pod: {why}");
    }
}

/// The namespace of a stored pod, if it is still the same one, and neither our own nor the machine's.
fn still_there(pod: &Remembered) -> Option<File> {
    let netns = pod.open().ok().filter(pods::is_namespace)?;
    let place = pods::place(&netns).ok()?;
    let is_that = |path: &str| {
        let other = File::open(path)
            .ok()
            .and_then(|other| pods::place(&other).ok());
        other == Some(place)
    };
    (!is_that(pods::OWN_NAMESPACE) && !is_that("/proc/1/ns/net")).then_some(netns)
}

/// Removes rules and routes from a namespace. Returns whether there were any.
fn clear(netns: &File, pod: &Remembered) -> Result<bool, String> {
    let had_rules = match hooks::clear_filters(netns.as_fd()) {
        // `nft` is missing. That is an error only when the namespace is known to have rules.
        Err(HookError::Lacking { .. }) if pod.filtered != Some(true) => false,
        cleared => cleared.map_err(|error| error.to_string())?,
    };
    let had_routes = routes::undo(netns.as_fd()).map_err(|error| error.to_string())?;
    Ok(had_rules || had_routes)
}

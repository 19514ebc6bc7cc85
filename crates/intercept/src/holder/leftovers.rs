//! What a holder that was killed has left in pods: rules of the packet filter, and routes.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use super::memory::{Memory, Remembered};
use super::{Claim, HolderError, pods};
use crate::hooks::{self, HookError};
use crate::routes;

/// What was removed from pods.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The pods in whose namespaces there was something.
    pub pods: usize,
    /// What could not be removed, and why, one line each.
    pub failures: Vec<String>,
}

/// Removes what holders have left in the namespaces of the pods that are remembered in `memory`
/// ([`super::Config::claim`]), which are remembered still. Pods that are gone have nothing any more.
///
/// # Errors
/// When a holder has these pods now, or the file cannot be read.
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

/// The same for a pod that is lost, and is to be remembered no more.
pub(super) fn forget(pod: &Remembered) {
    let cleared = still_there(pod).map(|netns| clear(&netns, pod));
    if let Some(Err(why)) = cleared {
        tracing::error!(workload = %pod.workload, "what is in a lost pod stays: {why}");
    }
}

/// The namespace of a pod that was not started anew, and is neither ours nor the machine's.
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

/// Returns whether there was anything.
fn clear(netns: &File, pod: &Remembered) -> Result<bool, String> {
    let had_rules = match hooks::clear_filters(netns.as_fd()) {
        // Where it is known that there are some, they cannot be left out.
        Err(HookError::Lacking { .. }) if pod.filtered != Some(true) => false,
        cleared => cleared.map_err(|error| error.to_string())?,
    };
    let had_routes = routes::undo(netns.as_fd()).map_err(|error| error.to_string())?;
    Ok(had_rules || had_routes)
}

//! When a new mesh is served: it waits for the certificates of workloads that are new in it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use heddle_model::{Mesh, SpiffeId};

#[cfg(test)]
mod tests;

/// How long a mesh waits for certificates.
const WAITS: Duration = Duration::from_secs(3);

/// The newest mesh, while it waits. No clock: the time is passed in.
#[derive(Default)]
pub(super) struct HeldBack {
    mesh: Option<Box<Mesh>>,
    /// When it is served in any case.
    until: Option<Instant>,
    /// Identities whose certificates a mesh before it has waited for in vain: they hold up no other change.
    given_up: BTreeSet<SpiffeId>,
}

impl HeldBack {
    /// Holds a mesh back, in place of one that still waits. Its wait goes on: changes that come often are served, too.
    pub(super) fn put(&mut self, mesh: Box<Mesh>, now: Instant) {
        self.mesh = Some(mesh);
        self.until.get_or_insert(now + WAITS);
    }

    /// The mesh, if it is to be served now. `missing` have no valid certificate; without a connection to the control plane
    /// none will come.
    pub(super) fn take(
        &mut self,
        missing: BTreeSet<SpiffeId>,
        is_connected: bool,
        now: Instant,
    ) -> Option<Box<Mesh>> {
        let is_awaited = is_connected && !missing.is_subset(&self.given_up);
        if is_awaited && self.until.is_some_and(|until| now < until) {
            return None;
        }
        let mesh = self.mesh.take()?;
        self.until = None;
        self.given_up = missing;
        Some(mesh)
    }

    /// Time until the mesh is served in any case; `None` while there is none.
    pub(super) fn again_in(&self, now: Instant) -> Option<Duration> {
        Some(self.until?.saturating_duration_since(now))
    }
}

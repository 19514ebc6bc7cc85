//! When a mesh is written to the disk for the next start.
//!
//! What decides about calls to this node's workloads is on the disk before it is in force: a restart never goes back to
//! policies that were replaced. Endpoints and routes change often, and are written a little later, the newest only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_model::{Mesh, Pages, Policy, Shared, TrustDomain, Workload};

#[cfg(test)]
mod tests;

/// How long a change may be in force before it is written. A process that ends before that starts with the one before.
const LATER: Duration = Duration::from_secs(5);

/// The epoch of a mesh, and the mesh.
pub(super) type MeshOf = Arc<(String, Box<Mesh>)>;

/// What is on the disk, and what will be. No I/O and no clock.
#[derive(Default)]
pub(super) struct MeshFile {
    guards: Option<Guards>,
    waiting: Option<(MeshOf, Instant)>,
}

/// What decides about calls to this node's workloads.
#[derive(PartialEq)]
struct Guards {
    trust_domain: TrustDomain,
    workloads: Pages<Shared<Workload>>,
    policies: Vec<Arc<Policy>>,
}

impl MeshFile {
    /// A new mesh. Returns it if it is to be written before it is in force.
    pub(super) fn put(&mut self, mesh: MeshOf, now: Instant) -> Option<MeshOf> {
        let guards = Guards {
            trust_domain: mesh.1.trust_domain.clone(),
            workloads: mesh.1.workloads.clone(),
            policies: mesh.1.policies.clone(),
        };
        if self.guards.as_ref() == Some(&guards) {
            let until = self.waiting.take().map_or(now + LATER, |(_, until)| until);
            self.waiting = Some((mesh, until));
            return None;
        }
        self.guards = Some(guards);
        self.waiting = None;
        Some(mesh)
    }

    /// A write has failed: until one succeeds, each mesh is written at once.
    pub(super) fn failed(&mut self) {
        self.guards = None;
    }

    /// The mesh that is to be written now.
    pub(super) fn due(&mut self, now: Instant) -> Option<MeshOf> {
        let (mesh, _) = self.waiting.take_if(|(_, until)| *until <= now)?;
        Some(mesh)
    }

    /// Time until something is due; `None` while nothing waits.
    pub(super) fn again_in(&self, now: Instant) -> Option<Duration> {
        let (_, until) = self.waiting.as_ref()?;
        Some(until.saturating_duration_since(now))
    }
}

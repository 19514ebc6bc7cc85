//! When a mesh is written to the disk for the next start.
//!
//! What decides about calls to this node's workloads is on the disk before it is in force: a restart never goes back to
//! policies that were replaced. Endpoints and routes change often, and are written a little later, the newest only. While
//! nothing can be written, a file with replaced policies is removed: a restart has no mesh then, until the control plane
//! sends one.

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
    /// Of the newest mesh; `None` after a failed write.
    guards: Option<Guards>,
    /// Of the mesh in the file; `None` when there is none, or when that is not known.
    on_disk: Option<Guards>,
    waiting: Option<(MeshOf, Instant)>,
}

/// What decides about calls to this node's workloads.
#[derive(PartialEq)]
struct Guards {
    trust_domain: TrustDomain,
    workloads: Pages<Shared<Workload>>,
    policies: Vec<Arc<Policy>>,
}

impl Guards {
    fn of(mesh: &Mesh) -> Guards {
        Guards {
            trust_domain: mesh.trust_domain.clone(),
            workloads: mesh.workloads.clone(),
            policies: mesh.policies.clone(),
        }
    }
}

impl MeshFile {
    /// A new mesh. Returns it if it is to be written before it is in force.
    pub(super) fn put(&mut self, mesh: MeshOf, now: Instant) -> Option<MeshOf> {
        let guards = Guards::of(&mesh.1);
        if self.guards.as_ref() == Some(&guards) {
            let until = self.waiting.take().map_or(now + LATER, |(_, until)| until);
            self.waiting = Some((mesh, until));
            return None;
        }
        self.guards = Some(guards);
        self.waiting = None;
        Some(mesh)
    }

    /// The file holds this mesh: it was found there, or written.
    pub(super) fn holds(&mut self, mesh: &Mesh) {
        self.on_disk = Some(Guards::of(mesh));
    }

    /// The write of this mesh has failed: until a write succeeds, each mesh is written at once. Returns whether the file
    /// must be removed, because a restart with it could allow what is denied now.
    pub(super) fn failed(&mut self, mesh: &Mesh) -> bool {
        self.guards = None;
        // It stays unknown if the removal fails, which is tried again with the next write.
        self.on_disk.take_if(|on_disk| *on_disk != Guards::of(mesh));
        self.on_disk.is_none()
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

//! Writes a node's state for its next start, and retries failed writes.
//!
//! A full disk may get room again, a folder its permissions: each failed write is retried until it succeeds, or until a
//! newer one replaces it. Until then the status reports it, also while writes of other files succeed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_model::{Mesh, SpiffeId};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::state::{Problem, State, StateError, file_of, files};
use super::trusted::Trusted;
use super::{Agent, blocking, generations};

#[cfg(test)]
mod tests;

/// Topic of the agent's problem with the state folder.
pub(super) const TOPIC: &str = "disk";
/// Time between two retries.
const AGAIN: Duration = Duration::from_secs(10);
/// Most files named in the status.
const TOLD: usize = 3;

/// A key with its certificate.
pub(super) struct Pair {
    pub(super) id: SpiffeId,
    pub(super) pkcs8: Zeroizing<Vec<u8>>,
    pub(super) chain: Vec<CertificateDer<'static>>,
}

/// A change of one file.
#[derive(Clone)]
pub(super) enum Write {
    /// Identity and trust of a node that has just joined; replaces the identity that it had before.
    Joined(Arc<Pair>),
    /// The node's renewed identity, and its trust.
    Own(Arc<Pair>),
    /// A workload's key and certificate.
    Leaf(Arc<Pair>),
    /// Removal of an identity that is not wanted any more.
    Forget(SpiffeId),
    /// Epoch and content of a mesh.
    Mesh(Arc<(String, Box<Mesh>)>),
    Floor(u64),
}

impl Write {
    fn file(&self) -> String {
        match self {
            Write::Joined(_) | Write::Own(_) => files::OWN.to_owned(),
            Write::Leaf(pair) => file_of(&pair.id),
            Write::Forget(id) => file_of(id),
            Write::Mesh(_) => files::MESH.to_owned(),
            Write::Floor(_) => files::FLOOR.to_owned(),
        }
    }

    fn run(&self, state: &State, trusted: Option<&Trusted>) -> Result<(), StateError> {
        match self {
            Write::Joined(pair) => {
                // In this order, a crash in between leaves a node that has not joined.
                state.forget_own()?;
                Write::Own(Arc::clone(pair)).run(state, trusted)
            }
            Write::Own(pair) => {
                trusted.map_or(Ok(()), |trusted| state.save_trust(trusted))?;
                state.save_leaf(&pair.id, &pair.pkcs8, &pair.chain)
            }
            Write::Leaf(pair) => state.save_leaf(&pair.id, &pair.pkcs8, &pair.chain),
            Write::Forget(id) => state.forget_leaf(id),
            Write::Mesh(mesh) => state.save_mesh(&mesh.0, &mesh.1),
            Write::Floor(floor) => state.save_floor(*floor),
        }
    }
}

/// A file that is damaged or out of date on disk.
struct Missing {
    /// The write to retry; `None` when another part of the agent writes the file again.
    write: Option<Write>,
    why: String,
}

/// Files whose last write failed, or that were found damaged.
#[derive(Default)]
pub(super) struct Unsaved {
    files: BTreeMap<String, Missing>,
    again_at: Option<Instant>,
}

impl Unsaved {
    /// Adds files that were found damaged at the start. The next successful write clears each.
    pub(super) fn found(&mut self, problems: Vec<Problem>) {
        for Problem { file, why } in problems {
            tracing::error!("{why}");
            self.files.insert(file, Missing { write: None, why });
        }
    }

    /// Records the result of a write. Logs each new reason why a file fails, and the recovery of the last one.
    fn note(&mut self, file: String, write: Option<Write>, done: &Result<(), String>) {
        let Err(why) = done else {
            let was = self.files.remove(&file);
            if was.is_some() && self.files.is_empty() {
                tracing::info!("the state folder is whole again");
            }
            return;
        };
        self.again_at.get_or_insert(Instant::now() + AGAIN);
        let why = format!("the state folder: {why}");
        let is_known = self.files.get(&file).is_some_and(|one| one.why == why);
        self.files.insert(file, Missing { write, why });
        if !is_known {
            let seconds = AGAIN.as_secs();
            let why = self.why().unwrap_or_default();
            tracing::error!("{why}; it is tried again every {seconds} seconds");
        }
    }

    /// Drops damaged leaf files that no workload needs any more.
    fn forget_unwanted(&mut self) {
        let is_needed = |file: &str| !file.ends_with(files::LEAF) || file == files::OWN;
        self.files
            .retain(|file, missing| missing.write.is_some() || is_needed(file));
    }

    /// Time until the next retry; `None` when nothing is to be retried.
    pub(super) fn again_in(&self) -> Option<Duration> {
        let at = self.again_at?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    fn take_due(&mut self) -> Vec<Write> {
        if self.again_in() != Some(Duration::ZERO) {
            return Vec::new();
        }
        self.again_at = None;
        let writes = self.files.values();
        writes.filter_map(|file| file.write.clone()).collect()
    }

    /// What is wrong, in one line.
    fn why(&self) -> Option<String> {
        let mut whys = self.files.values().map(|missing| &*missing.why);
        let told: Vec<&str> = whys.by_ref().take(TOLD).collect();
        let more = whys.count();
        let told = (!told.is_empty()).then(|| told.join("; "))?;
        Some(match more {
            0 => told,
            more => format!("{told}; and {more} files more"),
        })
    }
}

impl Agent {
    /// Writes a file; a failed write is retried later.
    pub(super) async fn save(&mut self, write: Write) {
        // The trust is read now: a retry writes the newest one.
        let is_own = matches!(write, Write::Joined(_) | Write::Own(_));
        let trusted = is_own.then(|| self.core().trusted().clone());
        let generations = trusted.as_ref().map(generations);
        let run = write.clone();
        let mut saved = blocking(&self.state, move |state| run.run(state, trusted.as_ref())).await;
        if let (Ok(()), Some(generations)) = (&saved, generations) {
            self.durable = generations;
            self.show();
        }
        if let Write::Mesh(mesh) = &write {
            saved = self.mesh_saved(&mesh.1, saved).await;
        }
        self.unsaved.note(write.file(), Some(write), &saved);
        self.show_unsaved();
    }

    /// Records the result of the write of a mesh. If it has failed, an older file with other policies or workloads is
    /// removed, for which a full disk needs no room. Returns the result, with what that means for a restart.
    async fn mesh_saved(&mut self, mesh: &Mesh, saved: Result<(), String>) -> Result<(), String> {
        let Err(why) = saved else {
            self.mesh_file.holds(mesh);
            return Ok(());
        };
        if !self.mesh_file.failed(mesh) {
            return Err(why);
        }
        let removed = blocking(&self.state, State::forget_mesh).await;
        Err(match removed {
            Ok(()) => format!(
                "{why} (no older mesh is kept, since its policies are not those in force: a node that restarts now \
                 waits for the control plane)"
            ),
            Err(error) => format!(
                "{why}; the older mesh, whose policies are not those in force, cannot be removed either: {error} \
                 (remove it before the node restarts)"
            ),
        })
    }

    /// Records whether roots and deny-list were written. `Agent::confirm` retries a failed write.
    pub(super) fn trust_saved(&mut self, saved: &Result<(), String>) {
        self.unsaved.note(files::TRUST.to_owned(), None, saved);
        self.show_unsaved();
    }

    /// Retries failed writes, when they are due.
    pub(super) async fn save_again(&mut self) {
        for write in self.unsaved.take_due() {
            self.save(write).await;
        }
    }

    /// Every wanted identity has a certificate now: leaf files that are still damaged are not needed.
    pub(super) fn all_is_there(&mut self) {
        self.unsaved.forget_unwanted();
        self.show_unsaved();
    }

    pub(super) fn show_unsaved(&self) {
        self.core().problem(TOPIC, self.unsaved.why());
    }
}

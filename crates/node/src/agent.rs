//! Keeps a node's identities: joins, follows the control plane, renews, and remembers.
//!
//! ```text
//!   disk ◄──► agent ◄── events ── courier ◄──► control plane
//!               │  └── orders ──►
//!               └── changes ──► main loop ──► proxy
//! ```
//!
//! All decisions are made in [`Core`]. The disk is written on blocking threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use heddle_transport::{Clock, Peer};
use heddle_xds::TrustUpdate;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

mod apart;
mod core;
mod costs;
mod courier;
mod disk;
mod events;
mod held_back;
mod join;
mod keeper;
mod key;
mod learned;
mod learner;
mod mesh_file;
mod moment;
mod reporter;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod trusted;
mod view;

use self::core::Core;
use crate::exit::Failure;
use crate::serving::Change;
use courier::{CourierOrder, Credentials, Event};
use disk::{Unsaved, Write};
use held_back::HeldBack;
pub(crate) use join::{TokenFile, read_token};
use key::LeafKey;
pub(crate) use learned::Learned;
use mesh_file::{MeshFile, MeshOf};
use moment::Moment;
pub(crate) use reporter::Reporter;
pub(crate) use start::{Learning, Setup, run};
pub(crate) use state::{
    AUTHORITYS, Found, State, StateError, is_kept, is_kept_leaf, is_of_an_authority,
};
use trusted::Trusted;
pub(crate) use view::View;

/// Shortest time between two rebuilds of the identities while certificates are still arriving.
const BUILD_EVERY: Duration = Duration::from_millis(200);

/// Generations of the bundle and of the deny-list, in this order.
fn generations(trusted: &Trusted) -> (u64, u64) {
    (trusted.bundle.generation, trusted.denied.generation)
}

/// Runs disk work on a blocking thread, so that a slow disk does not hold up the agent's task.
async fn blocking(
    state: &Arc<State>,
    work: impl FnOnce(&State) -> Result<(), StateError> + Send + 'static,
) -> Result<(), String> {
    let state = Arc::clone(state);
    match tokio::task::spawn_blocking(move || work(&state)).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A node that has joined.
struct Agent {
    core: Arc<Mutex<Core>>,
    view: Arc<View>,
    clock: Arc<Clock>,
    state: Arc<State>,
    changes: mpsc::Sender<Change>,
    credentials: watch::Sender<Option<Credentials>>,
    /// `None` while the control plane is not connected.
    orders: Option<mpsc::Sender<CourierOrder>>,
    /// The control plane's identity on the last connection; checked again after each trust update.
    peer: Option<Peer>,
    /// The trust update to confirm once it is on disk and in force.
    unconfirmed: Option<TrustUpdate>,
    /// Generations of the bundle and the deny-list on disk. Only these are reported to the control plane: a restart
    /// would go back to them.
    durable: (u64, u64),
    /// Time of the last rebuild of the identities.
    built: Option<Instant>,
    /// The last mesh that was found good.
    checked: Option<MeshOf>,
    held_back: HeldBack,
    mesh_file: MeshFile,
    /// Files that the disk does not hold as it should; failed writes are retried.
    unsaved: Unsaved,
}

impl Agent {
    async fn follow(&mut self, mut events: mpsc::Receiver<Event>) -> Result<(), Failure> {
        loop {
            self.settle().await?;
            let sleeps = self.sleeps();
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.happened(event).await,
                    None => return Ok(()),
                },
                () = sleep(sleeps) => {}
                () = self.changes.closed() => return Ok(()),
            }
        }
    }

    fn sleeps(&self) -> Duration {
        let mut sleep = self.core().sleep(self.now());
        let builds_in = self.builds_in();
        if !builds_in.is_zero() && self.core().is_stale() {
            sleep = sleep.min(builds_in);
        }
        let now = Instant::now();
        let waits = [
            self.unsaved.again_in(),
            self.held_back.again_in(now),
            self.mesh_file.again_in(now),
        ];
        waits.into_iter().flatten().fold(sleep, Duration::min)
    }

    /// Does everything that is due: certificate requests, rebuild, confirmation, held-back mesh, writes.
    async fn settle(&mut self) -> Result<(), Failure> {
        let now = self.now();
        self.core().tick(now);
        self.ask(now);
        if self.builds_in().is_zero() {
            self.build().await?;
        }
        self.confirm().await;
        self.release().await;
        if let Some(floor) = { self.core().take_floor() } {
            self.save(Write::Floor(floor)).await;
        }
        if let Some(mesh) = self.mesh_file.due(Instant::now()) {
            self.save(Write::Mesh(mesh)).await;
        }
        self.save_again().await;
        Ok(())
    }

    /// Time until the next rebuild of the identities. Certificates that arrive one by one share a rebuild; a trust
    /// update causes one at once.
    fn builds_in(&self) -> Duration {
        if self.unconfirmed.is_some() || self.orders.is_none() || self.core().is_complete() {
            return Duration::ZERO;
        }
        let waited = self.built.map_or(BUILD_EVERY, |built| built.elapsed());
        BUILD_EVERY.saturating_sub(waited)
    }

    /// Rebuilds the identities if they have changed, and waits until they are in force.
    async fn build(&mut self) -> Result<(), Failure> {
        let identities = self.core().take_identities();
        if let Some(identities) = identities.map_err(|error| anyhow!(error))? {
            self.built = Some(Instant::now());
            let (ack, acked) = oneshot::channel();
            if self
                .changes
                .send(Change::Identities(identities, ack))
                .await
                .is_err()
            {
                return Ok(());
            }
            // Fails only when the process ends.
            let _ = acked.await;
            self.show();
        }
        Ok(())
    }

    /// Requests the certificates that are due, if the control plane is connected.
    fn ask(&mut self, now: Moment) {
        let Some(orders) = &self.orders else { return };
        let mut core = self.core();
        for id in core.due(now) {
            let order = LeafKey::generate().map(|key| CourierOrder::Issue(id.clone(), key));
            let is_sent = order.is_some_and(|order| orders.try_send(order).is_ok());
            if !is_sent {
                core.failed(&id, "the request could not be sent".to_owned(), now);
            }
        }
    }

    /// Gives the courier the certificate and trust in force, for its next connection.
    fn show(&self) {
        let core = self.core();
        let Some(leaf) = core.own_leaf() else { return };
        let (bundle_generation, deny_generation) = self.durable;
        self.credentials.send_replace(Some(Credentials {
            leaf: Arc::clone(leaf),
            trust: Arc::clone(core.in_force()),
            bundle_generation,
            deny_generation,
        }));
    }

    /// Confirms a trust update once it is on disk and in force: the control plane relies on confirmations.
    async fn confirm(&mut self) {
        let Some(update) = self.unconfirmed.take() else {
            return;
        };
        let trusted = self.core().trusted().clone();
        let generations = generations(&trusted);
        let saved = blocking(&self.state, move |state| state.save_trust(&trusted)).await;
        if saved.is_ok() {
            self.durable = generations;
            self.show();
        }
        match (&saved, &self.orders) {
            (Ok(()), Some(orders)) => {
                // If the connection has ended, the next one reports the generations.
                let _ = orders.try_send(CourierOrder::Confirm(update));
            }
            (Ok(()), None) => {}
            // Retried in the next round of the loop.
            (Err(_), _) => self.unconfirmed = Some(update),
        }
        self.trust_saved(&saved);
    }

    /// Serves the held-back mesh once its workloads have certificates, its wait is over, or the control plane is not
    /// connected.
    async fn release(&mut self) {
        let missing = self.core().missing();
        let (is_connected, now) = (self.orders.is_some(), Instant::now());
        if let Some(mesh) = self.held_back.take(missing, is_connected, now) {
            // Fails only when the process ends.
            let _ = self.changes.send(Change::Mesh(mesh)).await;
            if self.core().is_complete() {
                self.all_is_there();
            }
        }
    }

    fn now(&self) -> Moment {
        self.view.now(self.clock.now())
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        // Each change of the core is complete in itself, so a poisoned lock can still be used.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

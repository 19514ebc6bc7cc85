//! Keeps a node's identities: joins, follows the control plane, renews, and remembers.
//!
//! ```text
//!   disk ◄──► agent ◄── events ── courier ◄──► control plane
//!               │  └── orders ──►
//!               └── changes ──► main loop ──► proxy
//! ```
//!
//! What it decides is decided in [`Core`]. The disk is written on threads that may block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use heddle_model::Mesh;
use heddle_transport::{Clock, Peer};
use heddle_xds::TrustUpdate;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

mod core;
mod courier;
mod disk;
mod events;
mod join;
mod keeper;
mod key;
mod moment;
mod start;
mod state;
mod trusted;
mod view;

use self::core::Core;
use crate::exit::Failure;
use crate::serving::Change;
use courier::{CourierOrder, Credentials, Event};
use disk::{Unsaved, Write};
pub(crate) use join::{TokenFile, read_token};
use key::LeafKey;
use moment::Moment;
pub(crate) use start::{Setup, run};
pub(crate) use state::{
    AUTHORITYS, Found, State, StateError, is_kept, is_kept_leaf, is_of_an_authority,
};
use trusted::Trusted;
pub(crate) use view::View;

/// How often identities are put together while certificates are on their way.
const BUILD_EVERY: Duration = Duration::from_millis(200);

/// Of the bundle and of the deny-list.
fn generations(trusted: &Trusted) -> (u64, u64) {
    (trusted.bundle.generation, trusted.denied.generation)
}

/// Does something with the disk where that may take its time.
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
    /// There while the control plane is reached.
    orders: Option<mpsc::Sender<CourierOrder>>,
    /// Who it was when it was reached last.
    peer: Option<Peer>,
    /// Epoch and generation of the mesh that is in force.
    mesh: Option<(String, u64)>,
    /// What is to be confirmed as soon as it is on the disk and in force.
    unconfirmed: Option<TrustUpdate>,
    /// The generations of bundle and deny-list that a restart would find: what we say that we have.
    durable: (u64, u64),
    /// When identities were put together last.
    built: Option<Instant>,
    /// A mesh that waits for certificates, and until when it does.
    held_back: Option<(Box<Mesh>, Instant)>,
    /// What a restart would not find, although it should.
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
        let sleep = self
            .unsaved
            .again_in()
            .map_or(sleep, |wait| sleep.min(wait));
        match &self.held_back {
            Some((_, until)) => sleep.min(until.saturating_duration_since(Instant::now())),
            None => sleep,
        }
    }

    /// Does what follows from what happened.
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
        self.save_again().await;
        Ok(())
    }

    /// How long identities wait to be put together: while certificates arrive one after the other, not each of
    /// them is worth it. A change of trust is.
    fn builds_in(&self) -> Duration {
        if self.unconfirmed.is_some() || self.orders.is_none() || self.core().is_complete() {
            return Duration::ZERO;
        }
        let waited = self.built.map_or(BUILD_EVERY, |built| built.elapsed());
        BUILD_EVERY.saturating_sub(waited)
    }

    /// Puts identities together when something has changed of them, and waits until they are in force.
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
            // It fails when the process ends.
            let _ = acked.await;
            self.show();
        }
        Ok(())
    }

    /// Asks for what is due, when the control plane is connected.
    fn ask(&mut self, now: Moment) {
        let Some(orders) = &self.orders else { return };
        let mut core = self.core();
        for id in core.due(now) {
            let order = LeafKey::generate().map(|key| CourierOrder::Issue(id.clone(), key));
            let is_sent = order.is_some_and(|order| orders.try_send(order).is_ok());
            if !is_sent {
                core.failed(&id, "it could not be asked for".to_owned(), now);
            }
        }
    }

    /// Has the courier use what is in force with its next connection.
    fn show(&self) {
        let core = self.core();
        let Some(leaf) = core.own_leaf() else { return };
        let (bundle_generation, deny_generation) = self.durable;
        self.credentials.send_replace(Some(Credentials {
            leaf: Arc::clone(leaf),
            trust: Arc::clone(core.in_force()),
            bundle_generation,
            deny_generation,
            mesh: self.mesh.clone(),
        }));
    }

    /// Says that an update is in force once it is on the disk: the control plane counts on nodes that confirm.
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
                // When the connection has ended, the next one says what is in force.
                let _ = orders.try_send(CourierOrder::Confirm(update));
            }
            (Ok(()), None) => {}
            // Tried again before long.
            (Err(_), _) => self.unconfirmed = Some(update),
        }
        self.trust_saved(&saved);
    }

    /// Serves a mesh when its workloads have identities, or have waited long enough.
    async fn release(&mut self) {
        let is_time = |until: &Instant| *until <= Instant::now();
        let ready = self.orders.is_none() || self.core().is_complete();
        if let Some((mesh, _)) = self.held_back.take_if(|(_, until)| ready || is_time(until)) {
            // It fails when the process ends.
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
        // Every change of it is whole before the next begins.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

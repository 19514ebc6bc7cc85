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
use heddle_control::authority::JoinToken;
use heddle_model::{Mesh, NodeName, SpiffeId};
use heddle_transport::{Clock, Leaf, Peer};
use heddle_xds::{Certificate, ClientError, TrustUpdate};
use rustls_pki_types::CertificateDer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::core::Core;
use super::courier::{Courier, Credentials, Event, Order};
use super::join::{JoinFailure, NewNode, join};
use super::key::LeafKey;
use super::moment::Moment;
use super::random::{Backoff, Random};
use super::state::{Found, State, StateError, check_mesh};
use super::view::View;
use crate::exit::{Exit, Failure};
use crate::serving::Change;
use crate::time::utc;

/// Events that may wait.
const EVENTS: usize = 16;
/// How long a new mesh waits for the certificates of workloads that are new in it.
const MESH_WAITS: Duration = Duration::from_secs(3);
/// Waits between two attempts to join.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What a node starts with.
pub(super) struct Setup {
    pub(super) name: NodeName,
    pub(super) control: String,
    /// Where the mesh listener is.
    pub(super) listen: std::net::SocketAddr,
    pub(super) clock: Arc<Clock>,
    pub(super) state: State,
    pub(super) found: Found,
    /// There when the node has not joined yet.
    pub(super) token: Option<JoinToken>,
}

/// Runs until nobody takes its changes; what it fails with is the last of them.
pub(super) async fn run(setup: Setup, view: Arc<View>, changes: mpsc::Sender<Change>) {
    if let Err(failure) = go(setup, view, &changes).await {
        // Nobody takes it when the process ends.
        let _ = changes.send(Change::Failed(failure)).await;
    }
}

async fn go(setup: Setup, view: Arc<View>, changes: &mpsc::Sender<Change>) -> Result<(), Failure> {
    let Setup {
        name,
        control,
        listen,
        clock,
        state,
        found,
        token,
    } = setup;
    let state = Arc::new(state);
    let mut disk_problem = None;
    let (joined, leaves) = match (found.joined, token) {
        (_, Some(token)) => {
            let new = join_at_last(&control, &name, &token, &clock, &view).await?;
            let joined = (Arc::clone(&new.leaf), new.trusted.clone());
            tracing::info!(id = %new.leaf.id(), until = utc(new.leaf.not_after()), "joined");
            // Its certificate is of use although the next start needs another token.
            disk_problem = save_joined(&state, new).await.err();
            (joined, Vec::new())
        }
        (Some(joined), None) => (joined, found.leaves),
        (None, None) => return Err(anyhow!("a node that has not joined needs a token").into()),
    };
    let now = view.now(clock.now());
    let random = Random::from_system();
    let core = Core::new(
        Arc::clone(&clock),
        joined,
        leaves,
        control.clone(),
        random,
        now,
    );
    let core = Arc::new(Mutex::new(core.map_err(|error| anyhow!(error))?));
    view.joined(Arc::clone(&core));
    let (credentials, shown) = watch::channel(None);
    let (sender, events) = mpsc::channel(EVENTS);
    let mut agent = Agent {
        core,
        view,
        clock,
        state,
        changes: changes.clone(),
        credentials,
        orders: None,
        peer: None,
        mesh: None,
        unconfirmed: None,
        held_back: None,
    };
    agent.disk(disk_problem.map_or(Ok(()), Err));
    agent.from_disk(found.mesh, &found.problems).await;
    let courier = Courier {
        control,
        name,
        listen,
        clock: Arc::clone(&agent.clock),
        credentials: shown,
        events: sender,
    };
    tokio::spawn(courier.run());
    agent.follow(events).await
}

/// Tries until it is decided.
async fn join_at_last(
    control: &str,
    name: &NodeName,
    token: &JoinToken,
    clock: &Arc<Clock>,
    view: &View,
) -> Result<NewNode, Failure> {
    let mut random = Random::from_system();
    let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
    loop {
        match join(control, name, token, clock).await {
            Ok(new) => return Ok(new),
            Err(JoinFailure::ForGood(why)) => {
                return Err(Failure::new(Exit::Failed, anyhow!("not joined: {why}")));
            }
            Err(JoinFailure::ForNow(why)) => {
                tracing::warn!(control, "not joined yet, trying again: {why}");
                view.not_joined(why);
                sleep(backoff.failed(&mut random)).await;
            }
        }
    }
}

async fn save_joined(state: &Arc<State>, new: NewNode) -> Result<(), String> {
    blocking(state, move |state| {
        let id = new.leaf.id();
        state.save_joined((id, new.key.pkcs8(), &new.chain), &new.trusted)
    })
    .await
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
    orders: Option<mpsc::Sender<Order>>,
    /// Who it was when it was reached last.
    peer: Option<Peer>,
    /// Epoch and generation of the mesh that is in force.
    mesh: Option<(String, u64)>,
    /// What is to be confirmed as soon as it is on the disk and in force.
    unconfirmed: Option<TrustUpdate>,
    /// A mesh that waits for certificates, and until when it does.
    held_back: Option<(Box<Mesh>, Instant)>,
}

impl Agent {
    /// Begins with what was found on the disk.
    async fn from_disk(&mut self, mesh: Option<(String, Mesh)>, problems: &[String]) {
        for problem in problems {
            tracing::error!("{problem}");
        }
        let found = (!problems.is_empty()).then(|| problems.join("; "));
        self.core().problem("found", found);
        let Some((epoch, mesh)) = mesh else { return };
        tracing::info!(
            generation = mesh.generation,
            "going on with the mesh of the last run"
        );
        self.mesh = Some((epoch, mesh.generation));
        self.want(&mesh).await;
        // There is nobody to ask yet, so there is nothing to wait for.
        self.held_back = Some((Box::new(mesh), Instant::now()));
    }

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
        let sleep = self.core().sleep(self.now());
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
        let identities = self.core().take_identities();
        if let Some(identities) = identities.map_err(|error| anyhow!(error))? {
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
        self.confirm().await;
        self.release().await;
        if let Some(floor) = { self.core().take_floor() } {
            let saved = blocking(&self.state, move |state| state.save_floor(floor)).await;
            self.disk(saved);
        }
        Ok(())
    }

    /// Asks for what is due, when there is somebody to ask.
    fn ask(&mut self, now: Moment) {
        let Some(orders) = &self.orders else { return };
        let mut core = self.core();
        for id in core.due(now) {
            let order = LeafKey::generate().map(|key| Order::Issue(id.clone(), key));
            let sent = order.map(|order| orders.try_send(order));
            if !matches!(sent, Some(Ok(()))) {
                core.failed(&id, "it could not be asked for".to_owned(), now);
            }
        }
    }

    /// Has the courier use what is in force with its next connection.
    fn show(&self) {
        let core = self.core();
        let Some(leaf) = core.own_leaf() else { return };
        let trusted = core.trusted();
        self.credentials.send_replace(Some(Credentials {
            leaf: Arc::clone(leaf),
            trust: Arc::clone(core.in_force()),
            bundle_generation: trusted.bundle.generation,
            deny_generation: trusted.denied.generation,
            mesh: self.mesh.clone(),
        }));
    }

    /// Says that an update is in force once it is on the disk: whoever confirms is counted on.
    async fn confirm(&mut self) {
        let Some(update) = self.unconfirmed.take() else {
            return;
        };
        let trusted = self.core().trusted().clone();
        let saved = blocking(&self.state, move |state| state.save_trust(&trusted)).await;
        match (&saved, &self.orders) {
            (Ok(()), Some(orders)) => {
                // When the connection has ended, the next one says what is in force.
                let _ = orders.try_send(Order::Confirm(update));
            }
            (Ok(()), None) => {}
            // Tried again before long.
            (Err(_), _) => self.unconfirmed = Some(update),
        }
        self.disk(saved);
    }

    /// Serves a mesh when its workloads have identities, or have waited long enough.
    async fn release(&mut self) {
        let is_time = |until: &Instant| *until <= Instant::now();
        let ready = self.orders.is_none() || self.core().is_complete();
        if let Some((mesh, _)) = self.held_back.take_if(|(_, until)| ready || is_time(until)) {
            // It fails when the process ends.
            let _ = self.changes.send(Change::Mesh(mesh)).await;
        }
    }

    async fn happened(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Up(peer, orders) => {
                tracing::info!(
                    until = utc(peer.not_after),
                    "connected to the control plane"
                );
                self.clock.raise(peer.not_before);
                self.core().link_up(now);
                (self.orders, self.peer) = (Some(orders), Some(peer));
            }
            Event::Down(why) => {
                tracing::warn!("the control plane is not reached: {why}");
                self.core().link_down(why, now);
                self.orders = None;
            }
            Event::Trust(update) => self.trust(update),
            Event::Mesh(epoch, mesh) => self.new_mesh(epoch, mesh).await,
            Event::NoMesh(why) => {
                tracing::error!("no mesh comes: {why}");
                let what = format!("the control plane sends no mesh: {why}");
                self.core().problem("mesh", Some(what));
            }
            Event::Issued(id, key, answer) => self.issued(id, key, answer).await,
        }
    }

    fn trust(&mut self, update: TrustUpdate) {
        if let Some(bundle) = &update.bundle {
            let roots = bundle.roots.len();
            tracing::info!(generation = bundle.generation, roots, "roots to trust");
        }
        if let Some(denied) = &update.denied {
            let entries = denied.entries.len();
            tracing::info!(generation = denied.generation, entries, "deny-list");
        }
        let trusted = self.core().trust(&update);
        let problem = trusted.err().map(|why| {
            tracing::error!("whom to trust is refused: {why}");
            format!("what the control plane says of trust is refused: {why}")
        });
        let is_refused = problem.is_some();
        self.core().problem("trust", problem);
        if is_refused {
            return;
        }
        let TrustUpdate { bundle, denied } = self.unconfirmed.take().unwrap_or(TrustUpdate {
            bundle: None,
            denied: None,
        });
        self.unconfirmed = Some(TrustUpdate {
            bundle: update.bundle.or(bundle),
            denied: update.denied.or(denied),
        });
        let refused = self
            .peer
            .as_ref()
            .and_then(|peer| self.core().check_peer(peer).err());
        if let Some(refusal) = refused {
            tracing::warn!("the control plane is not believed any more: {refusal}");
            self.show();
            self.reconnect();
        }
    }

    async fn new_mesh(&mut self, epoch: String, mesh: Box<Mesh>) {
        let checked = check_mesh(&mesh, self.core().trusted());
        let problem = checked.err().map(|why| {
            let generation = mesh.generation;
            tracing::error!(
                generation,
                "a mesh was refused, the last one is still served: {why}"
            );
            format!("the mesh of generation {generation} was refused: {why}")
        });
        let is_refused = problem.is_some();
        self.core().problem("mesh", problem);
        if is_refused {
            return;
        }
        self.mesh = Some((epoch.clone(), mesh.generation));
        self.want(&mesh).await;
        self.show();
        let kept = mesh.clone();
        let saved = blocking(&self.state, move |state| state.save_mesh(&epoch, &kept)).await;
        self.disk(saved);
        self.held_back = Some((mesh, Instant::now() + MESH_WAITS));
    }

    /// Wants the identities of a mesh's workloads, and forgets those of others.
    async fn want(&mut self, mesh: &Mesh) {
        let dropped = self.core().want(mesh);
        if dropped.is_empty() {
            return;
        }
        let forgotten = blocking(&self.state, move |state| {
            dropped.iter().try_for_each(|id| state.forget_leaf(id))
        });
        let forgotten = forgotten.await;
        self.disk(forgotten);
    }

    async fn issued(
        &mut self,
        id: SpiffeId,
        key: LeafKey,
        answer: Result<Certificate, ClientError>,
    ) {
        let now = self.now();
        let chain = match self.take(&id, &key, answer, now) {
            Ok(Some(chain)) => chain,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(%id, "no certificate, trying again: {why}");
                return;
            }
        };
        let is_own = id.service_account().is_none();
        let saved = blocking(&self.state, move |state| {
            state.save_leaf(&id, key.pkcs8(), &chain)
        });
        let saved = saved.await;
        self.disk(saved);
        if is_own {
            self.show();
            self.reconnect();
        }
    }

    /// Has the courier connect again with what is in force. What was asked for over the old connection is
    /// still answered.
    fn reconnect(&mut self) {
        if let Some(orders) = self.orders.take() {
            // When there is no room or no connection, it ends by itself: nobody gives it orders.
            let _ = orders.try_send(Order::Reconnect);
        }
    }

    /// Takes a certificate that is right; says what of it is to be kept on the disk, if it is still wanted.
    fn take(
        &self,
        id: &SpiffeId,
        key: &LeafKey,
        answer: Result<Certificate, ClientError>,
        now: Moment,
    ) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
        let leaf = answer
            .map_err(|error| error.to_string())
            .and_then(|certificate| {
                let chain = certificate.chain.iter().map(|der| der.to_vec()).collect();
                let leaf = Leaf::new(chain, key.pkcs8()).map_err(|error| error.to_string())?;
                Ok((leaf, certificate.chain))
            });
        let mut core = self.core();
        let (leaf, chain) = match leaf {
            Ok(leaf) => leaf,
            Err(why) => {
                core.failed(id, why.clone(), now);
                return Err(why);
            }
        };
        let until = utc(leaf.not_after());
        core.issued(id, Arc::new(leaf), now)
            .map_err(|refusal| refusal.to_string())?;
        let is_wanted = core.wants(id);
        if is_wanted {
            tracing::info!(%id, until, "certificate");
        }
        Ok(is_wanted.then_some(chain))
    }

    /// Notes whether the disk does what it should.
    fn disk(&self, done: Result<(), String>) {
        let problem = done.err().map(|why| {
            tracing::error!("the state folder: {why}");
            format!("the state folder: {why}")
        });
        self.core().problem("disk", problem);
    }

    fn now(&self) -> Moment {
        self.view.now(self.clock.now())
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        // Every change of it is whole before the next begins.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

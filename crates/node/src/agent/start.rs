//! Starts a node's agent: with the state on disk, or by joining.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use heddle_model::calendar::utc;
use heddle_model::{Backoff, Random};
use heddle_model::{Dependency, DependencyState, Mesh, NodeName};
use heddle_proxy::Questions;
use heddle_transport::Clock;
use heddle_transport::secrets::JoinToken;
use heddle_xds::NodeMesh;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::core::Core;
use super::courier::Courier;
use super::disk::{Pair, Unsaved, Write};
use super::held_back::HeldBack;
use super::join::{JoinFailure, NewNode, join};
use super::learned::Learned;
use super::learner::Learner;
use super::mesh_file::MeshFile;
use super::reporter::Reporter;
use super::state::{Found, State, check_mesh};
use super::view::View;
use super::{Agent, blocking, generations};
use crate::exit::{Exit, Failure};
use crate::serving::Change;

/// Capacity of the queue of events.
const EVENTS: usize = 16;
/// Shortest and longest back-off between two attempts to join.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What a node starts with.
pub(crate) struct Setup {
    pub(crate) name: NodeName,
    pub(crate) control: String,
    /// Address of the mesh listener.
    pub(crate) listen: SocketAddr,
    pub(crate) clock: Arc<Clock>,
    pub(crate) state: State,
    pub(crate) found: Found,
    /// `Some` when the node has to join.
    pub(crate) token: Option<JoinToken>,
    /// `Some` when the node knows only what it uses.
    pub(crate) learning: Option<Learning>,
    /// Tells what lazy callers use by this node as their gateway.
    pub(crate) reporter: Reporter,
}

/// How a node learns what it uses.
#[derive(Clone)]
pub(crate) struct Learning {
    /// What its Workers ask.
    pub(crate) questions: Questions,
    /// What it has learned.
    pub(crate) learned: Learned,
    /// How long something may be unused before it is forgotten.
    pub(crate) forget_after: Duration,
}

/// Runs until the receiver of `changes` is gone. A fatal error is sent as the last change.
pub(crate) async fn run(setup: Setup, view: Arc<View>, changes: mpsc::Sender<Change>) {
    if let Err(failure) = go(setup, view, &changes).await {
        // The receiver is gone when the process ends.
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
        learning,
        reporter,
    } = setup;
    let state = Arc::new(state);
    // Read first: joining may raise the clock's floor.
    let floor_on_disk = clock.floor();
    let mut new_pair = None;
    let mut mesh = found.mesh;
    let (joined, leaves) = match (found.joined, token) {
        (_, Some(token)) => {
            let new = join_at_last(&control, &name, &token, &clock, &view).await?;
            let joined = (Arc::clone(&new.leaf), new.trusted.clone());
            tracing::info!(id = %new.leaf.id(), until = utc(new.leaf.not_after()), "joined");
            // If the write below fails, the node runs all the same, but its next start needs another token.
            new_pair = Some(pair_of(new));
            // The mesh on disk may be of another trust domain, which the node was in before.
            mesh = mesh.filter(|(_, mesh)| check_mesh(mesh, &Mesh::default(), &joined.1).is_ok());
            (joined, Vec::new())
        }
        (Some(joined), None) => (joined, found.leaves),
        (None, None) => return Err(anyhow!("a node that has not joined needs a token").into()),
    };
    let durable = match new_pair {
        None => generations(&joined.1),
        // Nothing is durable until the pair is written.
        Some(_) => (0, 0),
    };
    let now = view.now(clock.now());
    let random = Random::from_system();
    let core = Core::new(
        (Arc::clone(&clock), floor_on_disk),
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
        unconfirmed: None,
        durable,
        built: None,
        checked: None,
        held_back: HeldBack::default(),
        mesh_file: MeshFile::default(),
        unsaved: Unsaved::default(),
    };
    agent.unsaved.found(found.problems);
    agent.show_unsaved();
    if let Some(pair) = new_pair {
        agent.save_joined(pair).await;
    }
    let known = mesh.as_ref().and_then(|(_, mesh)| mesh.named.clone());
    agent.begin(mesh).await;
    agent.show();
    let courier = Courier {
        control,
        name,
        listen,
        clock: Arc::clone(&agent.clock),
        credentials: shown,
        events: sender,
    };
    let known = known.as_deref().map_or(&[][..], Vec::as_slice);
    let (mesh, learner) = learner(&courier.name, learning, known);
    tokio::spawn(courier.run(mesh, learner, reporter));
    agent.follow(events).await
}

/// What the node has of the mesh, nothing yet, and what learns more of it if it names what it uses.
fn learner(
    node: &NodeName,
    learning: Option<Learning>,
    known: &[(Dependency, DependencyState)],
) -> (NodeMesh, Option<Learner>) {
    let Some(Learning {
        questions,
        learned,
        forget_after,
    }) = learning
    else {
        return (NodeMesh::new(node.clone()), None);
    };
    let (mut mesh, now) = (NodeMesh::on_demand(node.clone()), Instant::now());
    let mut learner = Learner::new(questions, learned, forget_after, now);
    learner.recall(known, &mut mesh, now);
    (mesh, Some(learner))
}

/// Retries until the node has joined, or until an operator has to act.
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
                sleep(random.spread(backoff.failed())).await;
            }
        }
    }
}

fn pair_of(new: NewNode) -> Pair {
    Pair {
        id: new.leaf.id().clone(),
        pkcs8: new.key.pkcs8().clone(),
        chain: new.chain,
    }
}

impl Agent {
    /// Writes the new identity, in place of the one that the node had before.
    async fn save_joined(&mut self, pair: Pair) {
        if let Err(why) = blocking(&self.state, State::forget_leaves).await {
            tracing::error!("the state folder: {why}");
        }
        self.save(Write::Joined(Arc::new(pair))).await;
    }

    /// Starts with the mesh that was found on disk.
    pub(super) async fn begin(&mut self, mesh: Option<(String, Mesh)>) {
        let Some((_, mesh)) = mesh else { return };
        tracing::info!(
            generation = mesh.generation,
            "going on with the mesh of the last run"
        );
        self.mesh_file.holds(&mesh);
        self.want(&mesh).await;
        // The control plane is not connected yet, so there is nothing to wait for.
        self.held_back.put(Box::new(mesh), Instant::now());
    }
}

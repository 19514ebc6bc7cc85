//! The newest mesh, as each node is to see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use heddle_model::{Mesh, Node, NodeName, ServiceAccountName};
use heddle_transport::secrets::FolderError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::mesh::{MeshSlice, MeshSource};
use super::nodes::{Nodes, Present};

/// How long nodes that come, go or move are waited for before all others are told: when a hundred
/// nodes start, each of them is told a few times, not a hundred times.
const GATHER: Duration = Duration::from_millis(50);
/// All nodes are told of other nodes once in this time at most, for each node that there is …
const REST_PER_NODE: Duration = Duration::from_millis(5);
/// … and up to this.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Where a mesh is put up for all nodes. Clones are the same.
///
/// A node's part changes with the mesh, and with which nodes there are and where: either makes a new
/// generation.
#[derive(Clone)]
pub struct Board {
    shared: Arc<BoardState>,
}

struct BoardState {
    epoch: String,
    nodes: Nodes,
    newest: Mutex<Newest>,
    /// Counts what was put up, from 1; 0 while there is nothing.
    generation: watch::Sender<u64>,
}

/// What is put up.
#[derive(Clone, Default)]
struct Newest {
    mesh: Option<Arc<Mesh>>,
    /// Which accounts have a workload on which node.
    placed: Arc<BTreeMap<NodeName, BTreeSet<ServiceAccountName>>>,
}

impl Board {
    /// An empty one, of an epoch that nothing was before.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn new(nodes: Nodes) -> Result<Self, FolderError> {
        Ok(Self {
            shared: Arc::new(BoardState {
                epoch: heddle_transport::secrets::random_text()?,
                nodes,
                newest: Mutex::default(),
                generation: watch::Sender::new(0),
            }),
        })
    }

    /// Puts a mesh up in place of the one before.
    pub fn put(&self, mesh: Mesh) {
        let mut placed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for workload in &mesh.workloads {
            if let Some(node) = &workload.node {
                let accounts = placed.entry(node.clone()).or_default();
                accounts.insert(workload.service_account.clone());
            }
        }
        *self.shared.newest() = Newest {
            mesh: Some(Arc::new(mesh)),
            placed: Arc::new(placed),
        };
        self.shared
            .generation
            .send_modify(|generation| *generation += 1);
    }

    /// The mesh that is up, with the nodes that are there.
    pub fn mesh(&self) -> Option<Mesh> {
        self.shared.whole()
    }

    /// Which run of the control plane counts the generations.
    pub fn epoch(&self) -> &str {
        &self.shared.epoch
    }

    /// Counts what was put up, from 1; 0 while there is nothing.
    pub fn generation(&self) -> u64 {
        *self.shared.generation.borrow()
    }

    /// What a [`ControlServer`](super::ControlServer) serves.
    pub fn source(&self) -> MeshSource {
        let (parts, accounts) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        MeshSource {
            epoch: self.shared.epoch.clone(),
            generation: self.shared.generation.subscribe(),
            for_node: Box::new(move |node| parts.part(node)),
            is_placed: Box::new(move |node, account| {
                let placed = Arc::clone(&accounts.newest().placed);
                let accounts = placed.get(node);
                accounts.is_some_and(|accounts| accounts.contains(account))
            }),
        }
    }

    /// Makes a new generation whenever a node comes, moves or is forgotten. It never ends.
    pub async fn follow_nodes(&self) {
        let mut reached = self.shared.nodes.watch_reached();
        let mut rested = Instant::now();
        // The sender is the nodes' own, which we hold.
        while reached.changed().await.is_ok() {
            sleep_until(rested.max(Instant::now() + GATHER)).await;
            let nodes = u32::try_from(reached.borrow_and_update().len());
            let rest = REST_PER_NODE.saturating_mul(nodes.unwrap_or(u32::MAX));
            rested = Instant::now() + rest.min(LONGEST_REST);
            let generation = &self.shared.generation;
            generation.send_if_modified(|generation| {
                let is_up = *generation > 0;
                *generation += u64::from(is_up);
                is_up
            });
        }
    }
}

impl BoardState {
    fn part(&self, node: &NodeName) -> MeshSlice {
        // Read first: what is newer than it says is told again.
        let generation = *self.generation.borrow();
        let mut part = self.whole().unwrap_or_default().for_node(node);
        part.generation = generation;
        // Names, numbers and texts always have a text; a node refuses an empty one and says so.
        let json = serde_json::to_vec(&part).unwrap_or_default();
        MeshSlice {
            generation,
            json: Bytes::from(json),
        }
    }

    fn whole(&self) -> Option<Mesh> {
        let mesh = self.newest().mesh.clone()?;
        let mut mesh = Mesh::clone(&mesh);
        mesh.nodes = nodes(&self.nodes.reached());
        Some(mesh)
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // It is replaced whole.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nodes(reached: &Present) -> Vec<Node> {
    let node = |(name, address): (&NodeName, &_)| Node {
        name: name.clone(),
        address: *address,
    };
    reached.iter().map(node).collect()
}

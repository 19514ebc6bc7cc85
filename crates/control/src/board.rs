//! The newest mesh, and the part of it that each node gets.

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

/// Changes of nodes are collected for this time before all nodes get an update: when a hundred nodes
/// start, each gets a few updates, not a hundred.
const GATHER: Duration = Duration::from_millis(50);
/// Minimum time between two such updates, for each known node …
const REST_PER_NODE: Duration = Duration::from_millis(5);
/// … and its upper limit.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Publishes the mesh to all nodes. Clones share the same state.
///
/// A node's part changes with the mesh, and with the set of nodes and their addresses. Each such change makes a new
/// generation.
#[derive(Clone)]
pub struct Board {
    shared: Arc<BoardState>,
}

struct BoardState {
    epoch: String,
    nodes: Nodes,
    newest: Mutex<Newest>,
    /// Generation of the published mesh, from 1; 0 before the first.
    generation: watch::Sender<u64>,
}

/// The published mesh, and an index of it.
#[derive(Clone, Default)]
struct Newest {
    mesh: Option<Arc<Mesh>>,
    /// Service accounts that have a workload on each node.
    placed: Arc<BTreeMap<NodeName, BTreeSet<ServiceAccountName>>>,
}

impl Board {
    /// An empty board with a new, random epoch.
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

    /// Publishes a mesh in place of the previous one.
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

    /// The published mesh, with the known nodes and their addresses.
    pub fn mesh(&self) -> Option<Mesh> {
        self.shared.whole()
    }

    /// Identifies this run of the control plane, within which generations are comparable.
    pub fn epoch(&self) -> &str {
        &self.shared.epoch
    }

    /// Generation of the published mesh, from 1; 0 before the first.
    pub fn generation(&self) -> u64 {
        *self.shared.generation.borrow()
    }

    /// The source from which a [`ControlServer`](super::ControlServer) serves this board.
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

    /// Makes a new generation when nodes appear, move or are forgotten. Never returns.
    pub async fn follow_nodes(&self) {
        let mut reached = self.shared.nodes.watch_reached();
        let mut rested = Instant::now();
        // Never fails: `nodes` holds the sender.
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
        // Read before the mesh: if the mesh turns out newer than this number, the node gets it once more.
        let generation = *self.generation.borrow();
        let mut part = self.whole().unwrap_or_default().for_node(node);
        part.generation = generation;
        // Serializing names, numbers and strings cannot fail; a node would refuse an empty text and log it.
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
        // It is only ever replaced as a whole, so a poisoned lock is safe to use.
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

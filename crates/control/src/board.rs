//! The newest mesh, and the resources of it that each node gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_model::{
    Forwarding, Mesh, Node, NodeName, ServiceAccountName, Shared, SpiffeId, TrustDomain,
};
use heddle_transport::secrets::FolderError;
use heddle_xds::delta::{Answer, Request, TooMany};
use heddle_xds::proto::{DiscoveryResponse, Mark, Resource};
use heddle_xds::resources::Type;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::catalog::Catalog;
use super::changes::Changes;
use super::nodes::{Nodes, Present, Standing};
use super::streams::{OpenStream, Streams};
use super::subscriptions::{Subscriptions, Told};

/// Changes of nodes are collected for this time before all nodes get an update: when a hundred nodes
/// start, each gets a few updates, not a hundred.
const GATHER: Duration = Duration::from_millis(50);
/// Minimum time between two such updates, for each known node …
const REST_PER_NODE: Duration = Duration::from_millis(5);
/// … and its upper limit.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// After a stream's scope was found anew, for how long it is not again, in multiples of the time that it took: other streams
/// wait meanwhile.
const REST_FOR_SCOPE: u32 = 32;

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
    newest: Mutex<Option<Arc<Mesh>>>,
    roles: Mutex<Roles>,
    /// Read by the streams of all nodes.
    catalog: Mutex<Catalog>,
    /// Held while a mesh is compared with the one before.
    changes: Mutex<Changes>,
    streams: Streams,
    /// Generation of the published mesh, from 1; 0 before the first.
    generation: watch::Sender<u64>,
}

/// Who has a part in forwarding, and who is denied it.
#[derive(Default)]
struct Roles {
    /// As manifests say.
    written: Shared<Forwarding>,
    denied: BTreeSet<SpiffeId>,
    /// The ones without the others.
    published: Shared<Forwarding>,
}

impl Roles {
    /// Whether the workloads of an account are denied.
    fn is_denied(&self, domain: &TrustDomain, account: &ServiceAccountName) -> bool {
        let id = SpiffeId::workload(domain.clone(), account.clone());
        self.denied.contains(&id)
    }

    /// The roles in a mesh. What has not changed is the same object.
    fn of(&mut self, mesh: &Mesh) -> Shared<Forwarding> {
        let roles = match self.denied.is_empty() {
            true => self.written.clone(),
            false => {
                let is_denied = |account: &_| self.is_denied(&mesh.trust_domain, account);
                Shared::from(self.written.without(is_denied))
            }
        };
        if self.published != roles {
            self.published = roles;
        }
        self.published.clone()
    }
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
                roles: Mutex::default(),
                catalog: Mutex::default(),
                changes: Mutex::default(),
                streams: Streams::default(),
                generation: watch::Sender::new(0),
            }),
        })
    }

    /// Publishes a mesh in place of the previous one. Blocks while what differs is encoded, some microseconds for each
    /// resource. What is the same object in memory as before does not differ.
    pub fn put(&self, mesh: Mesh) {
        self.shared.publish(Some(mesh));
    }

    /// From now on these identities have no part in forwarding for lazy Envoys. Blocks like [`Board::put`].
    pub(super) fn deny(&self, denied: BTreeSet<SpiffeId>) {
        let mut roles = self.shared.roles();
        if roles.denied == denied {
            return;
        }
        roles.denied = denied;
        drop(roles);
        self.shared.publish(None);
    }

    /// The published mesh, with the known nodes and their addresses.
    pub fn mesh(&self) -> Option<Mesh> {
        self.shared.whole()
    }

    /// The published mesh, shared; `None` before the first.
    pub fn newest(&self) -> Option<Arc<Mesh>> {
        self.shared.newest().clone()
    }

    /// Identifies this run of the control plane, within which generations are comparable.
    pub fn epoch(&self) -> &str {
        &self.shared.epoch
    }

    /// Generation of the published mesh, from 1; 0 before the first.
    pub fn generation(&self) -> u64 {
        *self.shared.generation.borrow()
    }

    /// The generation, which each published mesh and each change of nodes makes a new one.
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.shared.generation.subscribe()
    }

    /// Whether the published mesh places a workload with that service account on the node.
    pub(super) fn is_placed(&self, node: &NodeName, account: &ServiceAccountName) -> bool {
        let own = self.shared.catalog().own(node);
        own.accounts.contains(account)
    }

    /// Whether the node is a gateway in the published mesh.
    pub(super) fn is_gateway(&self, node: &NodeName) -> bool {
        self.shared.catalog().own(node).is_gateway
    }

    /// The nodes with workloads in the published mesh, and how many each has.
    pub fn placed(&self) -> BTreeMap<NodeName, usize> {
        self.shared.catalog().placed()
    }

    /// Whether the published mesh has a workload on the node.
    pub fn has_workloads(&self, node: &NodeName) -> bool {
        self.shared.catalog().own(node).has_workloads()
    }

    /// Opens a node's stream, which notes in `standing` what the node has.
    pub(super) fn open(&self, subscriptions: Subscriptions, standing: Standing) -> OpenStream {
        self.shared.streams.open(subscriptions, standing)
    }

    /// Takes a node's message about a type of resource.
    ///
    /// # Errors
    /// When the node wants too much.
    pub(super) fn receive(
        &self,
        of: &mut Subscriptions,
        kind: Type,
        request: Request,
    ) -> Result<Answer, TooMany> {
        let catalog = self.shared.catalog();
        of.receive(kind, request, &catalog)
    }

    /// The next message for a node, if there is something to say; nothing before the first mesh.
    pub(super) fn respond(&self, to: &mut Subscriptions) -> Option<DiscoveryResponse> {
        let is_costly = to.is_scope_stale();
        let catalog = self.shared.catalog();
        let began = Instant::now();
        let told = match catalog.generation() {
            0 => None,
            _ => to.respond(&catalog),
        };
        drop(catalog);
        if is_costly {
            to.rests_until = Some(Instant::now() + began.elapsed() * REST_FOR_SCOPE);
        }
        Some(self.message(told?))
    }

    fn message(&self, told: Told) -> DiscoveryResponse {
        let mark = told.mark.map(|(generation, requests)| Mark {
            epoch: self.shared.epoch.clone(),
            generation,
            requests,
        });
        let Some((kind, response)) = told.response else {
            return DiscoveryResponse {
                mark,
                ..DiscoveryResponse::default()
            };
        };
        let resources = response.resources.into_iter().map(|resource| Resource {
            name: resource.name.to_string(),
            version: resource.version.into(),
            content: resource.content,
        });
        DiscoveryResponse {
            type_url: kind.type_url().to_owned(),
            resources: resources.collect(),
            removed: response.removed.iter().map(ToString::to_string).collect(),
            nonce: response.nonce.into(),
            mark,
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
            let shared = Arc::clone(&self.shared);
            let publishing = tokio::task::spawn_blocking(move || shared.publish(None));
            // It fails only when the runtime ends.
            let _ended = publishing.await;
        }
    }
}

impl BoardState {
    /// Makes this mesh, or the newest one, and the nodes that are known now a new generation. Nothing before the first mesh.
    fn publish(&self, mesh: Option<Mesh>) {
        let mut changes = self.changes();
        if let Some(mesh) = &mesh {
            self.roles().written = mesh.forwarding.clone();
        }
        let Some(mut mesh) = mesh.or_else(|| self.whole()) else {
            return;
        };
        mesh.forwarding = self.roles().of(&mesh);
        mesh.nodes = nodes(&self.nodes.reached());
        let mesh = Arc::new(mesh);
        *self.newest() = Some(Arc::clone(&mesh));
        // Nodes are served meanwhile: what takes long is done before the catalog is changed.
        let change = changes.of(mesh, &self.catalog);
        let mut catalog = self.catalog();
        let changed = catalog.apply(change);
        let generation = catalog.generation();
        self.generation.send_replace(generation);
        drop(catalog);
        self.streams.follow(generation, changed.as_deref());
    }

    fn whole(&self) -> Option<Mesh> {
        let newest = self.newest().clone()?;
        let mut mesh = Mesh::clone(&newest);
        mesh.nodes = nodes(&self.nodes.reached());
        Some(mesh)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn roles(&self) -> MutexGuard<'_, Roles> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> MutexGuard<'_, Option<Arc<Mesh>>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(names: &[&str]) -> Vec<ServiceAccountName> {
        let accounts = names.iter().map(|name| ServiceAccountName::parse(name));
        accounts.map(|account| account.expect("a name")).collect()
    }

    #[test]
    fn what_is_denied_has_no_part_in_forwarding() {
        let board = Board::new(Nodes::default()).expect("a board");
        let mesh = Mesh {
            forwarding: Shared::from(Forwarding {
                gateways: accounts(&["mesh/one", "mesh/two"]),
                lazy: accounts(&["shop/cart", "shop/web"]),
            }),
            ..Mesh::default()
        };
        let denied = |names: &[&str]| {
            let ids = accounts(names).into_iter();
            ids.map(|account| SpiffeId::workload(TrustDomain::default(), account))
                .collect()
        };
        let published = || {
            let forwarding = board.newest().expect("a mesh").forwarding.clone();
            (forwarding.gateways.clone(), forwarding.lazy.clone())
        };
        board.deny(denied(&["shop/web"]));
        board.put(mesh.clone());
        let both = accounts(&["mesh/one", "mesh/two"]);
        assert_eq!(published(), (both.clone(), accounts(&["shop/cart"])));
        board.deny(denied(&["shop/web", "mesh/two"]));
        let one = (accounts(&["mesh/one"]), accounts(&["shop/cart"]));
        assert_eq!(published(), one);
        board.put(mesh);
        assert_eq!(published(), one);
        board.deny(denied(&[]));
        assert_eq!(published(), (both, accounts(&["shop/cart", "shop/web"])));
    }
}

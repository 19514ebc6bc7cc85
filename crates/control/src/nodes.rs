//! The nodes that are present, the addresses at which they are reached, and the trust generations that they
//! confirmed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_model::NodeName;
use tokio::sync::{Notify, watch};

use crate::subscriptions::Settled;

/// Limit of known nodes.
const MAX_NODES: usize = 10_000;
/// Limit of presences of one node. Beyond it the oldest is displaced: its call ends.
const MAX_PRESENCES: usize = 8;

/// Node names, with the address at which other nodes reach each.
pub type Present = BTreeMap<NodeName, SocketAddr>;

/// The nodes of one control plane. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Nodes {
    shared: Arc<NodesState>,
}

#[derive(Debug)]
struct NodesState {
    known: Mutex<KnownNodes>,
    present: watch::Sender<Arc<Present>>,
    /// `present`, plus nodes that are away, at their last address: a node that lost its connection to the control
    /// plane may still be reachable for other nodes.
    reached: watch::Sender<Arc<Present>>,
}

#[derive(Debug, Default)]
struct KnownNodes {
    nodes: BTreeMap<NodeName, NodeRecord>,
    /// The number of the last presence. The numbers show which presence is the newest, and keep an old one that ends
    /// late from removing a newer one.
    visits: u64,
}

#[derive(Debug, Default, Clone)]
struct NodeRecord {
    /// Address by presence number. The newest counts. Older ones belong to connections that have not ended yet, or to
    /// another machine with the same identity.
    present: BTreeMap<u64, SocketAddr>,
    /// Tells each of these when it is displaced.
    displaced: BTreeMap<u64, Arc<Notify>>,
    /// Generations of the trust bundle and of the deny-list that the node uses.
    bundle: u64,
    denied: u64,
    /// What each of these has of the mesh; that of the newest is shown.
    standings: BTreeMap<u64, Standing>,
}

/// What one presence of a node has of the mesh. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    settled: Arc<Mutex<Option<Settled>>>,
}

impl Standing {
    /// Records it; `None` changes nothing.
    pub(super) fn set(&self, settled: Option<Settled>) {
        if settled.is_some() {
            *self.lock() = settled;
        }
    }

    pub(super) fn get(&self) -> Option<Settled> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Settled>> {
        // It is only ever replaced as a whole, so a poisoned lock is safe to use.
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeRecord {
    /// The address that other nodes get.
    fn newest(&self) -> Option<SocketAddr> {
        let (_, address) = self.present.last_key_value()?;
        Some(*address)
    }
}

/// The trust generations that a node has confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// Generation of its trust bundle; 0 for none.
    pub bundle: u64,
    /// Generation of its deny-list; 0 for none.
    pub denied: u64,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            shared: Arc::new(NodesState {
                known: Mutex::default(),
                present: watch::channel(Arc::default()).0,
                reached: watch::channel(Arc::default()).0,
            }),
        }
    }
}

impl Nodes {
    /// The nodes that have a connection to this control plane.
    pub fn present(&self) -> Arc<Present> {
        Arc::clone(&self.shared.present.borrow())
    }

    /// The nodes that are announced to other nodes: those present, and those away but not [forgotten](Nodes::forget).
    pub fn reached(&self) -> Arc<Present> {
        Arc::clone(&self.shared.reached.borrow())
    }

    /// The nodes in [`Nodes::reached`] that are not present.
    pub fn away(&self) -> Vec<NodeName> {
        let present = self.present();
        let reached = self.reached();
        let away = reached.keys().filter(|name| !present.contains_key(*name));
        away.cloned().collect()
    }

    /// Adds the address that a node had before this control plane started. A known address is not replaced.
    pub fn remember(&self, name: &NodeName, address: SocketAddr) {
        // Every change of `reached` is made under this lock.
        let _known = self.lock();
        if !self.shared.reached.borrow().contains_key(name) {
            publish(&self.shared.reached, name, Some(address));
        }
    }

    /// Stops announcing a node that is away. A node that is present stays.
    pub fn forget(&self, name: &NodeName) {
        let known = self.lock();
        let node = known.nodes.get(name);
        if node.is_none_or(|node| node.present.is_empty()) {
            publish(&self.shared.reached, name, None);
        }
    }

    /// Another present node with the same address, if any.
    pub(super) fn other_at(&self, node: &NodeName, address: SocketAddr) -> Option<NodeName> {
        let present = self.present();
        let mut others = present.iter().filter(|(name, _)| *name != node);
        let other = others.find(|(_, at)| **at == address)?;
        Some(other.0.clone())
    }

    /// Further addresses of a present node, besides the announced one. For a short time this means that the node has
    /// moved; for a long time, that two machines use the identity of one node.
    pub fn also_at(&self, name: &NodeName) -> Vec<SocketAddr> {
        let known = self.lock();
        let Some(node) = known.nodes.get(name) else {
            return Vec::new();
        };
        let told = node.newest();
        let mut others: Vec<_> = node.present.values().copied().collect();
        others.retain(|address| Some(*address) != told);
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Notifies about changes of [`Nodes::present`]. A slow receiver sees only the newest state.
    pub fn watch_present(&self) -> watch::Receiver<Arc<Present>> {
        self.shared.present.subscribe()
    }

    /// Notifies about changes of [`Nodes::reached`]. A slow receiver sees only the newest state.
    pub fn watch_reached(&self) -> watch::Receiver<Arc<Present>> {
        self.shared.reached.subscribe()
    }

    /// The generations that a node has confirmed since this control plane was started. `None` for an unknown node.
    pub fn confirmed(&self, node: &NodeName) -> Option<Confirmed> {
        let known = self.lock();
        known.nodes.get(node).map(|node| Confirmed {
            bundle: node.bundle,
            denied: node.denied,
        })
    }

    /// What a node has of the mesh; `None` for one that is not present, or has not been told everything yet.
    pub fn mesh(&self, node: &NodeName) -> Option<Settled> {
        self.lock()
            .nodes
            .get(node)?
            .standings
            .values()
            .last()?
            .get()
    }

    /// Records the generations that a node has confirmed. False when there is no room for the node.
    pub(super) fn confirm(&self, name: &NodeName, confirmed: Confirmed) -> bool {
        let mut known = self.lock();
        let Some(node) = self.node(&mut known, name) else {
            return false;
        };
        node.bundle = confirmed.bundle;
        node.denied = confirmed.denied;
        true
    }

    /// Marks a node as present at `address` until the returned [`Presence`] is dropped. The newest presence of a node
    /// determines its address. `None` when there are too many nodes.
    pub(super) fn arrive(&self, name: &NodeName, address: SocketAddr) -> Option<Presence> {
        let mut known = self.lock();
        known.visits += 1;
        let visit = known.visits;
        let node = self.node(&mut known, name)?;
        node.present.insert(visit, address);
        let standing = Standing::default();
        node.standings.insert(visit, standing.clone());
        let displaced = Arc::new(Notify::new());
        node.displaced.insert(visit, Arc::clone(&displaced));
        if node.present.len() > MAX_PRESENCES {
            node.present.pop_first();
            node.standings.pop_first();
            if let Some((_, oldest)) = node.displaced.pop_first() {
                oldest.notify_one();
            }
        }
        publish(&self.shared.present, name, Some(address));
        publish(&self.shared.reached, name, Some(address));
        Some(Presence {
            nodes: self.clone(),
            name: name.clone(),
            visit,
            displaced,
            standing,
        })
    }

    /// Returns the entry of a node, or makes one. At the limit, an absent node is removed for it.
    fn node<'known>(
        &self,
        known: &'known mut KnownNodes,
        name: &NodeName,
    ) -> Option<&'known mut NodeRecord> {
        if !known.nodes.contains_key(name) && known.nodes.len() >= MAX_NODES {
            let mut absent = known
                .nodes
                .iter()
                .filter(|(_, node)| node.present.is_empty());
            let absent = absent.next()?.0.clone();
            known.nodes.remove(&absent);
            publish(&self.shared.reached, &absent, None);
        }
        Some(known.nodes.entry(name.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, KnownNodes> {
        // A panic cannot leave this state half changed, so a poisoned lock is safe to use.
        let known = self.shared.known.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes one change. The caller holds the lock, so that changes are published in order.
fn publish(told: &watch::Sender<Arc<Present>>, name: &NodeName, address: Option<SocketAddr>) {
    told.send_if_modified(|present| {
        if present.get(name).copied() == address {
            return false;
        }
        // Clones the map only while a reader still holds the last one.
        let present = Arc::make_mut(present);
        match address {
            Some(address) => present.insert(name.clone(), address),
            None => present.remove(name),
        };
        true
    });
}

/// Keeps a node marked as present until it is dropped.
#[derive(Debug)]
pub(super) struct Presence {
    nodes: Nodes,
    name: NodeName,
    visit: u64,
    displaced: Arc<Notify>,
    standing: Standing,
}

impl Presence {
    /// Where to record what the node has of the mesh. It is shown unless the node has a newer presence.
    pub(super) fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// Completes when too many newer presences of the node have displaced this one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let Self {
            nodes, name, visit, ..
        } = self;
        let mut known = nodes.lock();
        let Some(node) = known.nodes.get_mut(name) else {
            return;
        };
        node.standings.remove(visit);
        node.present.remove(visit);
        node.displaced.remove(visit);
        // Another connection of the node may remain: its address is announced now.
        let address = node.newest();
        publish(&nodes.shared.present, name, address);
        if address.is_some() {
            publish(&nodes.shared.reached, name, address);
        }
    }
}

//! Which nodes there are, where they are reached, and what they have confirmed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_model::NodeName;
use tokio::sync::watch;

/// Nodes that are known at once.
const MAX_NODES: usize = 10_000;
/// Presences of one node that are known at once: the oldest makes room.
const MAX_PRESENCES: usize = 64;

/// The nodes that are present, and where other nodes reach them.
pub type Present = BTreeMap<NodeName, SocketAddr>;

/// The nodes of one control plane. Clones are the same.
#[derive(Debug, Clone)]
pub struct Nodes {
    shared: Arc<NodesState>,
}

#[derive(Debug)]
struct NodesState {
    known: Mutex<KnownNodes>,
    present: watch::Sender<Arc<Present>>,
    /// The same, and those that are away where they were last: that a node has lost us says nothing about
    /// whether others reach it.
    reached: watch::Sender<Arc<Present>>,
}

#[derive(Debug, Default)]
struct KnownNodes {
    nodes: BTreeMap<NodeName, NodeRecord>,
    /// Numbers the presences, so that the newest is known, and an old one that ends late ends no other.
    visits: u64,
}

#[derive(Debug, Default, Clone)]
struct NodeRecord {
    /// Where it is reached, by presence. The newest counts; those before it are connections that have not
    /// ended yet, or of another machine with the same identity.
    present: BTreeMap<u64, SocketAddr>,
    /// Generations of the bundle and of the deny-list that it has in force.
    bundle: u64,
    denied: u64,
}

impl NodeRecord {
    /// Where others are told to reach it.
    fn newest(&self) -> Option<SocketAddr> {
        let (_, address) = self.present.last_key_value()?;
        Some(*address)
    }
}

/// What a node has confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The generation of its bundle of roots; 0 for none.
    pub bundle: u64,
    /// The generation of its deny-list.
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
    /// Those that are present, by name.
    pub fn present(&self) -> Arc<Present> {
        Arc::clone(&self.shared.present.borrow())
    }

    /// Where other nodes reach nodes, present ones and those that are away and not [forgotten](Nodes::forget).
    pub fn reached(&self) -> Arc<Present> {
        Arc::clone(&self.shared.reached.borrow())
    }

    /// Those of [`Nodes::reached`] that are not present.
    pub fn away(&self) -> Vec<NodeName> {
        let present = self.present();
        let reached = self.reached();
        let away = reached.keys().filter(|name| !present.contains_key(*name));
        away.cloned().collect()
    }

    /// Tells where a node was reached before this control plane began; one that is known stays as it is.
    pub fn remember(&self, name: &NodeName, address: SocketAddr) {
        // Who changes something holds the lock.
        let _known = self.lock();
        if !self.shared.reached.borrow().contains_key(name) {
            publish(&self.shared.reached, name, Some(address));
        }
    }

    /// Stops telling other nodes where a node is that is away. One that is present stays.
    pub fn forget(&self, name: &NodeName) {
        let known = self.lock();
        let node = known.nodes.get(name);
        if node.is_none_or(|node| node.present.is_empty()) {
            publish(&self.shared.reached, name, None);
        }
    }

    /// Another node that is present at the same address.
    pub(super) fn other_at(&self, node: &NodeName, address: SocketAddr) -> Option<NodeName> {
        let present = self.present();
        let mut others = present.iter().filter(|(name, _)| *name != node);
        let other = others.find(|(_, at)| **at == address)?;
        Some(other.0.clone())
    }

    /// Where a present node says it is, besides where others are told to reach it. Not for long, that is a
    /// node that has moved; for long, two machines have one node's identity.
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

    /// Tells of each change of [`Nodes::present`]; who is slow sees the newest.
    pub fn watch_present(&self) -> watch::Receiver<Arc<Present>> {
        self.shared.present.subscribe()
    }

    /// Tells of each change of [`Nodes::reached`]; who is slow sees the newest.
    pub fn watch_reached(&self) -> watch::Receiver<Arc<Present>> {
        self.shared.reached.subscribe()
    }

    /// What a node has confirmed since this control plane runs, if anything.
    pub fn confirmed(&self, node: &NodeName) -> Option<Confirmed> {
        let known = self.lock();
        known.nodes.get(node).map(|node| Confirmed {
            bundle: node.bundle,
            denied: node.denied,
        })
    }

    /// Takes down what a node has in force; says whether there was room for the node.
    pub(super) fn confirm(&self, name: &NodeName, confirmed: Confirmed) -> bool {
        let mut known = self.lock();
        let Some(node) = self.node(&mut known, name) else {
            return false;
        };
        node.bundle = confirmed.bundle;
        node.denied = confirmed.denied;
        true
    }

    /// Counts a node as present, at an address, for as long as what is returned lives. While there is a
    /// later presence, that one says where it is. `None` when there are too many nodes.
    pub(super) fn arrive(&self, name: &NodeName, address: SocketAddr) -> Option<Presence> {
        let mut known = self.lock();
        known.visits += 1;
        let visit = known.visits;
        let node = self.node(&mut known, name)?;
        node.present.insert(visit, address);
        if node.present.len() > MAX_PRESENCES {
            node.present.pop_first();
        }
        publish(&self.shared.present, name, Some(address));
        publish(&self.shared.reached, name, Some(address));
        Some(Presence {
            nodes: self.clone(),
            name: name.clone(),
            visit,
        })
    }

    /// The entry of a node, made if there is room for it. One that is absent makes room.
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
        // Nothing in here is left half done by a panic.
        let known = self.shared.known.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells of one change. Called with the lock in hand, so that changes are told in their order.
fn publish(told: &watch::Sender<Arc<Present>>, name: &NodeName, address: Option<SocketAddr>) {
    told.send_if_modified(|present| {
        if present.get(name).copied() == address {
            return false;
        }
        // Copied only while a reader looks at the last one.
        let present = Arc::make_mut(present);
        match address {
            Some(address) => present.insert(name.clone(), address),
            None => present.remove(name),
        };
        true
    });
}

/// A node is present while this lives.
#[derive(Debug)]
pub(super) struct Presence {
    nodes: Nodes,
    name: NodeName,
    visit: u64,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let Self { nodes, name, visit } = self;
        let mut known = nodes.lock();
        let Some(node) = known.nodes.get_mut(name) else {
            return;
        };
        node.present.remove(visit);
        // Another connection of the node may still be there, and is how it is reached now.
        let address = node.newest();
        publish(&nodes.shared.present, name, address);
        if address.is_some() {
            publish(&nodes.shared.reached, name, address);
        }
    }
}

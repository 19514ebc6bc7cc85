//! All simulated nodes, on one thread: each has a connection, a certificate and subscriptions of its own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::common::{Common, ControlPlane, Health, Node};
use super::has::Has;
use super::istio::ztunnel;
use super::ledger::Told;
use super::machine::SharedNames;
use super::node;
use super::shape::{Shape, node_name};

/// Nodes that connect at one time: the control plane makes 256 handshakes at most.
const CONNECT_AT_ONCE: usize = 32;
/// How often it is looked whether all nodes are complete, and how often that is said.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const SAY_EVERY: Duration = Duration::from_secs(5);
/// After so long without a message nodes do not get what they lack.
const SILENT: Duration = Duration::from_secs(90);
/// How long there is no message when everything has been said, and how long that may take.
const QUIET: Duration = Duration::from_millis(1_500);
const QUIET_WITHIN: Duration = Duration::from_secs(60);

/// The nodes of a mesh. Dropping it ends their connections.
pub(super) struct Fleet(pub(super) Rc<Common>);

impl Fleet {
    /// Nodes that connect to the control plane at `control`. `victims` may become dead.
    pub(super) fn new(
        shape: &Arc<Shape>,
        (control, system): (SocketAddr, ControlPlane),
        told: Told,
        victims: &[usize],
    ) -> Fleet {
        let node = |node| Node {
            uses: match told {
                Told::Users => shape.used(node),
                Told::All => (0..shape.services).collect(),
            },
            has: RefCell::default(),
            health: Cell::new(Health::Healthy),
            is_dead: RefCell::default(),
            may_die: victims.contains(&node),
            ended: RefCell::default(),
            task: RefCell::default(),
        };
        Fleet(Rc::new(Common {
            nodes: (0..shape.nodes).map(node).collect(),
            shape: Arc::clone(shape),
            control,
            system,
            told,
            names: SharedNames::default(),
            traffic: Cell::default(),
            ledger: RefCell::default(),
            connecting: Arc::new(Semaphore::new(CONNECT_AT_ONCE)),
        }))
    }

    /// Connects all nodes, and waits until each has everything that it uses, and no more is said.
    ///
    /// # Errors
    /// When a call ends, or a node does not have everything `within` this time.
    pub(super) async fn connect(&self, within: Duration) -> anyhow::Result<()> {
        for node in 0..self.0.nodes.len() {
            self.start(node);
        }
        self.complete(within).await
    }

    /// Connects these nodes anew, as nodes that have nothing yet.
    ///
    /// # Errors
    /// As [`Fleet::connect`].
    pub(super) async fn replace(&self, nodes: &[usize], within: Duration) -> anyhow::Result<()> {
        for node in nodes {
            let one = &self.0.nodes[*node];
            if let Some(task) = one.task.take() {
                task.abort();
            }
            one.has.replace(Has::default());
            one.health.set(Health::Healthy);
            one.is_dead.take();
            self.start(*node);
        }
        self.complete(within).await
    }

    /// Changes what a node does.
    pub(super) fn set_health(&self, node: usize, health: Health) {
        let node = &self.0.nodes[node];
        node.health.set(health);
        let is_dead = node.is_dead.borrow();
        is_dead.store(health == Health::Dead, Ordering::Relaxed);
    }

    fn start(&self, number: usize) {
        let common = Rc::clone(&self.0);
        self.0.nodes[number].ended.take();
        let task = tokio::task::spawn_local(async move {
            let Ok(place) = Arc::clone(&common.connecting).acquire_owned().await else {
                return;
            };
            let followed = match &common.system {
                ControlPlane::Heddle(authority) => {
                    node::follow(&common, authority, number, place).await
                }
                ControlPlane::Istio => ztunnel::follow(&common, number, place).await,
            };
            let why = match followed {
                Ok(never) => match never {},
                Err(why) => format!("{why:#}"),
            };
            common.nodes[number].ended.replace(Some(why));
        });
        self.0.nodes[number].task.replace(Some(task));
    }

    async fn complete(&self, within: Duration) -> anyhow::Result<()> {
        let (began, all) = (Instant::now(), self.0.nodes.len());
        let mut said = began;
        let (mut before, mut since) = (self.0.traffic.get(), began);
        loop {
            self.check()?;
            let now = self.0.traffic.get();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            let gone = self.gone();
            let mut open = (0..all).filter(|node| !self.is_complete(*node, &gone));
            let Some(first) = open.next() else { break };
            let count = 1 + open.count();
            let have = || self.0.nodes[first].has.borrow().described();
            anyhow::ensure!(
                began.elapsed() < within && since.elapsed() < SILENT,
                "after {} s, the last {} without a message, {count} of {all} nodes do not have exactly what they use; {}: {}",
                began.elapsed().as_secs(),
                since.elapsed().as_secs(),
                node_name(first),
                have()
            );
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                let seconds = began.elapsed().as_secs();
                eprintln!(
                    "  {seconds} s: {} of {all} nodes have everything",
                    all - count
                );
            }
            sleep(LOOK_EVERY).await;
        }
        self.quiet().await
    }

    /// Waits until nothing has been said for a while.
    ///
    /// # Errors
    /// When that takes too long.
    pub(super) async fn quiet(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let (mut before, mut since) = (self.0.traffic.get(), began);
        while since.elapsed() < QUIET {
            anyhow::ensure!(
                began.elapsed() < QUIET_WITHIN,
                "the control plane goes on sending although nothing changes"
            );
            sleep(LOOK_EVERY).await;
            let now = self.0.traffic.get();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Checks that the calls of all healthy nodes go on.
    ///
    /// # Errors
    /// The first one that has ended, and how many have.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let healthy = self.0.nodes.iter().enumerate();
        let healthy = healthy.filter(|(_, node)| node.health.get() == Health::Healthy);
        let mut ended = healthy.filter_map(|(number, node)| {
            let why = node.ended.borrow();
            why.clone().map(|why| (number, why))
        });
        let Some((node, why)) = ended.next() else {
            return Ok(());
        };
        let others = ended.count();
        Err(anyhow::anyhow!(why)).with_context(|| {
            format!(
                "{} and {others} others: the call has ended",
                node_name(node)
            )
        })
    }

    /// Whether a node has everything that it uses, and nothing else.
    fn is_complete(&self, node: usize, gone: &BTreeSet<usize>) -> bool {
        let one = &self.0.nodes[node];
        one.has.borrow().is_complete(&self.0.shape, &one.uses, gone)
    }

    /// The nodes whose calls the control plane ends: a slow one is none of them.
    fn gone(&self) -> BTreeSet<usize> {
        let all = self.0.nodes.iter().enumerate();
        let gone = all.filter(|(_, node)| node.health.get() == Health::Dead);
        gone.map(|(number, _)| number).collect()
    }

    /// How many healthy nodes have something else than what they use.
    pub(super) fn wrong(&self) -> usize {
        let gone = self.gone();
        let is_healthy = |node: &usize| self.0.nodes[*node].health.get() == Health::Healthy;
        let healthy = (0..self.0.nodes.len()).filter(is_healthy);
        healthy
            .filter(|node| !self.is_complete(*node, &gone))
            .count()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for node in &self.0.nodes {
            if let Some(task) = node.task.take() {
                task.abort();
            }
        }
    }
}

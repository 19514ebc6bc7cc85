//! What simulated nodes are, what they share, and the processes that they belong to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::has::Has;
use super::ledger::{Ledger, Told};
use super::machine::SharedNames;
use super::registry::Write;
use super::shape::Shape;
use crate::authority::Authority;
use crate::child::Child;

/// What one node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    /// Does not read its connection any more.
    Dead,
    /// Answers each message late.
    Slow,
}

/// Messages from the control plane to all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) marks: u64,
    /// Bytes about Services that their node uses, as protobuf.
    pub(super) owed_bytes: u64,
    /// Messages about nothing that their node uses, and their bytes.
    pub(super) stray_messages: u64,
    pub(super) stray_bytes: u64,
}

impl Sub for Traffic {
    type Output = Traffic;
    fn sub(self, before: Traffic) -> Traffic {
        Traffic {
            messages: self.messages - before.messages,
            marks: self.marks - before.marks,
            owed_bytes: self.owed_bytes - before.owed_bytes,
            stray_messages: self.stray_messages - before.stray_messages,
            stray_bytes: self.stray_bytes - before.stray_bytes,
        }
    }
}

/// Whose control plane the nodes connect to.
pub(super) enum ControlPlane {
    /// Heddle's, which has its root from this authority.
    Heddle(Box<Authority>),
    /// Istio's. The nodes are what its ztunnels are, without TLS.
    Istio,
}

/// The processes of a mesh without its nodes.
pub(super) struct Processes {
    pub(super) control: Child,
    pub(super) control_at: SocketAddr,
    pub(super) system: ControlPlane,
    pub(super) store: Vec<Child>,
    pub(super) etcd_at: SocketAddr,
    pub(super) write: Write,
    pub(super) dir: TempDir,
}

/// What all nodes share.
pub(super) struct Common {
    pub(super) shape: Arc<Shape>,
    pub(super) control: SocketAddr,
    pub(super) system: ControlPlane,
    pub(super) told: Told,
    pub(super) names: SharedNames,
    pub(super) traffic: Cell<Traffic>,
    /// That of the run, if there is one.
    pub(super) ledger: RefCell<Option<Ledger>>,
    pub(super) nodes: Vec<Node>,
    pub(super) connecting: Arc<Semaphore>,
}

pub(super) struct Node {
    pub(super) uses: BTreeSet<usize>,
    pub(super) has: RefCell<Has>,
    pub(super) health: Cell<Health>,
    pub(super) is_dead: RefCell<Arc<AtomicBool>>,
    /// Whether it may become dead.
    pub(super) may_die: bool,
    /// Why its call has ended.
    pub(super) ended: RefCell<Option<String>>,
    pub(super) task: RefCell<Option<JoinHandle<()>>>,
}

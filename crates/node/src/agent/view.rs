//! What other tasks can read of a node's agent while it runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use heddle_model::{NodeName, SpiffeId};
use heddle_transport::Clock;

use super::core::Core;
use super::moment::Moment;
use crate::status::{ClockStatus, ControlConnectionStatus, IdentityStatus};

/// Current state of the agent, also before it has joined.
pub(crate) struct View {
    name: NodeName,
    control: String,
    mesh_address: Mutex<SocketAddr>,
    clock: Arc<Clock>,
    started: Instant,
    stage: Mutex<Stage>,
}

enum Stage {
    /// Not joined yet, and why the last attempt failed.
    Joining(Option<String>),
    Joined(Arc<Mutex<Core>>),
}

impl View {
    /// A node that has not joined.
    pub(crate) fn new(
        name: NodeName,
        control: String,
        mesh_address: SocketAddr,
        clock: Arc<Clock>,
    ) -> View {
        View {
            name,
            control,
            mesh_address: Mutex::new(mesh_address),
            clock,
            started: Instant::now(),
            stage: Mutex::new(Stage::Joining(None)),
        }
    }

    /// The current moment. `unix_s` is the time by the clock for certificates.
    pub(super) fn now(&self, unix_s: u64) -> Moment {
        Moment {
            unix_s,
            elapsed: self.started.elapsed(),
        }
    }

    pub(super) fn not_joined(&self, why: String) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::Joining(Some(why));
    }

    /// Sets the address at which other nodes are told to reach this one.
    pub(super) fn reached_at(&self, address: SocketAddr) {
        *self
            .mesh_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = address;
    }

    pub(super) fn joined(&self, core: Arc<Mutex<Core>>) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::Joined(core);
    }

    pub(crate) fn status(&self) -> IdentityStatus {
        let now = self.now(self.clock.now());
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let status = match &*stage {
            Stage::Joining(why) => self.joining(why.clone(), now),
            Stage::Joined(core) => {
                let core = core.lock().unwrap_or_else(PoisonError::into_inner);
                core.status(now)
            }
        };
        let mesh_address = self
            .mesh_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        IdentityStatus {
            mesh_address: Some(*mesh_address),
            ..status
        }
    }

    /// The identities that are on the deny-list.
    pub(crate) fn denied(&self) -> Vec<SpiffeId> {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::Joining(_) => Vec::new(),
            Stage::Joined(core) => {
                let core = core.lock().unwrap_or_else(PoisonError::into_inner);
                core.trusted().denied_ids(self.clock.now())
            }
        }
    }

    fn joining(&self, why: Option<String>, now: Moment) -> IdentityStatus {
        let problem = match &why {
            Some(why) => format!("the node has not joined yet: {why}"),
            None => "the node has not joined yet".to_owned(),
        };
        IdentityStatus {
            node: self.name.to_string(),
            control: ControlConnectionStatus {
                address: self.control.clone(),
                connected: false,
                for_s: now.elapsed.as_secs(),
                problem: why,
            },
            clock: ClockStatus {
                now: now.unix_s,
                floor: self.clock.floor(),
                degraded: self.clock.is_degraded(),
            },
            problems: vec![problem],
            ..IdentityStatus::default()
        }
    }
}

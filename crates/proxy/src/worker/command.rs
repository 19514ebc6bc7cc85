//! What a Worker can be told.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use heddle_intercept::Sockets;
use heddle_transport::Identities;

use crate::door::Door;
use crate::intake::Intake;
use crate::mailbox::MailboxItem;
use crate::place::Pods;
use crate::route::Snapshot;

/// What a Worker can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve new requests by this configuration.
    Apply(Arc<Snapshot>),
    /// Call, and be called, as these from now on.
    Identify(Arc<Identities>),
    /// Reach these workloads from within their pods.
    Pods(Arc<Pods>),
    /// Ask this holder for sockets there.
    Sockets(Sockets),
    /// Accept connections from this socket.
    Listen {
        id: u64,
        socket: Arc<TcpListener>,
        door: Arc<Door>,
    },
    /// Stop accepting; connections that were accepted go on.
    Unlisten { id: u64 },
    /// Hand over connections that do at most this share of the work; all of them when it is 1.
    Give { to: Intake, share: f64 },
    /// Hand over every connection as soon as it can move, and end when there is none.
    Retire { to: Vec<Intake> },
    /// Do not end after all.
    Remain,
    /// One of this many Workers: what is bounded for the process is shared among them.
    Share { workers: usize },
    /// Accept nothing more, let each connection finish its request, and end by this time.
    Drain { until: Instant },
    /// Panic, as a fault of ours would make the Worker.
    #[cfg(test)]
    Fault,
}

impl MailboxItem for Command {
    /// Of configurations and of identities only the newest count, and of orders to retire the last.
    fn replaces(&self, before: &Self) -> bool {
        matches!(
            (self, before),
            (Command::Apply(_), Command::Apply(_))
                | (Command::Identify(_), Command::Identify(_))
                | (Command::Pods(_), Command::Pods(_))
                | (Command::Retire { .. }, Command::Retire { .. })
        )
    }
}

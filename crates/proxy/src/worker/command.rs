//! Orders to a Worker.

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
use crate::settings::LimitShare;

/// An order to a Worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Use this configuration for new requests.
    Apply(Arc<Snapshot>),
    /// Use these identities, towards other nodes and for calls from them.
    Identify(Arc<Identities>),
    /// Dial these workloads from inside their pods.
    Pods(Arc<Pods>),
    /// Ask this holder for sockets inside pods.
    Sockets(Sockets),
    /// Accept connections from this socket.
    Listen {
        id: u64,
        socket: Arc<TcpListener>,
        door: Arc<Door>,
    },
    /// Stop accepting. Connections that were accepted continue.
    Unlisten { id: u64 },
    /// Hand over connections that do at most this share of the work; with 1, all of them.
    Give { to: Intake, share: f64 },
    /// Hand over the connections of callers that are not of this Worker's class, to each of `to` in turn.
    Sort { to: Vec<Intake> },
    /// Hand over every connection as soon as it can move, and end once there is none.
    Retire { to: Vec<Intake> },
    /// Cancel `Retire`.
    Remain,
    /// The number of Workers has changed: use this share of the process's limits.
    Share { workers: usize, limits: LimitShare },
    /// Accept nothing more, let each connection finish its request, and end by this time.
    Drain { until: Instant },
    /// Panic, as a bug would make the Worker.
    #[cfg(test)]
    Fault,
}

impl MailboxItem for Command {
    /// Of several configurations, identities, pod tables or orders to retire, only the newest matters.
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

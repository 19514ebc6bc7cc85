//! Listeners: sockets with a meaning. The socket that accepted a connection determines what the connection may be,
//! never the connection's source address.

mod socket;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use heddle_telemetry::{Counter, Seldom};
use rustix::net::sockopt::set_socket_linger;

use crate::clock::Millis;
use crate::door::Door;
use crate::permits::PermitRefusal;

pub(crate) use socket::{BATCH, Socket};

/// How long to wait when the kernel has no descriptor or memory for another connection, in milliseconds.
pub(crate) const BACK_OFF_MS: Millis = 100;

/// Counts and logs clients that are refused.
pub(crate) struct Refusing<'a> {
    pub(crate) refused: &'a Counter,
    pub(crate) over_share: &'a Counter,
    /// Limits how often it is logged that the connection limit is reached.
    pub(crate) full: &'a mut Seldom<()>,
    /// The connection limit.
    pub(crate) most: usize,
    pub(crate) now: Instant,
}

impl Refusing<'_> {
    /// Refuses a client for which there is no permit. A client whose source has used up its share is reset, so that it
    /// knows at once and no state of it stays here.
    pub(crate) fn turn_away(
        self,
        door: &Door,
        (client, peer): (&TcpStream, SocketAddr),
        spent: PermitRefusal,
    ) {
        self.refused.inc();
        match spent {
            PermitRefusal::Share | PermitRefusal::Address => {
                self.over_share.inc();
                // If this fails, the connection is closed without a reset.
                let _closed = set_socket_linger(client, Some(Duration::ZERO));
                door.say_spent(peer, spent, self.now);
            }
            PermitRefusal::All if self.full.may_name((), self.now) => tracing::warn!(
                most = self.most,
                "clients are turned away: the connection limit is reached; raise proxy.bounds.connections, or the \
                 limit of open files (ulimit -n) if that is what lowers it"
            ),
            PermitRefusal::All => {}
        }
    }
}

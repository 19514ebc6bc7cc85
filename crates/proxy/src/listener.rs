//! Listeners: sockets with a meaning. What a connection may be is decided by the socket that it
//! came in on, never by an address it came from.

mod socket;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use heddle_telemetry::{Counter, Seldom};
use rustix::net::sockopt::set_socket_linger;

use crate::clock::Millis;
use crate::door::Door;
use crate::permits::PermitRefusal;

pub(crate) use socket::{BATCH, Socket};

/// How long to wait when the kernel has no descriptor or memory for another connection, in
/// milliseconds.
pub(crate) const BACK_OFF_MS: Millis = 100;

/// What is counted and said of clients that are turned away.
pub(crate) struct Refusing<'a> {
    pub(crate) refused: &'a Counter,
    pub(crate) over_share: &'a Counter,
    /// Whether it was said that there are as many clients as may be.
    pub(crate) full: &'a mut Seldom<()>,
    /// How many that is.
    pub(crate) most: usize,
    pub(crate) now: Instant,
}

impl Refusing<'_> {
    /// Turns a client away for which there is no permit: one that has its share by a reset, so that it knows at
    /// once and nothing of it stays here.
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
                // What cannot be reset is closed.
                let _closed = set_socket_linger(client, Some(Duration::ZERO));
                door.say_spent(peer, spent, self.now);
            }
            PermitRefusal::All if self.full.may_name((), self.now) => tracing::warn!(
                most = self.most,
                "clients are turned away: there are as many connections as may be; raise \
                 proxy.bounds.connections, or the limit of open files (ulimit -n) if that is what bounds \
                 them"
            ),
            PermitRefusal::All => {}
        }
    }
}

//! Information about a side: its connection, its peer, and whether it can still be used.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use heddle_model::{ServiceAccountName, SpiffeId, StockDestination};
use heddle_transport::Protocol;
use tokio::net::TcpStream;

use super::{Carrier, Proof, Secured, SideOf, Wire};

impl<C: Carrier> SideOf<C> {
    /// Whether its source address is that of one client.
    pub(crate) fn is_one_clients(&self) -> bool {
        self.one_clients
    }

    /// Its socket, unless it shares one with other sides.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        self.carrier.wire().map(Wire::socket)
    }

    /// Its socket, if the side is a plain socket.
    pub(crate) fn into_socket(self) -> Option<TcpStream> {
        match self.carrier.into_wire() {
            Some(Wire::Socket(socket)) => Some(socket),
            _ => None,
        }
    }

    fn session(&self) -> Option<&Secured> {
        self.carrier.wire()?.session()
    }

    /// Whether the peer is another node, by its certificate: a session or the protocol alone does not prove that.
    pub(crate) fn is_to_node(&self) -> bool {
        self.carrier.is_to_node()
    }

    /// The identity that the peer has proven, and its expiry. `None` for a stream of a link, which checks its own
    /// proof.
    pub(crate) fn proof(&self) -> Option<&Arc<Proof>> {
        self.carrier.proof()
    }

    /// The calling workload's account, with whose identity the connection to another node was made.
    pub(crate) fn caller(&self) -> Option<&ServiceAccountName> {
        self.session()?.caller()
    }

    /// The identity that the peer has called.
    pub(crate) fn called(&self) -> Option<&SpiffeId> {
        self.session()?.called()
    }

    /// What the peer, a stock proxy, has called.
    pub(crate) fn asked(&self) -> Option<&StockDestination> {
        self.session()?.asked()
    }

    /// The protocol that is used with another node or a stock proxy.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.session()?.protocol()
    }

    /// Whether one of its certificates expires so soon that no new request should begin on it.
    pub(crate) fn is_ending(&self, now: Instant) -> bool {
        let secured = self.session();
        secured.is_some_and(|secured| secured.is_ending(now))
    }

    /// Whether the connection is known to have failed, for example by a reset, without a read or write. Asks the
    /// runtime, not the kernel.
    pub(crate) fn has_failed(&self) -> bool {
        self.carrier.has_failed()
    }

    /// Whether bytes can be read from it, and not just the end of the stream. Asks the kernel; only for plain sockets.
    pub(crate) fn has_spoken(&self) -> bool {
        self.peek(&mut [0]) > 0
    }

    /// Whether nothing can be read from it: neither the end of the stream nor bytes that no request asked for. Asks the
    /// runtime, and the kernel only for the session's own messages.
    pub(crate) fn is_silent(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        self.inbox.is_empty() && self.carrier.is_silent(cx)
    }
}

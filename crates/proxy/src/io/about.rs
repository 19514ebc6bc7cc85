//! What a side is, who is at its other end, and whether it is still good.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_transport::Protocol;
use tokio::net::TcpStream;

use super::{Carrier, Proof, Secured, SideOf, Wire};

impl<C: Carrier> SideOf<C> {
    /// Whether it speaks with one client's address.
    pub(crate) fn is_one_clients(&self) -> bool {
        self.one_clients
    }

    /// Its socket, if it has one to itself.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        self.carrier.wire().map(Wire::socket)
    }

    /// The same, of a side that is nothing but its socket.
    pub(crate) fn into_socket(self) -> Option<TcpStream> {
        match self.carrier.into_wire() {
            Some(Wire::Socket(socket)) => Some(socket),
            _ => None,
        }
    }

    fn session(&self) -> Option<&Secured> {
        self.carrier.wire()?.session()
    }

    /// Whether another node is at the other end, which its certificate proves: a session alone does not, nor does what is
    /// spoken on it.
    pub(crate) fn is_to_node(&self) -> bool {
        self.carrier.is_to_node()
    }

    /// The identity that the other end proved, and until when. What a link rests on is the link's to look after.
    pub(crate) fn proof(&self) -> Option<&Arc<Proof>> {
        self.carrier.proof()
    }

    /// In whose name the connection was made to another node.
    pub(crate) fn caller(&self) -> Option<&ServiceAccountName> {
        self.session()?.caller()
    }

    /// The identity that the other end asked for.
    pub(crate) fn called(&self) -> Option<&SpiffeId> {
        self.session()?.called()
    }

    /// What is spoken with another node.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.session()?.protocol()
    }

    /// Whether a certificate that it rests on expires so soon that nothing new should be begun on it.
    pub(crate) fn is_ending(&self, now: Instant) -> bool {
        let secured = self.session();
        secured.is_some_and(|secured| secured.is_ending(now))
    }

    /// Whether the connection is known to have broken, by a reset for instance, though it was neither
    /// read nor written since. Asks the runtime, not the kernel.
    pub(crate) fn has_failed(&self) -> bool {
        self.carrier.has_failed()
    }

    /// Whether there are bytes to read from it, and not just an end. Asks the kernel; only for sockets.
    pub(crate) fn has_spoken(&self) -> bool {
        self.peek(&mut [0]) > 0
    }

    /// Whether there is nothing to read from it: neither the end of the stream nor bytes that no request
    /// asked for. Asks the runtime, and the kernel only for what a session says of its own.
    pub(crate) fn is_silent(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        self.inbox.is_empty() && self.carrier.is_silent(cx)
    }
}

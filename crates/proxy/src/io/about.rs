//! What a side is, who is at its other end, and whether it is still good.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_transport::Protocol;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::{Carrier, Proof, Secured, Side};
use crate::failure::Reason;

impl Side {
    /// Whether it speaks with one client's address.
    pub(crate) fn is_one_clients(&self) -> bool {
        self.one_clients
    }

    /// Its socket, if it has one to itself.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match &self.carrier {
            Carrier::Socket(socket) | Carrier::Session(socket, _) => Some(socket),
            Carrier::Stream(_) | Carrier::Exchange(_) => None,
        }
    }

    /// The same, of a side that is nothing but its socket.
    pub(crate) fn into_socket(self) -> Option<TcpStream> {
        match self.carrier {
            Carrier::Socket(socket) => Some(socket),
            Carrier::Session(..) | Carrier::Stream(_) | Carrier::Exchange(_) => None,
        }
    }

    pub(super) fn session(&self) -> Option<&Secured> {
        match &self.carrier {
            Carrier::Session(_, secured) => Some(secured),
            Carrier::Socket(_) | Carrier::Stream(_) | Carrier::Exchange(_) => None,
        }
    }

    /// Whether it is a stream that waits until there is room for it on its link.
    pub(crate) fn waits_for_link(&self) -> bool {
        match &self.carrier {
            Carrier::Stream(stream) => stream.is_to_be_opened(),
            Carrier::Socket(_) | Carrier::Session(..) | Carrier::Exchange(_) => false,
        }
    }

    /// Waits until the other end of its link is heard, if it is a stream that is not open yet.
    ///
    /// # Errors
    /// Why there is no link.
    pub(crate) fn poll_linked(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match &self.carrier {
            Carrier::Stream(stream) => stream.poll_linked(cx),
            Carrier::Socket(_) | Carrier::Session(..) | Carrier::Exchange(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether it can go to another Worker: a stream stays where its link is.
    pub(crate) fn may_move(&self) -> bool {
        !matches!(self.carrier, Carrier::Stream(_) | Carrier::Exchange(_))
    }

    /// Whether another node is at the other end.
    pub(crate) fn is_to_node(&self) -> bool {
        !matches!(self.carrier, Carrier::Socket(_))
    }

    /// Who proved to be at the other end, and until when. What a link rests on is the link's to look after.
    pub(crate) fn proof(&self) -> Option<&Arc<Proof>> {
        match &self.carrier {
            Carrier::Exchange(exchange) => exchange.proof(),
            _ => self.session().map(Secured::proof),
        }
    }

    /// In whose name the connection was made to another node.
    pub(crate) fn caller(&self) -> Option<&ServiceAccountName> {
        self.session()?.caller()
    }

    /// Whom the other end asked for.
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

    /// Whether the connection is known to have broken, by a reset for instance, though nobody has tried to
    /// read or write since. Asks the runtime, not the kernel.
    pub(crate) fn has_failed(&self) -> bool {
        match &self.carrier {
            Carrier::Socket(socket) | Carrier::Session(socket, _) => {
                socket.try_io(Interest::ERROR, || Ok(())).is_ok()
            }
            Carrier::Stream(stream) => stream.has_failed(),
            Carrier::Exchange(exchange) => exchange.has_failed(),
        }
    }

    /// Whether it is a stream for which a request has come that was not looked at yet.
    pub(crate) fn is_called(&self) -> bool {
        match &self.carrier {
            Carrier::Stream(stream) => stream.is_called(),
            Carrier::Socket(_) | Carrier::Session(..) | Carrier::Exchange(_) => false,
        }
    }

    /// Why a stream broke, if its link or the other node says more than that it did.
    pub(crate) fn why_broken(&self) -> Option<Reason> {
        match &self.carrier {
            Carrier::Stream(stream) => stream.why_broken(),
            Carrier::Socket(_) | Carrier::Session(..) | Carrier::Exchange(_) => None,
        }
    }

    /// Whether there are bytes to read from it, and not just an end. Asks the kernel; only for sockets.
    pub(crate) fn has_spoken(&self) -> bool {
        self.peek(&mut [0]) > 0
    }

    /// Whether there is nothing to read from it: neither the end of the stream nor bytes that nobody asked
    /// for. Asks the runtime, and the kernel only for what a session says of its own.
    pub(crate) fn is_silent(&mut self) -> bool {
        if !self.inbox.is_empty() {
            return false;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        match &mut self.carrier {
            Carrier::Socket(socket) => socket.poll_read_ready(cx).is_pending(),
            Carrier::Session(socket, secured) => secured.poll_discard(socket, cx).is_pending(),
            Carrier::Stream(stream) => stream.is_silent(),
            Carrier::Exchange(exchange) => !exchange.has_failed(),
        }
    }
}

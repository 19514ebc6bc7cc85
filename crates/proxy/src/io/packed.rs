//! A side without a runtime.

use std::io;
use std::net;

use heddle_model::Class;
use tokio::net::TcpStream;

use super::{Carrier, Secured, SideOf, Wire, WireSide, follow_effort, set_effort};

/// A side that is registered with no runtime, on its way to another Worker. Its inbox and outbox are empty, or move
/// separately.
#[derive(Debug)]
pub(crate) struct Packed {
    socket: net::TcpStream,
    secured: Option<Box<Secured>>,
    one_clients: bool,
}

impl<C: Carrier> SideOf<C> {
    /// Deregisters the side from its runtime.
    ///
    /// # Errors
    /// When the socket cannot be deregistered, which happens only if the runtime has ended; or when the side has no
    /// socket of its own, being a stream of a link.
    pub(crate) fn pack(self) -> io::Result<Packed> {
        let (socket, secured) = match self.carrier.into_wire() {
            Some(Wire::Socket(socket)) => (socket, None),
            Some(Wire::Session(socket, secured)) => (socket, Some(secured)),
            None => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Packed {
            socket: socket.into_std()?,
            secured,
            one_clients: self.one_clients,
        })
    }
}

impl Packed {
    /// A side with a plain socket.
    pub(crate) fn plain(socket: net::TcpStream) -> Self {
        Packed {
            socket,
            secured: None,
            one_clients: false,
        }
    }

    pub(crate) fn socket(&self) -> &net::TcpStream {
        &self.socket
    }

    /// Registers the side with the runtime of the calling thread, which works for callers of this class.
    ///
    /// # Errors
    /// When the socket cannot be registered.
    pub(crate) fn unpack_as(self, class: Class) -> io::Result<WireSide> {
        follow_effort(&self.socket, class);
        self.unpack()
    }

    /// As [`Packed::unpack_as`], for a connection that was just accepted.
    ///
    /// # Errors
    /// When the socket cannot be registered.
    pub(crate) fn unpack_new(self, class: Class) -> io::Result<WireSide> {
        set_effort(&self.socket, class);
        self.unpack()
    }

    fn unpack(self) -> io::Result<WireSide> {
        let socket = TcpStream::from_std(self.socket)?;
        let side = match self.secured {
            Some(secured) => WireSide::secured(socket, secured),
            None => WireSide::of(Wire::Socket(socket)),
        };
        Ok(WireSide {
            one_clients: self.one_clients,
            ..side
        })
    }
}

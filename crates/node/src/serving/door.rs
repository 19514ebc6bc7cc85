//! The listener for other nodes.

use std::net::TcpListener;

use heddle_proxy::{Entry, Proxy};

/// Number of the listener for other nodes; all others count from 1.
const LISTENER: u64 = 0;

/// The listener for other nodes, bound from the start but served later. Early callers wait in the backlog: without
/// identities, a mesh and the existing pods, this node would answer that it does not have the destination.
pub(super) struct MeshDoor {
    /// Taken when it is served; `None` from the start where there are no other nodes.
    socket: Option<TcpListener>,
    pub(super) is_identified: bool,
}

impl MeshDoor {
    pub(super) fn new(socket: Option<TcpListener>) -> Self {
        MeshDoor {
            socket,
            is_identified: false,
        }
    }

    /// Serves the listener if there are identities. The caller makes sure that the mesh and the pods are known.
    pub(super) fn open(&mut self, proxy: &Proxy) {
        let Some(socket) = self.socket.take_if(|_| self.is_identified) else {
            return;
        };
        if let Ok(address) = socket.local_addr() {
            tracing::info!(%address, "listening for other nodes");
        }
        proxy.listen(LISTENER, socket, Entry::Mesh);
    }
}

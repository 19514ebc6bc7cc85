//! Where other nodes come in.

use std::net::TcpListener;

use heddle_proxy::{Entry, Proxy};

/// The number of the listener for other nodes; the others count from 1.
const LISTENER: u64 = 0;

/// The listener for other nodes, bound from the start. Who comes before it is served waits in the kernel: until there
/// are identities, a mesh and the pods that there were, it would be told that what it calls is not here.
pub(super) struct MeshDoor {
    /// Until it is served; `None` from the start where there are no other nodes.
    socket: Option<TcpListener>,
    /// Whether there are identities.
    pub(super) is_identified: bool,
}

impl MeshDoor {
    pub(super) fn new(socket: Option<TcpListener>) -> Self {
        MeshDoor {
            socket,
            is_identified: false,
        }
    }

    /// Serves it from now on if there are identities, once the rest is known.
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

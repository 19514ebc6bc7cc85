//! Listening sockets of the programs that experiments load.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context;
use rustix::net;

/// Connections that may wait to be accepted, as with Heddle and Envoy.
const BACKLOG: i32 = 4096;

/// Listens at an address without blocking.
///
/// The standard library's backlog of 128 overflows when a proxy opens hundreds of connections at once. A client whose
/// SYN is dropped sends the next after a second, and an experiment would take that for the proxy's latency.
///
/// # Errors
/// When the address is in use, or the kernel refuses.
pub(super) fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let opened = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        // Calling it again only changes the backlog.
        net::listen(&listener, BACKLOG)?;
        Ok(listener)
    });
    opened.with_context(|| format!("cannot listen on {address}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn hundreds_of_clients_connect_before_any_is_accepted() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("listens");
        let address = listener.local_addr().expect("its address");
        let begun = std::time::Instant::now();
        let clients = (0..400).map(|_| TcpStream::connect(address));
        let clients: Vec<_> = clients.collect::<Result<_, _>>().expect("connects");
        assert!(
            begun.elapsed().as_millis() < 900,
            "the SYN of one of {} was dropped",
            clients.len()
        );
        assert!(listen(address).is_err(), "it is in use");
    }
}

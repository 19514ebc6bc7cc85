//! Opening a connection to an endpoint.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream};

/// Connects with Nagle's algorithm off: a request is sent whole and must not wait for the
/// acknowledgement of the one before.
///
/// # Errors
/// What the kernel says; the caller bounds the wait.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

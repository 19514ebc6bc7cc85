//! Opening listening sockets.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// Accept backlog. The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;
/// Ports below this one need a privilege on most machines.
const FIRST_UNPRIVILEGED: u16 = 1_024;
/// Offset of the replacement for a port that cannot be bound.
const INSTEAD: u16 = 10_000;

/// When a port may be exchanged for `10000 + port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Never: only the requested port will do.
    Never,
    /// When the port is privileged and the process is not.
    WhenDenied,
    /// Also when another process uses the port.
    WhenInUse,
}

/// Why an address could not be used.
#[derive(Debug)]
pub enum BindError {
    /// Another process has this address and port.
    InUse(SocketAddr),
    /// Anything else.
    Other(SocketAddr, io::Error),
}

/// A listening socket and its address, or the reason why there is none.
pub type Bound = Result<(TcpListener, SocketAddr), BindError>;

/// Opens a non-blocking listening socket.
pub fn bind(at: SocketAddr, instead: Instead) -> Bound {
    let error = match open(at) {
        Ok(bound) => return Ok(bound),
        Err(error) => error,
    };
    let elsewhere = match error {
        Errno::ACCESS => instead != Instead::Never && at.port() < FIRST_UNPRIVILEGED,
        Errno::ADDRINUSE => instead == Instead::WhenInUse,
        _ => false,
    };
    if let (true, Some(port)) = (elsewhere, at.port().checked_add(INSTEAD)) {
        return bind(SocketAddr::new(at.ip(), port), Instead::Never);
    }
    Err(match error {
        Errno::ADDRINUSE => BindError::InUse(at),
        error => BindError::Other(at, error.into()),
    })
}

impl BindError {
    /// Whether no file descriptor is left, so that no other address would work either.
    pub fn is_exhausted(&self) -> bool {
        let exhausted = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        match self {
            BindError::InUse(_) => false,
            BindError::Other(_, error) => error
                .raw_os_error()
                .is_some_and(|code| exhausted.contains(&code)),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::InUse(at) => write!(f, "{at} is in use by another process"),
            BindError::Other(at, error) => write!(f, "cannot listen on {at}: {error}"),
        }
    }
}

impl std::error::Error for BindError {}

/// Not [`TcpListener::bind`]: its backlog of 128 overflows when hundreds of clients connect at once, and each client
/// whose SYN is dropped waits a second before it sends the next.
fn open(at: SocketAddr) -> Result<(TcpListener, SocketAddr), Errno> {
    let family = if at.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Allows a restart at once, while old connections are still in TIME_WAIT.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &at)?;
    net::listen(&socket, BACKLOG)?;
    let at = net::getsockname(&socket)?.try_into()?;
    Ok((TcpListener::from(socket), at))
}

//! Sockets, and addresses at which there is none.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use heddle_proxy::{Entry, Proxy};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A listener, and where it is.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Gives a proxy another listener, and says where it is.
pub(crate) fn open(proxy: &Proxy, id: u64, entry: Entry) -> SocketAddr {
    let (socket, address) = listener();
    proxy.listen(id, socket, entry);
    address
}

/// Where nothing listens. A port that was free a moment ago may be another test's by now; this one is
/// given to a socket only when it asks for it.
pub(crate) fn refusing() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

/// Another address each time, at which nothing listens unless a test begins to.
pub(crate) fn unused_address() -> SocketAddr {
    listener().1
}

/// A listener that takes no connection: its queue is full. It is there as long as what comes with it.
pub(crate) fn taking_none() -> (SocketAddr, Vec<OwnedFd>) {
    let socket = || {
        socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::NONBLOCK,
            None,
        )
    };
    let listener = socket().unwrap();
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
    let mut held = vec![listener];
    for _ in 0..4 {
        let client = socket().unwrap();
        // It goes on connecting.
        let _begun = connect(&client, &address);
        held.push(client);
    }
    (address, held)
}

/// Allows as many descriptors as there may be: both ends of every connection are in this process.
pub(crate) fn allow_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A connection from an address of loopback.
pub(crate) fn connect_from(source: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

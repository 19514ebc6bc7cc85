//! Sockets, and addresses without a listener.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use heddle_proxy::{Entry, Proxy};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Gives a proxy another listener; returns its address.
pub(crate) fn open(proxy: &Proxy, id: u64, entry: Entry) -> SocketAddr {
    let (socket, address) = listener();
    proxy.listen(id, socket, entry);
    address
}

/// An address that refuses connections. An unused ephemeral port could be taken by another test at any time; the
/// kernel gives port 1 only to a socket that requests it.
pub(crate) fn refusing() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

/// A new unused address each time. Nothing listens on it until a test binds it.
pub(crate) fn unused_address() -> SocketAddr {
    listener().1
}

/// A listener whose accept queue is full, so that connections hang. It lasts as long as the returned descriptors.
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
        // Does not block: the connection stays half open.
        let _begun = connect(&client, &address);
        held.push(client);
    }
    (address, held)
}

/// Raises the limit of descriptors to its maximum, since both ends of every connection are in this process.
pub(crate) fn allow_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A connection with this loopback source address.
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

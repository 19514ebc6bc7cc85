//! Endpoints: one scripted by a test, and several that serve by themselves.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::{Client, PATIENCE, field};

/// An endpoint whose connections a test accepts one by one.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    connections: Receiver<TcpStream>,
}

impl Upstream {
    pub(crate) fn new() -> Upstream {
        Upstream::at("127.0.0.1:0")
    }

    /// An endpoint at this address.
    pub(crate) fn at(address: &str) -> Upstream {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (send, connections) = sync_channel(64);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if send.send(stream).is_err() {
                    return;
                }
            }
        });
        Upstream {
            address,
            connections,
        }
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> Client {
        let taken = self.connections.recv_timeout(PATIENCE);
        Client::of(taken.expect("a connection"))
    }

    /// The next connection, after reading its first request head.
    pub(crate) fn asked(&self) -> Client {
        let mut server = self.accept();
        server.head();
        server
    }

    /// The next connection, after sending these bytes in reply to its first request head.
    pub(crate) fn replying(&self, bytes: impl AsRef<[u8]>) -> Client {
        self.asked().sending(bytes)
    }

    /// The next connection, after sending a 200 with this body in reply to its first request head.
    pub(crate) fn answering(&self, body: &str) -> Client {
        let mut server = self.asked();
        server.answer(body);
        server
    }

    /// Whether no new connection waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.try_recv().is_err()
    }
}

/// An endpoint that sends back each request head as a body.
pub(crate) fn mirror() -> SocketAddr {
    serve(str::to_owned)
}

/// An endpoint that answers every request with 200 and the body that `answer` makes of its head.
pub(crate) fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    serve_at("127.0.0.1:0", answer)
}

/// As [`serve`], at this address.
pub(crate) fn serve_at(
    address: &str,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    accept_all(listener, move |stream| {
        let mut client = Client::of(stream);
        // No timeout, since the proxy may keep a connection in its pool.
        client.stream.set_read_timeout(None).unwrap();
        while let Some(head) = client.try_head() {
            let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
            client.exact(length);
            client.answer(&answer(&head));
        }
    })
}

/// An endpoint that calls `serve` for every connection, each in a thread of its own.
pub(crate) fn each_connection(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    accept_all(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
}

pub(crate) fn accept_all(
    listener: TcpListener,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

//! Endpoints: one that a test scripts, and those that answer by themselves.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::{Client, PATIENCE, field};

/// An upstream whose connections a test takes one by one.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    connections: Receiver<TcpStream>,
}

impl Upstream {
    pub(crate) fn new() -> Upstream {
        Upstream::at("127.0.0.1:0")
    }

    /// One at this address.
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

    /// The next connection, with the head of its first request read.
    pub(crate) fn asked(&self) -> Client {
        let mut server = self.accept();
        server.head();
        server
    }

    /// The next connection, with this sent in reply to its first request.
    pub(crate) fn replying(&self, bytes: impl AsRef<[u8]>) -> Client {
        self.asked().sending(bytes)
    }

    /// The next connection, with a 200 and this body sent in reply to its first request.
    pub(crate) fn answering(&self, body: &str) -> Client {
        let mut server = self.asked();
        server.answer(body);
        server
    }

    /// Whether a connection waits to be taken.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.try_recv().is_err()
    }
}

/// An endpoint that sends back the heads that reach it.
pub(crate) fn mirror() -> SocketAddr {
    serve(str::to_owned)
}

/// An upstream that answers every request with 200 and what `answer` makes of its head.
pub(crate) fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    serve_at("127.0.0.1:0", answer)
}

/// The same at this address.
pub(crate) fn serve_at(
    address: &str,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    accept_all(listener, move |stream| {
        let mut client = Client::of(stream);
        // The proxy may keep a connection for as long as it likes.
        client.stream.set_read_timeout(None).unwrap();
        while let Some(head) = client.try_head() {
            let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
            client.exact(length);
            client.answer(&answer(&head));
        }
    })
}

/// An endpoint that does this with every connection, each on its own thread.
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

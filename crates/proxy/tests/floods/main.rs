//! Floods: many connections, at once or one after the other, that never carry a complete request.
//!
//! These tests measure the latency of other clients and the memory of the whole process. So they are a test program
//! of their own, and run one at a time.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod beside;
mod held;
mod memory;
#[path = "../data_path/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "another test program uses the rest"
)]
mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use heddle_model::{AppProtocol, ServiceName, WorkloadName};
use heddle_proxy::{Bounds, Elasticity, Entry, Settings, Timeouts};
use rustix::net::listen;
use rustix::net::sockopt::set_socket_linger;

use support::{Bed, mesh};

pub(crate) use support::connect_from;

/// Source addresses of the flooding client and of the others.
pub(crate) const FLOODER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
pub(crate) const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Held while a test runs, so that tests run one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint that serves every connection, with a backlog as long as that of the product's listeners.
fn endpoint() -> SocketAddr {
    let (socket, address) = queue();
    thread::spawn(move || {
        for mut stream in socket.incoming().flatten() {
            thread::spawn(move || {
                let mut request = [0; 4096];
                while let Ok(1..) = stream.read(&mut request) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A proxy for one Service.
pub(crate) fn bed(workers: usize, protocol: AppProtocol, bounds: Bounds) -> Bed {
    let endpoint = endpoint();
    let mut mesh = mesh(&[endpoint], None);
    mesh.services[0].ports[0].protocol = protocol;
    let workers = Elasticity {
        min: workers,
        max: workers,
        ..Elasticity::default()
    };
    let settings = Settings {
        workers,
        bounds,
        timeouts: Timeouts {
            // Longer than a test, so that an incomplete request head never times out.
            request_head: Duration::from_secs(600),
            ..Timeouts::default()
        },
        ..Settings::default()
    };
    Bed::with(settings, &mesh)
}

/// A listener with the same backlog as the product's, from which nothing is accepted yet.
pub(crate) fn queue() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    listen(&socket, 4096).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Makes the proxy serve the connections in the queue and later ones.
pub(crate) fn serve(bed: &Bed, queue: TcpListener, caller: Option<&str>) {
    let entry = Entry::Service {
        caller: caller.map(|name| WorkloadName::new("test", name).unwrap()),
        service: ServiceName::parse("test/echo").unwrap(),
        port: 80,
    };
    bed.proxy.listen(2, queue, entry);
}

pub(crate) fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

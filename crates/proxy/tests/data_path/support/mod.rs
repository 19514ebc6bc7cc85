//! A proxy with one Service, an endpoint that a test scripts byte by byte, and a client that sends raw bytes.

mod bed;
mod client;
mod endpoints;
mod meshes;
mod rules;
mod seen;
mod sockets;

use std::thread;
use std::time::{Duration, Instant};

use heddle_proxy::{Bounds, Elasticity, Protocol, Settings, Timeouts};

pub(crate) use bed::Bed;
pub(crate) use client::{Client, Response, field};
pub(crate) use endpoints::{Upstream, accept_all, each_connection, mirror, serve, serve_at};
pub(crate) use meshes::{echo_entry, mesh, service, speaking};
pub(crate) use rules::{forward, plain, prefix, rule, to, to_echo};
pub(crate) use seen::{Log, count, expect, expect_rejected};
pub(crate) use sockets::{
    allow_descriptors, connect_from, listener, open, refusing, taking_none, unused_address,
};

/// Timeout of every wait in a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A request for tests to which its contents do not matter.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: echo\r\n\r\n";

/// The first bytes of every cleartext HTTP/2 client (RFC 9113 section 3.4).
pub(crate) const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A GET request for this path.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: echo\r\n\r\n")
}

/// The head of a POST with a body of this length. The proxy does not send it twice.
pub(crate) fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: {length}\r\n\r\n")
}

/// Settings with this minimum and maximum of Workers.
pub(crate) fn workers(min: usize, max: usize) -> Settings {
    Settings {
        workers: Elasticity {
            min,
            max,
            ..Elasticity::default()
        },
        ..Settings::default()
    }
}

pub(crate) fn quick(change: impl Fn(&mut Timeouts)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.timeouts);
    settings
}

pub(crate) fn bounded(change: impl Fn(&mut Bounds)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.bounds);
    settings
}

/// Settings of nodes that use this protocol between them.
pub(crate) fn over(between_nodes: Protocol) -> Settings {
    Settings {
        between_nodes,
        ..Settings::default()
    }
}

/// Polls until the condition holds; `what` is the message of the panic on timeout.
pub(crate) fn wait_until(what: &str, patience: Duration, mut is: impl FnMut() -> bool) {
    let by = Instant::now() + patience;
    while !is() {
        assert!(Instant::now() < by, "{what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

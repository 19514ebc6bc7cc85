//! A data plane keeps serving when its Workers panic.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use heddle_model::ServiceName;

use super::*;
use crate::Elasticity;

/// How long clients may be without a Worker, times three: test machines are slow.
const BLINK: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

/// A data plane that knows no Service, so that it generates every answer itself.
fn start(workers: usize) -> (Proxy, SocketAddr, Arc<Registry>) {
    let settings = Settings {
        workers: Elasticity {
            min: workers,
            max: workers.max(2),
            ..Elasticity::default()
        },
        ..Settings::default()
    };
    let registry = Arc::new(Registry::new());
    let proxy = Proxy::start(settings, Arc::clone(&registry), None).unwrap();
    proxy.apply(&Mesh {
        generation: 1,
        ..Mesh::default()
    });
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let entry = Entry::Service {
        caller: None,
        service: ServiceName::parse("test/echo").unwrap(),
        port: 80,
    };
    proxy.listen(1, socket, entry);
    (proxy, address, registry)
}

/// Whether a request on a new connection gets an answer.
fn asks(address: SocketAddr) -> bool {
    let Ok(mut client) = TcpStream::connect(address) else {
        return false;
    };
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: echo.test\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    // A connection on the Worker that panicked is reset.
    client.write_all(request).is_ok()
        && client.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 ")
}

fn until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::yield_now();
    }
}

fn died(registry: &Registry) -> usize {
    let mut text = String::new();
    registry.render(&mut text);
    let lines = text.lines();
    let mut died = lines.filter_map(|line| line.strip_prefix("heddle_workers_died_total "));
    died.next().unwrap().parse().unwrap()
}

#[test]
fn workers_that_panic_are_replaced_and_their_listeners_go_on() {
    for workers in [1, 2] {
        let (proxy, address, registry) = start(workers);
        until("the first answer", PATIENCE, || asks(address));
        for round in 1..=3 {
            until("no connection", PATIENCE, || {
                let status = proxy.status();
                status.workers.iter().all(|w| w.connections_active == 0)
            });
            let idle = TcpStream::connect(address).unwrap();
            until("an idle connection", PATIENCE, || {
                let status = proxy.status();
                status.workers.iter().any(|w| w.connections_active > 0)
            });
            proxy.order(Order::Fault);
            until("replacements", PATIENCE, || {
                died(&registry) == workers * round
            });
            until("an answer", BLINK, || asks(address));
            // A Worker without a configuration is not shown.
            until("as many as before", PATIENCE, || {
                let status = proxy.status();
                assert!(status.workers.iter().all(|w| w.config_generation <= 1));
                status.workers.len() == workers && status.workers[0].config_generation == 1
            });
            drop(idle);
        }
    }
}

#[test]
fn a_drain_ends_whatever_became_of_the_workers() {
    let (proxy, address, _registry) = start(1);
    until("the first answer", PATIENCE, || asks(address));
    proxy.order(Order::Fault);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let drained = runtime.block_on(async {
        tokio::time::timeout(PATIENCE, proxy.drain(Duration::from_secs(1))).await
    });
    assert_eq!(drained, Ok(Drained { cut: 0 }));
}

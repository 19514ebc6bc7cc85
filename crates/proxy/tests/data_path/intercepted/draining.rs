//! Listeners that are drained before they are closed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use heddle_model::AppProtocol;

use super::bed::{ECHO, SERVICE, Steered, mesh};
use crate::support::{PATIENCE, serve_at};

/// Connects and sends a request, repeatedly, until connections are refused. Returns the number of responses and of
/// failures.
fn ask_until_refused(address: std::net::SocketAddr, stop: &AtomicBool) -> (usize, usize) {
    let (mut served, mut cut) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(address) else {
            return (served, cut);
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: echo.test\r\nConnection: close\r\n\r\n";
        let mut answer = Vec::new();
        let asked = stream.write_all(request);
        let read = asked.and_then(|()| stream.read_to_end(&mut answer));
        match read {
            Ok(_) if answer.ends_with(b"ok") => served += 1,
            _ => cut += 1,
        }
    }
    panic!("the listener is never closed");
}

#[tokio::test]
async fn what_the_kernel_has_accepted_is_served() {
    for workers in [1, 2] {
        let endpoint = serve_at(ECHO, |_| "ok".into());
        let steered = Steered::with(workers, &mesh(endpoint, AppProtocol::Http), &["echo"]);
        let (id, address) = steered.outbound("shop", Some(SERVICE));
        let stop = Arc::new(AtomicBool::new(false));
        let waiting = Arc::new(AtomicUsize::new(0));
        // These connections exist when the drain begins, but send their requests long after the grace period.
        let early: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let askers: Vec<_> = (0..2)
            .map(|_| {
                let (stop, waiting) = (Arc::clone(&stop), Arc::clone(&waiting));
                thread::spawn(move || {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    ask_until_refused(address, &stop)
                })
            })
            .collect();
        while waiting.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        let closed = steered
            .proxy
            .unlisten_drained(id, Duration::from_millis(300));
        let late = tokio::time::timeout(PATIENCE, closed);
        late.await.expect("it is closed");
        assert!(TcpStream::connect(address).is_err(), "there is no listener");
        for asker in askers {
            let (served, cut) = asker.join().unwrap();
            assert!(served > 0);
            // The last connection may arrive just as the kernel's queue is closed.
            assert!(cut <= 1, "{cut} of {served} with {workers} workers");
        }
        for mut stream in early {
            let request = b"GET / HTTP/1.1\r\nHost: echo.test\r\nConnection: close\r\n\r\n";
            stream.write_all(request).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(b"ok"));
        }
    }
}

#[tokio::test]
async fn a_listener_that_there_is_not_is_closed() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let steered = Steered::new(&mesh(endpoint, AppProtocol::Http), &[]);
    let closed = steered.proxy.unlisten_drained(77, Duration::from_secs(60));
    let late = tokio::time::timeout(PATIENCE, closed);
    late.await.expect("it is over at once");
}

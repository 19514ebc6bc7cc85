//! A relay between two nodes, whose connections a test can cut, stall and resume.

use crate::support::listener;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Polling interval while the relay is stalled.
const LOOK: Duration = Duration::from_millis(2);

/// Forwards connections to an address.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Vec<TcpStream>>,
    taken: AtomicUsize,
    /// Nothing is forwarded, and both ends stay connected.
    dead: AtomicBool,
}

impl Relay {
    pub(crate) fn to(target: SocketAddr) -> Relay {
        let (listener, address) = listener();
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                let Ok(far) = TcpStream::connect(target) else {
                    continue;
                };
                ours.taken.fetch_add(1, Ordering::Relaxed);
                let mut open = ours.open.lock().unwrap();
                for side in [&near, &far] {
                    side.set_nodelay(true).unwrap();
                    open.push(side.try_clone().unwrap());
                }
                drop(open);
                for (mut from, mut to) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap()),
                    (far, near),
                ] {
                    let shared = Arc::clone(&ours);
                    thread::spawn(move || pass_on(&mut from, &mut to, &shared));
                }
            }
        });
        Relay { address, shared }
    }

    /// Number of connections so far.
    pub(crate) fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Resets every connection, in the middle of its data.
    pub(crate) fn cut(&self) {
        for side in self.shared.open.lock().unwrap().drain(..) {
            let _ = rustix::net::sockopt::set_socket_linger(&side, Some(Duration::ZERO));
            let _ = side.shutdown(Shutdown::Both);
        }
    }

    /// Sends bytes to the caller that did not come from the other end.
    pub(crate) fn inject(&self, bytes: &[u8]) {
        let open = self.shared.open.lock().unwrap();
        for mut near in open.iter().step_by(2) {
            near.write_all(bytes).unwrap();
        }
    }

    /// Stalls forwarding, or continues where it stopped.
    pub(crate) fn is_dead(&self, dead: bool) {
        self.shared.dead.store(dead, Ordering::Relaxed);
    }
}

fn pass_on(from: &mut TcpStream, to: &mut TcpStream, shared: &Shared) {
    // Small, so that a cut hits the middle of something.
    let mut bytes = [0; 1000];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        while shared.dead.load(Ordering::Relaxed) {
            thread::park_timeout(LOOK);
        }
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

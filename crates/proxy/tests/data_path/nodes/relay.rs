//! What is between two nodes: a way that a test can cut, stop and open again.

use crate::support::listener;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long a look at a way that is stopped takes.
const LOOK: Duration = Duration::from_millis(2);

/// Passes connections on to an address.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Vec<TcpStream>>,
    taken: AtomicUsize,
    /// Nothing is passed on, and neither end is told.
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

    /// Connections so far.
    pub(crate) fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Resets every connection, in the middle of whatever it carries.
    pub(crate) fn cut(&self) {
        for side in self.shared.open.lock().unwrap().drain(..) {
            let _ = rustix::net::sockopt::set_socket_linger(&side, Some(Duration::ZERO));
            let _ = side.shutdown(Shutdown::Both);
        }
    }

    /// Says something to the caller that the other end has not said.
    pub(crate) fn inject(&self, bytes: &[u8]) {
        let open = self.shared.open.lock().unwrap();
        for mut near in open.iter().step_by(2) {
            near.write_all(bytes).unwrap();
        }
    }

    /// Passes nothing on any more, or goes on where it stopped.
    pub(crate) fn is_dead(&self, dead: bool) {
        self.shared.dead.store(dead, Ordering::Relaxed);
    }
}

fn pass_on(from: &mut TcpStream, to: &mut TcpStream, shared: &Shared) {
    // Small, so that a cut falls into the middle of something.
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

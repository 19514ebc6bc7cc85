//! Listeners: sockets with a meaning. What a connection may be is decided by the socket that it
//! came in on, never by an address it came from.

mod socket;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use heddle_telemetry::{Counter, Seldom};
use rustix::net::sockopt::set_socket_linger;

use crate::clock::Millis;
use crate::door::Door;
use crate::parcel::Parcel;
use crate::permits::Spent;
use crate::worker::{WorkKey, Worker};

pub(crate) use socket::{BATCH, Socket};

/// How long to wait when the kernel has no descriptor or memory for another connection, in
/// milliseconds.
pub(crate) const BACK_OFF_MS: Millis = 100;

/// A listener from which a Worker accepts for itself.
#[derive(Debug)]
pub(crate) struct Listener {
    closed: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Listener {
    /// Starts accepting.
    ///
    /// # Errors
    /// When the socket cannot be used with the runtime.
    pub(crate) fn open(
        worker: &Rc<Worker>,
        socket: Arc<TcpListener>,
        door: Arc<Door>,
    ) -> io::Result<Rc<Listener>> {
        let socket = Socket::new(socket)?;
        let listener = Rc::new(Listener {
            closed: Cell::new(false),
            task: RefCell::new(None),
        });
        worker.gate.spawn(
            WorkKey::OWN,
            accept(Rc::clone(worker), Rc::clone(&listener), socket, door),
        );
        Ok(listener)
    }

    /// Stops accepting and closes the socket.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }
}

/// Accepts until the listener is closed.
async fn accept(worker: Rc<Worker>, listener: Rc<Listener>, socket: Socket, door: Arc<Door>) {
    loop {
        let batches = poll_fn(|cx| {
            *listener.task.borrow_mut() = Some(cx.waker().clone());
            if listener.closed.get() {
                return Poll::Ready(Ok(()));
            }
            let mut abandoned = 0;
            let polled =
                socket.poll_batch(cx, &mut abandoned, |client, peer| match door.permit(peer) {
                    Ok(permit) => worker.admit(Parcel::new(&door, client, peer, permit)),
                    Err(spent) => {
                        let refusing = Refusing {
                            refused: &worker.stats.connections_refused,
                            over_share: &worker.stats.connections_over_share,
                            full: &mut worker.full.borrow_mut(),
                            most: worker.settings.bounds.connections,
                            now: worker.clock.now(),
                        };
                        refusing.turn_away(&door, (&client, peer), spent);
                    }
                });
            worker.count_abandoned(abandoned);
            polled.map(Err)
        });
        let Err(error) = batches.await else {
            return;
        };
        // All listeners fail alike, and each of them many times a second.
        let now = worker.clock.now();
        if worker.cannot_accept.borrow_mut().is_due(&error, now) {
            tracing::warn!(%error, source = %door.source, "cannot accept; trying again");
        }
        let due = worker.clock.now_ms() + BACK_OFF_MS;
        worker.alarms.alarm().wait_until(due).await;
    }
}

/// What whoever accepts counts and says of clients that it turns away.
pub(crate) struct Refusing<'a> {
    pub(crate) refused: &'a Counter,
    pub(crate) over_share: &'a Counter,
    /// Whether it was said that there are as many clients as may be.
    pub(crate) full: &'a mut Seldom<()>,
    /// How many that is.
    pub(crate) most: usize,
    pub(crate) now: Instant,
}

impl Refusing<'_> {
    /// Turns a client away for which there is no permit: one that has its share by a reset, so that it knows at
    /// once and nothing of it stays here.
    pub(crate) fn turn_away(
        self,
        door: &Door,
        (client, peer): (&TcpStream, SocketAddr),
        spent: Spent,
    ) {
        self.refused.inc();
        match spent {
            Spent::Share | Spent::Address => {
                self.over_share.inc();
                // What cannot be reset is closed.
                let _closed = set_socket_linger(client, Some(Duration::ZERO));
                door.say_spent(peer, spent, self.now);
            }
            Spent::All if self.full.may_name((), self.now) => tracing::warn!(
                most = self.most,
                "clients are turned away: there are as many connections as may be; raise \
                 proxy.bounds.connections, or the limit of open files (ulimit -n) if that is what bounds \
                 them"
            ),
            Spent::All => {}
        }
    }
}

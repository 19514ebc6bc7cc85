//! Listeners from which the only Worker accepts connections itself.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Worker;
use crate::door::Door;
use crate::env::WorkKey;
use crate::intake::{Intake, Placed};
use crate::listener::{BACK_OFF_MS, Refusing, Socket};
use crate::parcel::{Arrival, Parcel};

/// A listener from which a Worker accepts itself.
#[derive(Debug)]
pub(crate) struct Listener {
    closed: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Listener {
    /// Starts a task that accepts.
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
            let mut placed = Vec::new();
            let polled =
                socket.poll_batch(cx, &mut abandoned, |client, peer| match door.permit(peer) {
                    Ok(permit) => {
                        let parcel = Parcel::new(&door, client, peer, permit);
                        match worker.offline_workers.place(parcel) {
                            Placed::NotHere(parcel) => worker.receive(Arrival::Client(parcel)),
                            Placed::In(intake) => placed.push(intake),
                            Placed::Closed => worker.stats.connections_refused.inc(),
                        }
                    }
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
            placed.iter().for_each(Intake::wake);
            worker.count_abandoned(abandoned);
            polled.map(Err)
        });
        let Err(error) = batches.await else {
            return;
        };
        // All listeners fail in the same way, each many times a second.
        let now = worker.clock.now();
        if worker.cannot_accept.borrow_mut().is_due(&error, now) {
            tracing::warn!(%error, source = %door.source, "cannot accept; trying again");
        }
        let due = worker.clock.now_ms() + BACK_OFF_MS;
        worker.alarms.alarm().wait_until(due).await;
    }
}

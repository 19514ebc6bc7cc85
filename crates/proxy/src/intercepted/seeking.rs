//! The search for the destination of a connection, which may take questions to the control plane.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use super::{Led, lead, lead_nowhere};
use crate::door::Door;
use crate::env::{PendingQuestion, WorkKey};
use crate::failure::Reason;
use crate::questions::Asker;
use crate::side::Side;
use crate::worker::Worker;

/// Most questions of one connection, one after the other: a further address leads to its workload's first one, and what
/// was answered may be forgotten again.
const MAX_QUESTIONS: u8 = 4;

/// A connection whose destination is sought. What the client has sent stays in the kernel meanwhile.
pub(crate) struct Seeking {
    pub(crate) worker: Rc<Worker>,
    pub(crate) door: Arc<Door>,
    pub(crate) key: WorkKey,
    pub(crate) client: Side,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The address that was dialled, once it was asked for.
    address: Option<SocketAddr>,
    asked: u8,
}

/// The result of a look.
pub(crate) enum Sought {
    /// With the door that leads there.
    Found(Seeking),
    Asked(Seeking, PendingQuestion),
    Nowhere,
}

impl Seeking {
    pub(crate) fn new(
        worker: Rc<Worker>,
        door: Arc<Door>,
        key: WorkKey,
        client: Side,
        peer: SocketAddr,
    ) -> Self {
        Seeking {
            worker,
            door,
            key,
            client,
            peer,
            address: None,
            asked: 0,
        }
    }

    /// Looks for the destination in the configuration, and asks if nothing can be said of it.
    pub(crate) fn look(mut self) -> Sought {
        match lead(
            &self.worker,
            Arc::clone(&self.door),
            &self.client,
            self.peer,
        ) {
            Led::To(door, peer) => Sought::Found(Seeking { door, peer, ..self }),
            Led::Nowhere => Sought::Nowhere,
            Led::Unasked(dependency, address) => {
                self.address = Some(address);
                let questions = self.worker.settings.questions.as_ref();
                let asked = match self.door.entry.caller() {
                    _ if self.asked >= MAX_QUESTIONS => Err(Reason::DiscoveryTimeout),
                    Some(caller) => {
                        let asker = Asker::Workload(caller.clone());
                        self.worker.asking.ask(questions, dependency, &asker)
                    }
                    None => Err(Reason::DestinationUnknown),
                };
                match asked {
                    Ok(question) => {
                        self.asked += 1;
                        Sought::Asked(self, question)
                    }
                    Err(reason) => {
                        self.give_up(reason);
                        Sought::Nowhere
                    }
                }
            }
        }
    }

    /// Waits for the answer. `None`: there is none, which was counted, logged and answered by a reset.
    pub(crate) async fn wait((seeking, question): (Self, PendingQuestion)) -> Option<Self> {
        let worker = &seeking.worker;
        let alarm = worker.alarms.alarm();
        let due = worker.after(worker.settings.timeouts.discovery);
        let mut is_set = false;
        let answered = poll_fn(|cx| {
            if !std::mem::replace(&mut is_set, true) {
                alarm.wakes(cx.waker());
                alarm.set(due);
            }
            if alarm.rang() {
                let reason = worker.rang_for(&alarm, Reason::DiscoveryTimeout);
                return Poll::Ready(Err(reason));
            }
            question.poll(cx)
        });
        let answered = answered.await;
        drop((alarm, question));
        match answered {
            Ok(()) => Some(seeking),
            Err(reason) => {
                seeking.give_up(reason);
                None
            }
        }
    }

    fn give_up(&self, reason: Reason) {
        let client = (&self.client, self.peer);
        lead_nowhere(&self.worker, &self.door, client, reason, self.address);
    }
}

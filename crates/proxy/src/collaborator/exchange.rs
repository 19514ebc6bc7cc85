//! One request and its response, from the head's last byte to the last byte of the answer.
//!
//! | part | is | made |
//! |---|---|---|
//! | [`ClientRequest`] | what the client has sent | once |
//! | [`Decision`] | what the configuration makes of it | anew whenever the steps run |
//! | `Attempt` | one try to have it answered by an endpoint | anew for each try |
//! | [`ClientResponse`] | what the client is told | once |

use std::rc::Rc;
use std::time::Instant;

use heddle_wire::buffer::Chain;
use heddle_wire::http1::{Framing, Method, ResponseHead};

use super::decision::Decision;
use crate::clock::{Clock, Due};
use crate::failure::{Failure, Reason, Retry};
use crate::pump::Pump;
use crate::upstream::Endpoint;
use crate::worker::Worker;

/// Bytes of a body that an endpoint may leave unread in its socket.
const LONG_BODY: u64 = 16 * 1024;

/// What is remembered of a request while it is under way. No part of it is a buffer.
pub(super) struct Exchange {
    pub(super) request: ClientRequest,
    pub(super) decision: Decision,
    pub(super) response: ClientResponse,
    /// Attempts that were begun.
    pub(super) attempts: u32,
    /// The endpoint that was chosen last, whether or not it might be asked.
    pub(super) chosen: Option<Rc<Endpoint>>,
    /// The endpoint of the last of them.
    pub(super) tried: Option<Rc<Endpoint>>,
    /// How an attempt failed that an endpoint may have carried out.
    may_be_done: Option<Reason>,
}

/// What the client has sent.
pub(super) struct ClientRequest {
    /// When its first byte came, in microseconds of the Worker's clock.
    pub(super) started_us: u64,
    /// When it must be over, as its route says.
    pub(super) due: Option<Due>,
    pub(super) method: Method,
    pub(super) http10: bool,
    /// Whether the client wants to send another request.
    pub(super) keep_alive: bool,
    /// Length of its head, which stands at the front of the client's inbox until it is taken.
    pub(super) head_bytes: usize,
    /// Length of its body, if all of that stands behind the head and was sent: it can be sent again.
    pub(super) replay_bytes: usize,
    /// Neither is there any more.
    is_taken: bool,
    /// The body on its way to the endpoint.
    pub(super) upload: Pump,
}

/// What the client is told.
pub(super) struct ClientResponse {
    /// The status of the response that was begun.
    pub(super) status: Option<u16>,
    /// The body on its way to the client.
    pub(super) download: Pump,
    /// Interim responses that came.
    pub(super) interim: u32,
    /// Only the end of the connection tells the client that the answer is whole. Until it is,
    /// closing resets the connection, whatever the reason.
    pub(super) ends_at_close: bool,
    /// Why another node has answered itself.
    pub(super) refused_there: Option<Reason>,
}

impl Exchange {
    /// A request whose first byte came at `started`.
    pub(super) fn begin(worker: &Worker, started: Instant) -> Self {
        Exchange {
            request: ClientRequest {
                started_us: worker.clock.us(started),
                due: None,
                method: Method::Get,
                http10: false,
                keep_alive: false,
                head_bytes: 0,
                replay_bytes: 0,
                is_taken: false,
                upload: Pump::new(Framing::None),
            },
            decision: Decision::by(worker.bound()),
            response: ClientResponse {
                status: None,
                download: Pump::new(Framing::None),
                interim: 0,
                ends_at_close: false,
                refused_there: None,
            },
            attempts: 0,
            chosen: None,
            tried: None,
            may_be_done: None,
        }
    }

    /// An attempt has failed, and there will be another.
    pub(super) fn goes_on_after(&mut self, failure: Failure) {
        if failure.retry() == Retry::IfIdempotent {
            self.may_be_done = Some(failure.reason);
        }
    }

    /// What is told when the last attempt ended with this. That one may have reached no endpoint, while one before it may
    /// have: a node that hears that none has would send the request once more.
    pub(super) fn ends_with(&self, failure: Failure) -> Failure {
        match self.may_be_done {
            Some(reason) if failure.retry() == Retry::Safe => reason.into(),
            _ => failure,
        }
    }
}

impl ClientRequest {
    /// It must be over by then. What was said before is not prolonged.
    pub(super) fn limit(&mut self, due: Due) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Whether its time is over.
    pub(super) fn is_late(&self, clock: &Clock) -> bool {
        self.due.is_some_and(|due| clock.now_ms() >= due.ms())
    }

    /// Microseconds since its first byte.
    pub(super) fn since_us(&self, clock: &Clock) -> u32 {
        let since_us = clock.now_us().saturating_sub(self.started_us);
        u32::try_from(since_us).unwrap_or(u32::MAX)
    }

    /// Bytes at the front of the inbox that were sent and still stand there.
    pub(super) fn sent_bytes(&self) -> usize {
        match self.is_taken {
            true => 0,
            false => self.head_bytes + self.replay_bytes,
        }
    }

    /// Whether all of it that was sent still stands in the inbox.
    pub(super) fn is_held(&self) -> bool {
        !self.is_taken
    }

    /// Drops what still stands in the inbox of what was sent: it will not be sent again.
    pub(super) fn take(&mut self, inbox: &mut Chain) {
        inbox.consume(self.sent_bytes());
        self.is_taken = true;
    }

    /// Whether the endpoint has nothing left to read or to say once the body of this answer is there, so that another
    /// request may follow.
    ///
    /// An answer that comes before the request's body was there was given without it, and perhaps one of an error
    /// to a long one as well, which sockets hold: the endpoint closes then, or takes the body for a request. One that takes HEAD for GET sends
    /// the body that it announces.
    pub(super) fn is_over_after(&self, response: &ResponseHead) -> bool {
        let is_unread = response.status >= 400 && self.upload.bytes() > LONG_BODY;
        let may_send_body = self.method == Method::Head && response.withholds_body();
        self.upload.is_done() && !is_unread && !may_send_body
    }
}

//! One request and its response, from the last byte of the request's head to the last byte of the response.
//!
//! | part | content | created |
//! |---|---|---|
//! | [`ClientRequest`] | the client's request | once |
//! | [`Decision`] | the decisions of the configuration | each time the steps run |
//! | `Attempt` | one attempt to have it answered by an endpoint | for each attempt |
//! | [`ClientResponse`] | the response to the client | once |

use std::rc::Rc;
use std::time::Instant;

use heddle_wire::buffer::Chain;
use heddle_wire::http1::{Framing, Method, ResponseHead};

use super::decision::Decision;
use crate::authorize::claims::Asserted;
use crate::clock::{Clock, Due};
use crate::failure::{Failure, Reason, Retry};
use crate::pump::Pump;
use crate::upstream::Endpoint;
use crate::worker::Worker;

/// Length of a body up to which an unread rest in the endpoint's socket is no problem, in bytes.
const LONG_BODY: u64 = 16 * 1024;

/// The state of a request under way. It holds no buffer.
pub(super) struct Exchange {
    pub(super) request: ClientRequest,
    pub(super) decision: Decision,
    pub(super) response: ClientResponse,
    /// Number of attempts that were begun.
    pub(super) attempts: u32,
    /// The endpoint that was chosen last, whether or not policies allowed it.
    pub(super) chosen: Option<Rc<Endpoint>>,
    /// The endpoint of the last attempt.
    pub(super) tried: Option<Rc<Endpoint>>,
    /// The reason of a failed attempt whose request an endpoint may have executed.
    may_be_done: Option<Reason>,
}

/// The client's request.
pub(super) struct ClientRequest {
    /// When its first byte arrived, in microseconds of the Worker's clock.
    pub(super) started_us: u64,
    /// Its deadline, by its route.
    pub(super) due: Option<Due>,
    pub(super) method: Method,
    pub(super) http10: bool,
    /// Whether the client allows another request on its connection.
    pub(super) keep_alive: bool,
    /// Who has sent it, if it says so itself.
    pub(super) asserted: Asserted,
    /// Length of its head, which stays at the front of the client's inbox until [`Self::take`].
    pub(super) head_bytes: usize,
    /// Length of its body, if the whole body is in the inbox after the head and was sent: it can be sent again.
    pub(super) replay_bytes: usize,
    /// Head and body were removed from the inbox.
    is_taken: bool,
    /// The body on its way to the endpoint.
    pub(super) upload: Pump,
}

pub(super) struct ClientResponse {
    /// The status of the response that was begun.
    pub(super) status: Option<u16>,
    /// The body on its way to the client.
    pub(super) download: Pump,
    /// Number of interim responses received.
    pub(super) interim: u32,
    /// Only the end of the connection marks the end of the response. Until the response is complete, closing resets the
    /// connection, for any reason.
    pub(super) ends_at_close: bool,
    /// Why another node has answered in place of the endpoint.
    pub(super) refused_there: Option<Reason>,
}

impl Exchange {
    /// A request whose first byte arrived at `started`.
    pub(super) fn begin(worker: &Worker, started: Instant) -> Self {
        Exchange {
            request: ClientRequest {
                started_us: worker.clock.us(started),
                due: None,
                asserted: Asserted::Unsaid,
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

    /// Records that an attempt has failed and another will follow.
    pub(super) fn goes_on_after(&mut self, failure: Failure) {
        if failure.retry() == Retry::IfIdempotent {
            self.may_be_done = Some(failure.reason);
        }
    }

    /// The failure to report after the last attempt. That attempt may have reached no endpoint while an earlier one
    /// did: if the caller's node were told that none was reached, it would send the request again.
    pub(super) fn ends_with(&self, failure: Failure) -> Failure {
        match self.may_be_done {
            Some(reason) if failure.retry() == Retry::Safe => reason.into(),
            _ => failure,
        }
    }
}

impl ClientRequest {
    /// Sets a deadline, unless an earlier one is set.
    pub(super) fn limit(&mut self, due: Due) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Whether its deadline has passed.
    pub(super) fn is_late(&self, clock: &Clock) -> bool {
        self.due.is_some_and(|due| clock.now_ms() >= due.ms())
    }

    /// Microseconds since its first byte arrived.
    pub(super) fn since_us(&self, clock: &Clock) -> u32 {
        let since_us = clock.now_us().saturating_sub(self.started_us);
        u32::try_from(since_us).unwrap_or(u32::MAX)
    }

    /// Bytes at the front of the inbox that are kept until [`Self::take`].
    pub(super) fn sent_bytes(&self) -> usize {
        match self.is_taken {
            true => 0,
            false => self.head_bytes + self.replay_bytes,
        }
    }

    /// Whether everything that was sent is still in the inbox.
    pub(super) fn is_held(&self) -> bool {
        !self.is_taken
    }

    /// Removes the request's kept bytes from the inbox: they will not be sent again.
    pub(super) fn take(&mut self, inbox: &mut Chain) {
        inbox.consume(self.sent_bytes());
        self.is_taken = true;
    }

    /// Whether another request may follow on the endpoint's connection after the body of this response, because the
    /// endpoint will then have nothing left to read or to send.
    ///
    /// If the response comes before the request's body was fully sent, the endpoint did not wait for the body. An error
    /// response to a long body may also have been given without reading it, since sockets buffer the body. In both
    /// cases the endpoint closes the connection, or takes the body as a request. An endpoint that treats HEAD as GET
    /// sends the body that it announces.
    pub(super) fn is_over_after(&self, response: &ResponseHead) -> bool {
        let is_unread = response.status >= 400 && self.upload.bytes() > LONG_BODY;
        let may_send_body = self.method == Method::Head && response.withholds_body();
        self.upload.is_done() && !is_unread && !may_send_body
    }
}

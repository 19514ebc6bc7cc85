//! One request and its response, from the head's last byte to the last byte of the answer.

use std::rc::Rc;
use std::time::Instant;

use heddle_wire::http1::{Framing, Method, ResponseHead};

use crate::clock::{Millis, millis};
use crate::failure::Reason;
use crate::pump::Pump;
use crate::route::{Backend, PortIndex, Rule, RuleIndex};
use crate::upstream::Lease;
use crate::worker::{Bound, Worker};

/// Bytes of a body that an endpoint may leave unread in its socket.
const LONG_BODY: u64 = 16 * 1024;

/// What is remembered of a request while it is under way. No part of it is a buffer.
pub(super) struct Exchange {
    /// The configuration that it is served by from beginning to end.
    pub(super) bound: Rc<Bound>,
    pub(super) started: Instant,
    pub(super) method: Method,
    /// Length of the request's head, which stands at the front of the client's inbox until
    /// `head_taken`.
    pub(super) head_bytes: usize,
    pub(super) head_taken: bool,
    pub(super) http10: bool,
    /// Whether the client wants to send another request.
    pub(super) keep_alive: bool,
    /// The Service's port that was called.
    pub(super) port: Option<PortIndex>,
    pub(super) rule: Option<RuleIndex>,
    /// Which of the rule's backends; in few bytes, since every connection has room for an exchange.
    pub(super) backend: u32,
    /// The port whose endpoints are asked.
    pub(super) target: Option<PortIndex>,
    /// When the whole request must be over, as its route says.
    pub(super) request_due: Millis,
    /// When the attempt under way must be over; never later than `request_due`.
    pub(super) due: Millis,
    /// Limit for each attempt, in milliseconds; 0 for none.
    pub(super) attempt_ms: Millis,
    /// Limit for the wait between the request's last byte and the response's head, where the
    /// route sets none, in milliseconds; 0 for none.
    pub(super) response_head_ms: Millis,
    pub(super) lease: Option<Lease>,
    pub(super) attempts: u32,
    /// When the attempt under way began, in microseconds after `started`, where latencies are measured.
    pub(super) sent_after_us: u32,
    /// Whether the attempt under way began with a fair part of the time that the route gives it: if not, that time
    /// ran out says nothing about the endpoint.
    pub(super) has_fair_time: bool,
    /// Whether the request went out over a pooled connection, which the endpoint may have closed
    /// while it was on its way.
    pub(super) reused: bool,
    /// The request's body on its way to the endpoint.
    pub(super) upload: Pump,
    /// The response's body on its way to the client.
    pub(super) download: Pump,
    /// The endpoint takes no more of the request's body, though it may still answer.
    pub(super) upload_broken: bool,
    /// Whether the endpoint will take another request on this connection.
    pub(super) reuse_upstream: bool,
    /// Interim responses that came.
    pub(super) interim: u32,
    /// Only the end of the connection tells the client that the answer is whole. Until it is,
    /// closing resets the connection, whatever the reason.
    pub(super) ends_at_close: bool,
    /// Whether the answer came through another node, which has taken out what only nodes say.
    pub(super) from_node: bool,
    /// Why another node has answered itself.
    pub(super) refused_there: Option<Reason>,
    /// Status of the response that was begun; 0 before.
    pub(super) status: u16,
}

impl Exchange {
    /// A request whose first byte came at `started`.
    pub(super) fn begin(worker: &Worker, started: Instant) -> Self {
        Exchange {
            bound: worker.bound(),
            started,
            method: Method::Get,
            head_bytes: 0,
            head_taken: false,
            http10: false,
            keep_alive: false,
            port: None,
            rule: None,
            backend: 0,
            target: None,
            request_due: Millis::MAX,
            due: Millis::MAX,
            attempt_ms: 0,
            response_head_ms: millis(worker.settings.timeouts.response_head),
            lease: None,
            attempts: 0,
            sent_after_us: 0,
            has_fair_time: false,
            reused: false,
            upload: Pump::new(Framing::None),
            download: Pump::new(Framing::None),
            upload_broken: false,
            reuse_upstream: false,
            interim: 0,
            ends_at_close: false,
            from_node: false,
            refused_there: None,
            status: 0,
        }
    }

    /// Goes on by the configuration of now. What the one before led to is nothing here: its numbers are those of
    /// other ports, its rule's changes are not to be made.
    pub(super) fn begin_anew(&mut self, worker: &Worker) {
        self.bound = worker.bound();
        (self.port, self.target) = (None, None);
        self.rule = None;
        self.set_backend(0);
        if self.attempts == 0 {
            self.response_head_ms = millis(worker.settings.timeouts.response_head);
        }
    }

    /// The rule that matched.
    pub(super) fn rule(&self) -> Option<&Rule> {
        self.rule.map(|rule| self.bound.snapshot.rule(rule))
    }

    /// The backend chosen by weight; none when requests go straight to the Service's endpoints.
    pub(super) fn backend(&self) -> Option<&Backend> {
        let rule = self.rule()?;
        rule.action.backends.get(self.backend as usize)
    }

    pub(super) fn set_backend(&mut self, index: usize) {
        // A rule has fewer than four thousand million.
        self.backend = index as u32;
    }

    /// Whether what is left of the time now is at least half of what the route gives a request, or an attempt
    /// where that is less.
    pub(super) fn has_fair_time_left(&self, now: Millis) -> bool {
        if self.due == Millis::MAX {
            return true;
        }
        let route = self.rule().map(|rule| &rule.action.route);
        let of_request = route.and_then(|route| route.request_timeout_ms);
        let limits = [of_request.unwrap_or(0), self.attempt_ms];
        let given = limits.into_iter().filter(|ms| *ms > 0).min();
        // What is left of a route's time that is none any more was never given to an endpoint.
        given.is_some_and(|given| self.due.saturating_sub(now) >= given / 2)
    }

    /// Whether the endpoint has nothing left to read or to say once the body of this answer is there, so that another
    /// request may follow. Another node sees to that itself.
    ///
    /// An answer that comes before the request's body was there was given without it, and perhaps one of an error
    /// to a long one as well, which sockets hold: the endpoint closes then, or takes the body for a request. One that takes HEAD for GET sends
    /// the body that it announces.
    pub(super) fn is_over_after(&self, response: &ResponseHead) -> bool {
        let is_unread = response.status >= 400 && self.upload.bytes() > LONG_BODY;
        let may_send_body = self.method == Method::Head && response.withholds_body();
        let is_over = self.upload.is_done() && !is_unread && !may_send_body;
        is_over || self.from_node
    }

    /// Whether a request whose connection broke may be sent again: the connection was an old one,
    /// so that most likely the endpoint never saw the request; its method promises that twice is as good
    /// as once (RFC 9110 section 9.2.2); and none of its bytes is gone.
    pub(super) fn is_replayable(&self) -> bool {
        self.reused && !self.head_taken && self.method.is_idempotent()
    }
}

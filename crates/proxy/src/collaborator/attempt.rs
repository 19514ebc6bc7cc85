//! One attempt to have a request answered by an endpoint.

use super::exchange::Exchange;
use crate::clock::{Clock, Due, Millis};
use crate::upstream::Lease;
use heddle_model::Balancer;

/// The state of one attempt.
pub(super) struct Attempt {
    pub(super) lease: Lease,
    /// Deadline of the attempt; never later than that of the request.
    pub(super) due: Option<Due>,
    /// Start of the attempt, in microseconds after the request's start; only for a balancer that uses latencies.
    pub(super) began_us: Option<u32>,
    /// Whether the attempt began with a fair part of the time that the route allows. If not, a timeout says nothing
    /// about the endpoint.
    pub(super) has_fair_time: bool,
    /// Whether the request was sent over a pooled connection, which the endpoint may have closed while the request was
    /// on its way.
    pub(super) reused: bool,
    /// The endpoint accepts no more of the request's body, but may still answer.
    pub(super) upload_broken: bool,
    /// Whether the endpoint will accept another request on this connection.
    pub(super) reuse_upstream: bool,
    /// Whether the response came from another node, which removes fields from endpoints' responses that only nodes may
    /// send.
    pub(super) from_node: bool,
}

impl Attempt {
    /// Begins the next attempt of an exchange, at the endpoint of the lease.
    pub(super) fn begin(exchange: &mut Exchange, lease: Lease, clock: &Clock) -> Self {
        exchange.attempts += 1;
        exchange.tried = Some(lease.endpoint().clone());
        let decision = &exchange.decision;
        let now = clock.now_ms();
        let by_latency =
            (decision.cluster()).is_some_and(|cluster| cluster.balancer == Balancer::PeakEwma);
        let due = match (decision.attempt_ms, exchange.request.due) {
            (Some(ms), Some(due)) => Some(due.min(Due::at(now.saturating_add(ms)))),
            (Some(ms), None) => Some(Due::at(now.saturating_add(ms))),
            (None, due) => due,
        };
        Attempt {
            lease,
            due,
            began_us: by_latency.then(|| exchange.request.since_us(clock)),
            has_fair_time: has_fair_time(exchange, due, now),
            reused: false,
            upload_broken: false,
            reuse_upstream: true,
            from_node: false,
        }
    }

    /// The earlier one of `by` and the attempt's deadline.
    pub(super) fn at_most(&self, by: Millis) -> Millis {
        self.due.map_or(by, |due| by.min(due.ms()))
    }

    /// Whether the attempt's deadline has passed.
    pub(super) fn is_late(&self, clock: &Clock) -> bool {
        self.due.is_some_and(|due| clock.now_ms() >= due.ms())
    }
}

/// Whether the remaining time is at least half of the route's timeout for a request, or of that for an attempt if it is
/// shorter.
fn has_fair_time(exchange: &Exchange, due: Option<Due>, now: Millis) -> bool {
    let Some(due) = due else { return true };
    let decision = &exchange.decision;
    let of_request = decision
        .rule()
        .and_then(|rule| rule.action.route.request_timeout_ms);
    let limits = [of_request.filter(|ms| *ms > 0), decision.attempt_ms];
    let given = limits.into_iter().flatten().min();
    // Without a timeout in the current route, the deadline is left from an earlier configuration, so no fair time is
    // assumed.
    given.is_some_and(|given| due.ms().saturating_sub(now) >= given / 2)
}

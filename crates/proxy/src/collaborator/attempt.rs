//! One try to have a request answered by an endpoint.

use super::exchange::Exchange;
use crate::clock::{Clock, Due, Millis};
use crate::upstream::Lease;
use heddle_model::Balancer;

/// What belongs to one try, and to no other.
pub(super) struct Attempt {
    pub(super) lease: Lease,
    /// When it must be over; never later than the request.
    pub(super) due: Option<Due>,
    /// When it began, in microseconds after the request, where latencies are measured.
    pub(super) began_us: Option<u32>,
    /// Whether it began with a fair part of the time that the route gives it: if not, that time ran out says nothing
    /// about the endpoint.
    pub(super) has_fair_time: bool,
    /// Whether the request went out over a pooled connection, which the endpoint may have closed
    /// while it was on its way.
    pub(super) reused: bool,
    /// The endpoint takes no more of the request's body, though it may still answer.
    pub(super) upload_broken: bool,
    /// Whether the endpoint will take another request on this connection.
    pub(super) reuse_upstream: bool,
    /// Whether the answer came through another node, which has taken out what only nodes say.
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

    /// The end of a wait that may last until `by`, or of the attempt where that is sooner.
    pub(super) fn at_most(&self, by: Millis) -> Millis {
        self.due.map_or(by, |due| by.min(due.ms()))
    }

    /// Whether its time is over.
    pub(super) fn is_late(&self, clock: &Clock) -> bool {
        self.due.is_some_and(|due| clock.now_ms() >= due.ms())
    }
}

/// Whether what is left of the time is at least half of what the route gives a request, or an attempt where that is
/// less.
fn has_fair_time(exchange: &Exchange, due: Option<Due>, now: Millis) -> bool {
    let Some(due) = due else { return true };
    let decision = &exchange.decision;
    let of_request = decision
        .rule()
        .and_then(|rule| rule.action.route.request_timeout_ms);
    let limits = [of_request.filter(|ms| *ms > 0), decision.attempt_ms];
    let given = limits.into_iter().flatten().min();
    // What is left of a route's time that is none any more was never given to an endpoint.
    given.is_some_and(|given| due.ms().saturating_sub(now) >= given / 2)
}

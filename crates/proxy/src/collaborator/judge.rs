//! Judges endpoints by their responses and failures, and decides about retries. This is the only place that does so, by
//! the settings of the Service and the route.
//!
//! For a Service without such settings, only its requests are counted, for the retry budget.

use heddle_wire::http1::{FieldKind, REJECTS, ResponseHead};

use super::Connection;
use super::attempt::Attempt;
use super::exchange::Exchange;
use crate::balance::Ewma;
use crate::failure::{Blame, Failure, Reason, Retry};
use crate::route::Cluster;
use crate::upstream::{MAX_ATTEMPTS, Upstream};
use crate::worker::Scratch;

impl Connection {
    /// Counts a request for the retry budget, before its first attempt.
    pub(super) fn count_request(&self, exchange: &Exchange) {
        let decision = &exchange.decision;
        if let Some(target) = decision.target {
            let now = self.worker.clock.now_ms();
            decision.bound.count_request(target, now);
        }
    }

    /// Judges a response by its head, which is parsed in the scratch. Another node may have answered in place of the
    /// endpoint, because it could not connect to it. Such an endpoint is avoided for a while, and the request may go to
    /// another one.
    ///
    /// # Errors
    /// The node's reason, if the request may be retried.
    pub(super) fn judge(
        &self,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &Upstream,
        head_bytes: usize,
    ) -> Result<(), Failure> {
        exchange.response.refused_there = None;
        attempt.from_node = upstream.side.is_to_node();
        if !attempt.from_node {
            return Ok(());
        }
        let Scratch {
            response, linear, ..
        } = &mut *self.worker.scratch.borrow_mut();
        if response.status < 400 {
            return Ok(());
        }
        let buf = upstream.side.inbox.contiguous(head_bytes, linear);
        exchange.response.refused_there = refused_there(response, buf);
        let reason = exchange.response.refused_there;
        let Some(reason) = reason.filter(|reason| reason.is_safe_to_retry()) else {
            return Ok(());
        };
        let failure = Failure::from(reason);
        let (now, detail) = (self.worker.clock.now_ms(), failure.detail());
        let endpoint = attempt.lease.endpoint();
        self.worker.upstreams.failed(endpoint, now, &detail);
        match self.may_retry(exchange, attempt, &failure) {
            true => Err(failure),
            false => Ok(()),
        }
    }

    /// Records that a response has begun.
    pub(super) fn observe(&self, exchange: &Exchange, attempt: &Attempt) {
        let by_another_node = exchange.response.refused_there.map(Failure::from);
        if by_another_node.is_none() {
            self.worker.upstreams.reached(attempt.lease.endpoint());
        }
        let Some(cluster) = exchange.decision.cluster() else {
            return;
        };
        let status = exchange.response.status;
        let blame = by_another_node.map(|failure| failure.blame());
        match blame {
            // The other node refused for a reason that says nothing about the endpoint.
            Some(Blame::Heddle | Blame::Downstream) => {}
            None if status.is_none_or(|status| status < 500) => {
                self.observe_latency(exchange, attempt, Ewma::observe);
            }
            _ => self.observe_latency(exchange, attempt, Ewma::observe_failure),
        }
        let (Some(rooms), Some(permit)) = (&cluster.rooms, attempt.lease.permit()) else {
            return;
        };
        match blame {
            Some(Blame::Upstream | Blame::Node) => self.endpoint_failed(cluster, attempt),
            Some(Blame::Heddle | Blame::Downstream) => {}
            None if status.is_some_and(|status| rooms.is_failure(status)) => {
                self.endpoint_failed(cluster, attempt);
            }
            None => permit.room().succeeded(),
        }
    }

    /// Records that an attempt has failed. `Ok` if another attempt is allowed.
    ///
    /// # Errors
    /// The failure, if no other attempt is allowed: an endpoint may have received the request already, the limit of
    /// attempts is reached, or the retry budget is used up.
    pub(super) fn attempt_failed(
        &self,
        exchange: &Exchange,
        attempt: &Attempt,
        failure: Failure,
    ) -> Result<(), Failure> {
        self.observe_failure(exchange, attempt, &failure);
        if !self.may_retry(exchange, attempt, &failure) {
            return Err(failure);
        }
        let decision = &exchange.decision;
        let target = decision.target.ok_or(failure)?;
        let (now, workers) = (self.worker.clock.now_ms(), self.worker.upstreams.workers());
        if !decision.bound.take_retry(target, now, workers) {
            self.worker.stats.upstream_retries_refused.inc();
            return Err(failure);
        }
        self.worker.stats.upstream_retries.inc();
        Ok(())
    }

    fn may_retry(&self, exchange: &Exchange, attempt: &Attempt, failure: &Failure) -> bool {
        exchange.attempts < MAX_ATTEMPTS
            && exchange.response.status.is_none()
            && exchange.request.is_held()
            && match failure.retry() {
                // If the client or another node has chosen the endpoint, there is no other one to try.
                Retry::Safe => !self.door.is_fixed(),
                // The connection was a reused one, so most likely the endpoint never received the request; and the
                // request's method is idempotent (RFC 9110 section 9.2.2).
                Retry::IfIdempotent => {
                    let is_unseen = attempt.reused && exchange.response.interim == 0;
                    is_unseen && exchange.request.method.is_idempotent()
                }
                Retry::Never => false,
            }
    }

    /// Counts a failure against the endpoint, if the endpoint caused it.
    pub(super) fn observe_failure(
        &self,
        exchange: &Exchange,
        attempt: &Attempt,
        failure: &Failure,
    ) {
        let Some(cluster) = exchange.decision.cluster() else {
            return;
        };
        if !is_endpoints(failure.reason) {
            return;
        }
        // The endpoint may have closed an idle connection while the request was on its way.
        let is_reset = matches!(failure.reason, Reason::UpstreamReset | Reason::NodeReset);
        if is_reset && attempt.reused {
            return;
        }
        if failure.reason == Reason::RequestTimeout && !self.is_late_itself(exchange, attempt) {
            return;
        }
        self.observe_latency(exchange, attempt, Ewma::observe_failure);
        let (Some(rooms), Some(permit)) = (&cluster.rooms, attempt.lease.permit()) else {
            return;
        };
        let (endpoint, now) = (attempt.lease.endpoint(), self.worker.clock.now_ms());
        let avoided_for = endpoint.avoided_for(now);
        let avoided_for = avoided_for.max(self.worker.away_for(endpoint, now));
        if avoided_for > 0 {
            // Informs the other Workers, too.
            let now = rooms.ms(self.worker.clock.now());
            permit.room().shut(now.saturating_add(avoided_for));
        }
        self.endpoint_failed(cluster, attempt);
    }

    /// Whether the endpoint caused the request's timeout: it had a fair part of the time, and at the end the proxy was
    /// not waiting for the client, neither to send nor to read.
    fn is_late_itself(&self, exchange: &Exchange, attempt: &Attempt) -> bool {
        // A request whose bytes are all still in the inbox is waiting for the connection, not for the client.
        let request = &exchange.request;
        let has_request = request.upload.is_done() || attempt.upload_broken || request.is_held();
        let waits_for_client = exchange.response.download.waits_for(&self.client);
        attempt.has_fair_time && has_request && !waits_for_client
    }

    fn endpoint_failed(&self, cluster: &Cluster, attempt: &Attempt) {
        let (Some(rooms), Some(permit)) = (&cluster.rooms, attempt.lease.permit()) else {
            return;
        };
        let now = rooms.ms(self.worker.clock.now());
        if let Some(for_ms) = rooms.failed(permit.room(), now) {
            self.worker.stats.upstream_ejections.inc();
            let endpoint = &attempt.lease.endpoint().label;
            tracing::warn!(
                %endpoint, for_ms,
                "an endpoint is left out for a while: it failed too often in a row"
            );
        }
    }

    /// Records the attempt's latency, if the balancer uses it.
    fn observe_latency(
        &self,
        exchange: &Exchange,
        attempt: &Attempt,
        observe: fn(Ewma, u64, u64) -> Ewma,
    ) {
        let Some(began_us) = attempt.began_us else {
            return;
        };
        let clock = &self.worker.clock;
        let took = exchange.request.since_us(clock).saturating_sub(began_us);
        let latency = &attempt.lease.endpoint().latency;
        latency.set(observe(latency.get(), u64::from(took), clock.now_us()));
    }
}

/// Whether a failure with this reason was caused by the endpoint or its node.
fn is_endpoints(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ConnectFailed
            | Reason::ConnectTimeout
            | Reason::NodeConnectFailed
            | Reason::NodeConnectTimeout
            | Reason::UpstreamReset
            | Reason::NodeReset
            | Reason::UpstreamMalformed
            | Reason::UpstreamTruncated
            | Reason::UpstreamSwitched
            | Reason::UpstreamStalled
            | Reason::ResponseTimeout
            | Reason::RequestTimeout
            | Reason::StreamIdle
    )
}

/// The reason why another node has answered in place of the endpoint, if it gives one.
fn refused_there(response: &ResponseHead, buf: &[u8]) -> Option<Reason> {
    let mut fields = response.fields.iter();
    let said = fields.find(|field| field.kind == FieldKind::HeddleReason)?;
    let code = said.value.of(buf);
    Reason::from_code(code).or_else(|| {
        // The codec's refusals have their own codes. With status 502, the codec refused a response.
        let mut codes = REJECTS.iter().map(|reject| reject.code.as_bytes());
        codes
            .any(|known| known == code)
            .then_some(match response.status {
                502 => Reason::UpstreamMalformed,
                _ => Reason::Malformed,
            })
    })
}

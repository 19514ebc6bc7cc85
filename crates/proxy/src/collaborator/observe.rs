//! What an attempt shows about its endpoint, and whether there may be another.
//!
//! Nothing is done here for a Service that says nothing about its endpoints, but that its requests are counted
//! for the retry budget.

use super::Connection;
use super::exchange::Exchange;
use crate::balance::Ewma;
use crate::failure::{Blame, Failure, Reason};
use crate::route::Cluster;
use crate::upstream::Lease;
use heddle_model::Balancer;

impl Connection {
    /// A request is to be sent, for the first time.
    pub(super) fn count_request(&self, exchange: &Exchange) {
        if let Some(target) = exchange.target {
            exchange
                .bound
                .count_request(target, self.worker.clock.now_ms());
        }
    }

    /// An endpoint was chosen and will be sent the request.
    pub(super) fn attempt_begins(&self, exchange: &mut Exchange) {
        exchange.has_fair_time = exchange.has_fair_time_left(self.worker.clock.now_ms());
        if cluster(exchange).is_some_and(|cluster| cluster.balancer == Balancer::PeakEwma) {
            exchange.sent_after_us = self.since_us(exchange);
        }
    }

    /// An answer was begun, or turned out to be none.
    pub(super) fn observe(
        &self,
        exchange: &Exchange,
        begun: Result<(), Failure>,
    ) -> Result<(), Failure> {
        if let Err(failure) = &begun {
            self.observe_failure(exchange, failure);
            return begun;
        }
        if let Some(lease) = &exchange.lease
            && exchange.refused_there.is_none()
        {
            self.worker.upstreams.reached(lease.endpoint());
        }
        let (Some(cluster), Some(lease)) = (cluster(exchange), &exchange.lease) else {
            return begun;
        };
        if cluster.balancer == Balancer::PeakEwma {
            self.observe_latency(exchange, lease, Ewma::observe);
        }
        let (Some(rooms), Some(permit)) = (&cluster.rooms, lease.permit()) else {
            return begun;
        };
        let by_another_node = exchange.refused_there.map(Failure::from);
        match by_another_node.map(|failure| failure.blame()) {
            Some(Blame::Upstream | Blame::Node) => self.endpoint_failed(exchange),
            // The other node has its own reasons, which say nothing about the endpoint.
            Some(Blame::Heddle | Blame::Downstream) => {}
            None if rooms.is_failure(exchange.status) => self.endpoint_failed(exchange),
            None => permit.room().succeeded(),
        }
        begun
    }

    /// An attempt has failed. Returns when another may be made.
    ///
    /// # Errors
    /// When none may: the request would be sent to an endpoint that may have it already, has been sent often
    /// enough, or too many others have.
    pub(super) fn attempt_failed(
        &self,
        exchange: &mut Exchange,
        failure: Failure,
    ) -> Result<(), Failure> {
        self.observe_failure(exchange, &failure);
        if !self.may_retry(exchange, &failure) {
            return Err(failure);
        }
        // Until another begins no endpoint has any time: what runs out then is not the last endpoint's fault.
        exchange.has_fair_time = false;
        let target = exchange.target.ok_or(failure)?;
        let (now, workers) = (self.worker.clock.now_ms(), self.worker.upstreams.workers());
        if !exchange.bound.take_retry(target, now, workers) {
            self.worker.stats.upstream_retries_refused.inc();
            return Err(failure);
        }
        self.worker.stats.upstream_retries.inc();
        Ok(())
    }

    /// What a failure says about the endpoint, if it was the endpoint's.
    pub(super) fn observe_failure(&self, exchange: &Exchange, failure: &Failure) {
        let (Some(cluster), Some(lease)) = (cluster(exchange), &exchange.lease) else {
            return;
        };
        if !is_endpoints(failure.reason) {
            return;
        }
        // A connection that was kept may have been closed while the request was on its way.
        let is_reset = matches!(failure.reason, Reason::UpstreamReset | Reason::NodeReset);
        if is_reset && exchange.reused {
            return;
        }
        if failure.reason == Reason::RequestTimeout && !self.is_late_itself(exchange) {
            return;
        }
        if cluster.balancer == Balancer::PeakEwma {
            self.observe_latency(exchange, lease, Ewma::observe_failure);
        }
        let (Some(rooms), Some(permit)) = (&cluster.rooms, lease.permit()) else {
            return;
        };
        let (endpoint, now) = (lease.endpoint(), self.worker.clock.now_ms());
        let avoided_for = endpoint.avoided_for(now);
        let avoided_for = avoided_for.max(self.worker.away_for(endpoint, now));
        if avoided_for > 0 {
            // The other Workers need not find out for themselves.
            let now = rooms.ms(self.worker.clock.now());
            permit.room().shut(now.saturating_add(avoided_for));
        }
        self.endpoint_failed(exchange);
    }

    /// Whether it is the endpoint for which the request's time ran out: it had a fair part of it, and at the end
    /// the proxy did not wait for the client, neither to send nor to read.
    fn is_late_itself(&self, exchange: &Exchange) -> bool {
        // A head that was not sent yet, and the body behind it, wait for the connection.
        let has_request =
            exchange.upload.is_done() || exchange.upload_broken || !exchange.head_taken;
        exchange.has_fair_time && has_request && !exchange.download.waits_for(&self.client)
    }

    fn endpoint_failed(&self, exchange: &Exchange) {
        let (Some(cluster), Some(lease)) = (cluster(exchange), &exchange.lease) else {
            return;
        };
        let (Some(rooms), Some(permit)) = (&cluster.rooms, lease.permit()) else {
            return;
        };
        let now = rooms.ms(self.worker.clock.now());
        if let Some(for_ms) = rooms.failed(permit.room(), now) {
            self.worker.stats.upstream_ejections.inc();
            let endpoint = &lease.endpoint().label;
            tracing::warn!(
                %endpoint, for_ms,
                "an endpoint is left out for a while: it failed too often in a row"
            );
        }
    }

    fn observe_latency(
        &self,
        exchange: &Exchange,
        lease: &Lease,
        observe: fn(Ewma, u64, u64) -> Ewma,
    ) {
        let took = self
            .since_us(exchange)
            .saturating_sub(exchange.sent_after_us);
        let latency = &lease.endpoint().latency;
        let now = self.worker.clock.now_us();
        latency.set(observe(latency.get(), u64::from(took), now));
    }

    fn since_us(&self, exchange: &Exchange) -> u32 {
        let now = self.worker.clock.now();
        let since = now.saturating_duration_since(exchange.started);
        u32::try_from(since.as_micros()).unwrap_or(u32::MAX)
    }
}

/// The endpoints that a request goes to.
fn cluster(exchange: &Exchange) -> Option<&Cluster> {
    let target = exchange.target?;
    Some(&exchange.bound.snapshot.port(target).cluster)
}

/// Whether there is another endpoint than the one that was chosen.
pub(super) fn has_choice(exchange: &Exchange) -> bool {
    cluster(exchange).is_some_and(|cluster| cluster.endpoints.len() > 1)
}

/// Whether a failure is one of the endpoint that the request was sent to.
fn is_endpoints(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ConnectFailed
            | Reason::ConnectTimeout
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

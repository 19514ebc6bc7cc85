//! Counts and logs a request once, at its end.

use std::sync::Arc;

use heddle_telemetry::{Collapse, HttpLabels, Record};

use super::Connection;
use super::exchange::Exchange;
use crate::entry::Entry;
use crate::failure::{Failure, Reason};
use crate::traffic::Traffic;
use crate::worker::RequestKey;

/// The destination of requests that name no Service of the mesh.
const UNKNOWN: &str = "unknown";

impl Connection {
    /// Finishes the request, which succeeded or ended with `failure`. Takes the exchange, so that none is counted
    /// twice.
    #[expect(clippy::needless_pass_by_value, reason = "what was finished is gone")]
    pub(super) fn finish(&mut self, exchange: Exchange, failure: Option<Failure>) {
        self.worker.stats.requests_active.dec();
        // The clock was read when this piece of work began; since then, the work was only to send.
        let clock = &self.worker.clock;
        let duration_us = clock.now_us().saturating_sub(exchange.request.started_us);
        let (request_bytes, response_bytes) = (
            exchange.request.upload.bytes(),
            exchange.response.download.bytes(),
        );
        let bound = &exchange.decision.bound;
        let snapshot = &bound.snapshot;
        // A request that could not be parsed counts for the Service of its listener.
        let port = exchange.decision.port;
        let port = port.or_else(|| snapshot.port_of(&self.door.entry));
        let traffic = Traffic {
            door: &self.door,
            endpoint: exchange.chosen.as_deref(),
            lazy: exchange.request.asserted.lazy(),
        };
        let key = RequestKey {
            traffic: traffic.key(),
            port: port.map_or(u32::MAX, |port| port.number()),
            rule: exchange.decision.rule,
        };
        let status = exchange.response.status.unwrap_or(0);
        let service = || {
            port.map_or_else(
                || UNKNOWN.into(),
                |port| Arc::clone(&snapshot.port(port).label),
            )
        };
        let ask = |detail| {
            let labels = HttpLabels {
                traffic: traffic.labels(&snapshot.guards, &service()),
                route: exchange
                    .decision
                    .rule()
                    .map_or_else(|| "".into(), |rule| Arc::clone(&rule.label)),
            };
            self.worker.registry.http_series(labels.with(detail))
        };
        // The other node counts it as `destination`, this one as `source`.
        let there = exchange.response.refused_there.map(Failure::from);
        let counted = failure.or(there);
        let limit = self.worker.series_limit;
        bound.series.with(key, limit, ask, |series| {
            series.record(status, duration_us, request_bytes, response_bytes);
            if let Some(failure) = counted {
                series.reject(Reason::CODES, failure.reason.index());
            }
        });

        let Some(log) = self.worker.access_log() else {
            return;
        };
        let blame = match (failure, there) {
            (Some(failure), _) => failure.blame().as_str(),
            (None, Some(there)) => there.blame().of_another_node().as_str(),
            (None, None) => "",
        };
        let called: Arc<str> = match (&self.door.entry, port) {
            (Entry::Service { service, .. }, None) => service.to_string().into(),
            (Entry::Inbound(inbound), None) => inbound.service.to_string().into(),
            (_, None) => "".into(),
            (_, Some(port)) => Arc::clone(&snapshot.port(port).label),
        };
        let principal = traffic.principal(&snapshot.guards);
        let workload = traffic.workload(&called);
        log.borrow_mut().record(&Record {
            unix_ms: self.worker.clock.unix_ms(exchange.request.started_us),
            reporter: traffic.reporter(),
            source: &self.door.source,
            source_principal: principal.map_or("", |principal| principal),
            client: self.address,
            destination_service: &called,
            destination_workload: workload.as_deref().unwrap_or_default(),
            tls: traffic.tls(),
            route: exchange.decision.rule().map_or("", |rule| &rule.label),
            protocol: match exchange.request.http10 {
                true => "http/1.0",
                false => "http/1.1",
            },
            authority: &self.shown.authority,
            method: &self.shown.method,
            path: &self.shown.path,
            status,
            reason: counted.map_or("ok", |failure| failure.code()),
            blame,
            duration_us,
            upstream: exchange.tried.as_ref().map(|endpoint| endpoint.address),
            request_bytes,
            response_bytes,
            attempts: exchange.attempts,
        });
        self.shown.clear();
    }
}

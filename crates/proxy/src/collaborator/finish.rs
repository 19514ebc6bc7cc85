//! Counting and logging a request, once, when it is over.

use std::sync::Arc;

use heddle_telemetry::{HttpLabels, Record};

use super::Connection;
use super::exchange::Exchange;
use crate::entry::Entry;
use crate::failure::Failure;
use crate::worker::SeriesKey;

/// The destination of requests that named no Service of the mesh.
const UNKNOWN: &str = "unknown";

impl Connection {
    /// The request is over, well or with `failure`. Takes the exchange, so that none is counted twice.
    #[expect(clippy::needless_pass_by_value, reason = "what was finished is gone")]
    pub(super) fn finish(&mut self, exchange: Exchange, failure: Option<Failure>) {
        let stats = &self.worker.stats;
        stats.requests_active.dec();
        if let Some(failure) = failure {
            stats.requests_rejected.inc(failure.reason.index());
        }
        // The clock was read when this piece of work began; what it did since then was to send.
        let clock = &self.worker.clock;
        let duration_us = clock.now_us().saturating_sub(exchange.request.started_us);
        let (request_bytes, response_bytes) = (
            exchange.request.upload.bytes(),
            exchange.response.download.bytes(),
        );
        let snapshot = &exchange.decision.bound.snapshot;
        // What could not be understood was meant for the Service whose listener it came to.
        let port = exchange.decision.port;
        let port = port.or_else(|| snapshot.port_of(&self.door.entry));
        let key = SeriesKey {
            source: self.key.0,
            port: port.map_or(u32::MAX, |port| port.number()),
            rule: exchange.decision.rule,
        };
        exchange
            .decision
            .bound
            .series(key, &self.worker.registry, || HttpLabels {
                source: Arc::clone(&self.door.source),
                destination_service: port.map_or_else(
                    || UNKNOWN.into(),
                    |port| Arc::clone(&snapshot.port(port).label),
                ),
                route: exchange
                    .decision
                    .rule()
                    .map_or_else(|| "".into(), |rule| Arc::clone(&rule.label)),
            })
            .record(
                exchange.response.status.unwrap_or(0),
                duration_us,
                request_bytes,
                response_bytes,
            );

        let Some(log) = &self.worker.log else { return };
        let there = exchange.response.refused_there.map(Failure::from);
        let blame = match (failure, there) {
            (Some(failure), _) => failure.blame().as_str(),
            (None, Some(there)) => there.blame().of_another_node().as_str(),
            (None, None) => "",
        };
        let failure = failure.or(there);
        let gone = match (&self.door.entry, port) {
            (Entry::Service { service, .. }, None) => service.to_string(),
            (Entry::Inbound(inbound), None) => inbound.service.to_string(),
            _ => String::new(),
        };
        log.borrow_mut().record(&Record {
            unix_ms: self.worker.clock.unix_ms(exchange.request.started_us),
            source: &self.door.source,
            destination_service: port.map_or(&*gone, |port| &snapshot.port(port).label),
            route: exchange.decision.rule().map_or("", |rule| &rule.label),
            method: &self.shown.method,
            path: &self.shown.path,
            status: exchange.response.status.unwrap_or(0),
            reason: failure.map_or("ok", |failure| failure.code()),
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

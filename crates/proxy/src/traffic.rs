//! The two ends of a request or a flow, as metrics and the access log name them.

use std::net::SocketAddr;
use std::sync::Arc;

use heddle_telemetry::{Reporter, Tls, TrafficLabels};

use crate::authorize::Guards;
use crate::authorize::claims::LazyCaller;
use crate::door::Door;
use crate::entry::{Direct, Entry, What};
use crate::place::Way;
use crate::upstream::Endpoint;

/// The listener of the caller, and the endpoint that was chosen, if any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic<'a> {
    pub(crate) door: &'a Door,
    pub(crate) endpoint: Option<&'a Endpoint>,
    /// The caller in whose name a gateway has forwarded it.
    pub(crate) lazy: Option<&'a LazyCaller>,
}

/// The numbers that distinguish the labels of one kind of traffic from others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TrafficKey {
    source: u64,
    endpoint: u32,
    reporter: Reporter,
    tls: Tls,
}

impl TrafficKey {
    /// The key of all traffic with this reporter and TLS state.
    pub(crate) fn without_ends(self) -> Self {
        TrafficKey {
            source: 0,
            endpoint: 0,
            ..self
        }
    }
}

impl Traffic<'_> {
    pub(crate) fn key(&self) -> TrafficKey {
        // Both are keyed hashes.
        let lazy = self.lazy.map_or(0, |lazy| lazy.source_id);
        TrafficKey {
            source: self.door.source_id ^ lazy,
            endpoint: self
                .endpoint
                .filter(|endpoint| endpoint.workload().is_some())
                .map_or(0, |endpoint| endpoint.id),
            reporter: self.reporter(),
            tls: self.tls(),
        }
    }

    /// The labels for a call of this Service, by the present configuration.
    pub(crate) fn labels(&self, guards: &Guards, service: &Arc<str>) -> TrafficLabels {
        TrafficLabels {
            reporter: self.reporter(),
            source: Arc::clone(&self.door.source),
            source_principal: self.principal(guards).map_or_else(|| "".into(), Arc::clone),
            destination_service: Arc::clone(service),
            destination_workload: self.workload(service).unwrap_or_else(|| "".into()),
            tls: self.tls(),
        }
    }

    /// The identity of the caller.
    pub(crate) fn principal<'a>(&'a self, guards: &'a Guards) -> Option<&'a Arc<str>> {
        match self.lazy {
            Some(lazy) => Some(&lazy.text),
            None => guards.principal(self.door),
        }
    }

    /// The workload behind the endpoint, in a call of this Service.
    pub(crate) fn workload(&self, service: &Arc<str>) -> Option<Arc<str>> {
        match &self.door.entry {
            // A port that belongs to no Service is named after its workload.
            Entry::Direct(Direct {
                what: What::Workload(_),
                ..
            }) => Some(Arc::clone(service)),
            _ => self.endpoint?.workload().clone(),
        }
    }

    pub(crate) fn reporter(&self) -> Reporter {
        match &self.door.entry {
            Entry::Inbound(_) | Entry::Arriving { .. } => Reporter::Destination,
            Entry::Direct(direct) if direct.caller.is_none() => Reporter::Destination,
            Entry::Direct(direct) if direct.workload().is_some() => Reporter::Both,
            _ => match self.endpoint {
                Some(endpoint) if endpoint.place.sees_caller() => Reporter::Source,
                Some(endpoint) if endpoint.workload().is_some() => Reporter::Both,
                // No endpoint was chosen, or it does not belong to the mesh.
                _ => Reporter::Source,
            },
        }
    }

    /// Whether the traffic has mutual TLS between nodes, or with an endpoint's Envoy.
    pub(crate) fn tls(&self) -> Tls {
        match (&self.door.entry, self.endpoint.map(|one| &one.place.way)) {
            (Entry::Inbound(_) | Entry::Forwarded(_), _) | (_, Some(Way::Through(_))) => {
                Tls::Mutual
            }
            // A caller without an identity calls an Envoy in cleartext.
            (entry, Some(Way::Envoy(_))) if entry.caller().is_some() => Tls::Mutual,
            _ => Tls::None,
        }
    }
}

/// The addresses that the log shows of a flow beside its traffic: its client, and its endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowEnds<'a> {
    pub(crate) traffic: Traffic<'a>,
    pub(crate) client: SocketAddr,
    pub(crate) upstream: Option<SocketAddr>,
}

impl<'a> FlowEnds<'a> {
    /// The ends of a flow to an endpoint, if one was tried.
    pub(crate) fn new(door: &'a Door, client: SocketAddr, endpoint: Option<&'a Endpoint>) -> Self {
        FlowEnds {
            traffic: Traffic {
                door,
                endpoint,
                lazy: None,
            },
            client,
            upstream: endpoint.map(|endpoint| endpoint.address),
        }
    }
}

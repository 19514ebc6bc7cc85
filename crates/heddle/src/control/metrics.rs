//! The metrics of a control plane. No label names a node: there may be thousands.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use heddle_control::Counters;
use heddle_telemetry::exposition::{DescriptorEncoder, counter, counters, gauge, gauges};
use heddle_telemetry::families::{Family, control, process};

use super::door::Door;
use crate::order::{ControlStatus, RootStage};

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    status: &ControlStatus,
    counts: &Counters,
    door: &Door,
) -> fmt::Result {
    let version = [([("version", status.version.as_str())], 1_u64)];
    gauges(encoder, &process::BUILD_INFO, version)?;
    levels(encoder, status, door)?;
    events(encoder, counts)?;
    if let Some(registry) = &status.registry {
        registry.encode(encoder)?;
    }
    let refused = door.refused();
    let refused = refused.map(|(reason, count)| ([("reason", reason)], count));
    counters(encoder, &control::HANDSHAKES_REFUSED, refused)?;
    let stages = [
        ("steady", RootStage::Steady),
        ("begun", RootStage::Begun),
        ("switched", RootStage::Switched),
    ];
    let stages = stages.map(|(label, stage)| {
        let is_there = status.root.stage == stage;
        ([("stage", label)], u64::from(is_there))
    });
    gauges(encoder, &control::ROTATION_STAGE, stages)
}

fn levels(encoder: &mut DescriptorEncoder<'_>, status: &ControlStatus, door: &Door) -> fmt::Result {
    let config = &status.config;
    let present = status.nodes.iter().filter(|node| node.address.is_some());
    let envoys = status.envoys.iter();
    let envoys = envoys.filter(|envoy| envoy.connected_s.is_some());
    let gateways = status.gateways.iter().filter(|gateway| gateway.connected);
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    for (family, value) in [
        (&process::READY, u64::from(status.ready)),
        (&process::CONFIG_GENERATION, config.generation),
        (&process::CONFIG_STALE, u64::from(config.stale)),
        (&process::CONFIG_PROBLEMS, count(config.problems.len())),
        (&control::MESH_GENERATION, status.mesh_generation),
        (&control::NODES, count(present.count())),
        (&control::ENVOYS, count(envoys.count())),
        (&control::ENVOYS_KNOWN, count(status.envoys.len())),
        (&control::GATEWAYS, count(gateways.count())),
        (&control::GATEWAYS_KNOWN, count(status.gateways.len())),
        (&control::NODES_KNOWN, count(status.root.nodes)),
        (
            &control::NODES_UNCONFIRMED,
            count(status.root.waits_for.len()),
        ),
        (&control::BUNDLE_GENERATION, status.root.generation),
        (&control::ISSUER_EXPIRY, status.root.expires),
        (&control::CERTIFICATE_EXPIRY, door.not_after()),
        (&control::JOIN_TOKENS, count(status.tokens)),
        (&control::DENIED, count(status.denied)),
    ] {
        gauge(encoder, family, value)?;
    }
    config.encode_refused(encoder)
}

fn events(encoder: &mut DescriptorEncoder<'_>, counts: &Counters) -> fmt::Result {
    let families: [(&Family, &AtomicU64); 20] = [
        (&control::CONNECTIONS, &counts.connections),
        (&control::CONNECTIONS_WAITED, &counts.connections_waited),
        (&control::HANDSHAKES_FAILED, &counts.handshakes_failed),
        (&control::UNIDENTIFIED_REFUSED, &counts.unidentified_refused),
        (&control::JOINS, &counts.joined),
        (&control::JOINS_REFUSED, &counts.joins_refused),
        (&control::JOINS_LIMITED, &counts.joins_limited),
        (&control::LEAVES_ISSUED, &counts.issued),
        (&control::LEAVES_REFUSED, &counts.issues_refused),
        (&control::MESHES_SENT, &counts.meshes_sent),
        (&control::RESOURCES_SENT, &counts.resources_sent),
        (&control::RESOURCE_BYTES_SENT, &counts.resource_bytes_sent),
        (&control::RESOURCES_REFUSED, &counts.resources_refused),
        (&control::ENVOY_RESOURCES_SENT, &counts.envoy_resources_sent),
        (
            &control::ENVOY_RESOURCE_BYTES_SENT,
            &counts.envoy_resource_bytes_sent,
        ),
        (
            &control::ENVOY_RESOURCES_REFUSED,
            &counts.envoy_resources_refused,
        ),
        (&control::ACCESSES_REPORTED, &counts.accesses_reported),
        (&control::DEPENDENCIES_LEARNED, &counts.dependencies_learned),
        (&control::DEPENDENCIES_DIRECT, &counts.dependencies_direct),
        (
            &control::DEPENDENCIES_FORGOTTEN,
            &counts.dependencies_forgotten,
        ),
    ];
    for (family, value) in families {
        counter(encoder, family, value.load(Relaxed))?;
    }
    let learning = Duration::from_millis(counts.learning_ms.load(Relaxed));
    counter(encoder, &control::LEARNING_SECONDS, learning.as_secs_f64())?;
    let sent = [
        ("direct", &counts.lazy_direct),
        ("gateway", &counts.lazy_by_gateway),
    ];
    let sent = sent.map(|(by, count)| ([("by", by)], count.load(Relaxed)));
    counters(encoder, &control::LAZY_SENT, sent)
}

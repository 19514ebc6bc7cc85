//! The metrics of a control plane. No label names a node: there may be thousands.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use heddle_control::Counters;
use heddle_telemetry::exposition::{DescriptorEncoder, counter, counters, gauge, gauges};

use super::door::Door;
use crate::order::{ControlStatus, RootStage};

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    status: &ControlStatus,
    counts: &Counters,
    door: &Door,
) -> fmt::Result {
    let version = [([("version", status.version.as_str())], 1_u64)];
    let help = "Always 1; the labels say what runs.";
    gauges(encoder, "heddle_build_info", help, version)?;
    levels(encoder, status, door)?;
    events(encoder, counts)?;
    if let Some(registry) = &status.registry {
        registry.encode(encoder)?;
    }
    let refused = door.refused();
    let refused = refused.map(|(reason, count)| ([("reason", reason)], count));
    let name = "heddle_control_handshakes_refused_total";
    let help = "Handshakes that were refused, by reason: a certificate that is not accepted, or a broken rule.";
    counters(encoder, name, help, refused)?;
    let stages = [
        ("steady", RootStage::Steady),
        ("begun", RootStage::Begun),
        ("switched", RootStage::Switched),
    ];
    let stages = stages.map(|(label, stage)| {
        let is_there = status.root.stage == stage;
        ([("stage", label)], u64::from(is_there))
    });
    let help = "Stage of a rotation of roots: 1 at the current stage.";
    gauges(encoder, "heddle_control_rotation_stage", help, stages)
}

fn levels(encoder: &mut DescriptorEncoder<'_>, status: &ControlStatus, door: &Door) -> fmt::Result {
    let config = &status.config;
    let present = status.nodes.iter().filter(|node| node.address.is_some());
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    for (name, help, value) in [
        (
            "heddle_ready",
            "Whether nodes can join and are told their part of the mesh.",
            u64::from(status.ready),
        ),
        (
            "heddle_config_generation",
            "Configuration in force.",
            config.generation,
        ),
        (
            "heddle_config_stale",
            "Whether the folder as it is now was refused and an older state is served.",
            u64::from(config.stale),
        ),
        (
            "heddle_config_problems",
            "Errors and warnings in the folder as it is now.",
            count(config.problems.len()),
        ),
        (
            "heddle_control_mesh_generation",
            "What nodes are told: the mesh, and which nodes there are, counted since the start.",
            status.mesh_generation,
        ),
        (
            "heddle_control_nodes",
            "Nodes that are connected and follow the mesh.",
            count(present.count()),
        ),
        (
            "heddle_control_nodes_known",
            "Nodes whose own certificate is good, connected or not.",
            count(status.root.nodes),
        ),
        (
            "heddle_control_nodes_unconfirmed",
            "Nodes that a rotation of roots waits for; 0 while there is none.",
            count(status.root.waits_for.len()),
        ),
        (
            "heddle_control_bundle_generation",
            "The roots that nodes are told to trust.",
            status.root.generation,
        ),
        (
            "heddle_control_issuer_expiry_timestamp_seconds",
            "When the root or intermediate expires that signs, in seconds since 1970.",
            status.root.expires,
        ),
        (
            "heddle_control_certificate_expiry_timestamp_seconds",
            "When the control plane's own certificate expires, in seconds since 1970.",
            door.not_after(),
        ),
        (
            "heddle_control_join_tokens",
            "Join tokens that were not used and have not expired.",
            count(status.tokens),
        ),
        (
            "heddle_control_denied",
            "Entries of the deny-list.",
            count(status.denied),
        ),
    ] {
        gauge(encoder, name, help, value)?;
    }
    Ok(())
}

fn events(encoder: &mut DescriptorEncoder<'_>, counts: &Counters) -> fmt::Result {
    let families: [(&str, &str, &AtomicU64); 10] = [
        (
            "heddle_control_connections_total",
            "Connections that were served.",
            &counts.connections,
        ),
        (
            "heddle_control_connections_waited_total",
            "Connections that waited for another one to end, because the connection limit was reached.",
            &counts.connections_waited,
        ),
        (
            "heddle_control_handshakes_failed_total",
            "Handshakes that failed: refused, broken off, or too slow.",
            &counts.handshakes_failed,
        ),
        (
            "heddle_control_unidentified_refused_total",
            "Connections without a certificate that were closed because there were too many.",
            &counts.unidentified_refused,
        ),
        (
            "heddle_control_joins_total",
            "Nodes that joined.",
            &counts.joined,
        ),
        (
            "heddle_control_joins_refused_total",
            "Attempts to join that were refused; the log has the reason.",
            &counts.joins_refused,
        ),
        (
            "heddle_control_joins_limited_total",
            "Attempts to join that were rejected unchecked, because too many had failed before.",
            &counts.joins_limited,
        ),
        (
            "heddle_control_leaves_issued_total",
            "Certificates that nodes were issued after they joined.",
            &counts.issued,
        ),
        (
            "heddle_control_leaves_refused_total",
            "Certificates that nodes were refused after they joined; the log has the reason.",
            &counts.issues_refused,
        ),
        (
            "heddle_control_meshes_sent_total",
            "Parts of the mesh that nodes were sent.",
            &counts.meshes_sent,
        ),
    ];
    for (name, help, value) in families {
        counter(encoder, name, help, value.load(Relaxed))?;
    }
    Ok(())
}

//! The metrics of a control plane. No label names a node: there may be thousands.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use heddle_control::Counters;
use heddle_telemetry::text::{Encoder, Kind};

use super::door::Door;
use crate::order::{ControlStatus, RootStage};

/// Appends them to the exposition.
pub(super) fn render(out: &mut String, status: &ControlStatus, counters: &Counters, door: &Door) {
    let mut encoder = Encoder::new(out);
    let name = "heddle_build_info";
    encoder.family(name, Kind::Gauge, "Always 1; the labels say what runs.");
    encoder.count(name, &[("version", &status.version)], 1);
    gauges(&mut encoder, status, door);
    counts(&mut encoder, counters);
    if let Some(registry) = &status.registry {
        registry.render(&mut encoder);
    }
    let name = "heddle_control_handshakes_refused_total";
    let help = "Handshakes that were refused, by reason: who is not believed, or broke the rules.";
    encoder.family(name, Kind::Counter, help);
    for (reason, count) in door.refused() {
        encoder.count(name, &[("reason", reason)], count);
    }
    let name = "heddle_control_rotation_stage";
    let help = "Where a rotation of roots stands: 1 at the stage it is at.";
    encoder.family(name, Kind::Gauge, help);
    for (label, stage) in [
        ("steady", RootStage::Steady),
        ("begun", RootStage::Begun),
        ("switched", RootStage::Switched),
    ] {
        let is_there = status.root.stage == stage;
        encoder.count(name, &[("stage", label)], u64::from(is_there));
    }
}

fn gauges(encoder: &mut Encoder<'_>, status: &ControlStatus, door: &Door) {
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
            "heddle_control_issuer_expires_seconds",
            "When the root or intermediate expires that signs, in seconds since 1970.",
            status.root.expires,
        ),
        (
            "heddle_control_certificate_expires_seconds",
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
        encoder.family(name, Kind::Gauge, help);
        encoder.count(name, &[], value);
    }
}

fn counts(encoder: &mut Encoder<'_>, counters: &Counters) {
    let families: [(&str, &str, &AtomicU64); 9] = [
        (
            "heddle_control_connections_total",
            "Connections that were served.",
            &counters.connections,
        ),
        (
            "heddle_control_handshakes_failed_total",
            "Handshakes that came to nothing: refused, broken off, or too slow.",
            &counters.handshakes_failed,
        ),
        (
            "heddle_control_unidentified_refused_total",
            "Connections without a certificate that were closed because there were too many.",
            &counters.unidentified_refused,
        ),
        (
            "heddle_control_joins_total",
            "Nodes that joined.",
            &counters.joined,
        ),
        (
            "heddle_control_joins_refused_total",
            "Attempts to join that were refused; the log has the reason.",
            &counters.joins_refused,
        ),
        (
            "heddle_control_joins_limited_total",
            "Attempts to join that were not looked at, because too many had failed before.",
            &counters.joins_limited,
        ),
        (
            "heddle_control_leaves_issued_total",
            "Certificates that nodes were issued after they joined.",
            &counters.issued,
        ),
        (
            "heddle_control_leaves_refused_total",
            "Certificates that they were not issued; the log has the reason.",
            &counters.issues_refused,
        ),
        (
            "heddle_control_meshes_sent_total",
            "Parts of the mesh that nodes were sent.",
            &counters.meshes_sent,
        ),
    ];
    for (name, help, value) in families {
        encoder.family(name, Kind::Counter, help);
        encoder.count(name, &[], value.load(Relaxed));
    }
}

//! The metrics of the process itself, beside those of its requests.

use heddle_intercept::hooks::FullTables;
use heddle_telemetry::process::Usage;
use heddle_telemetry::text::{Encoder, Kind};

use crate::status::{IdentityStatus, InterceptionStatus, ProcessStatus, Status};

/// Appends them to the exposition.
pub(super) fn render(out: &mut String, status: &Status, usage: Usage) {
    let mut encoder = Encoder::new(out);
    let name = "heddle_build_info";
    encoder.family(name, Kind::Gauge, "Always 1; the labels say what runs.");
    encoder.count(name, &[("version", &status.version)], 1);
    let config = &status.config;
    for (name, help, value) in [
        (
            "heddle_ready",
            "Whether requests are served as the manifests say.",
            u64::from(status.ready),
        ),
        (
            "heddle_connections_limit",
            "Connections from clients that there may be at a time.",
            status.connections_limit as u64,
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
            config.problems.len() as u64,
        ),
        (
            "heddle_listener_problems",
            "Listeners that could not be opened.",
            config.listener_problems.len() as u64,
        ),
    ] {
        encoder.family(name, Kind::Gauge, help);
        encoder.count(name, &[], value);
    }
    workloads(&mut encoder, status);
    if let Some(identity) = &status.identity {
        identities(&mut encoder, identity);
    }
    if let Some(registry) = &status.registry {
        registry.render(&mut encoder);
    }
    if let Some(interception) = &status.interception {
        pods(&mut encoder, interception);
    }
    usage.render(&mut encoder);
}

fn pods(encoder: &mut Encoder<'_>, status: &InterceptionStatus) {
    let name = "heddle_pods";
    let help = "Enrolled pods, by whether the proxy serves them.";
    encoder.family(name, Kind::Gauge, help);
    for (state, pods) in [("serving", status.serving), ("held", status.held)] {
        encoder.count(name, &[("state", state)], pods);
    }
    let name = "heddle_hook_tables_full_total";
    let help = "Connections for which a table of the hooks had no room.";
    encoder.family(name, Kind::Counter, help);
    let FullTables { handshakes, visits } = status.full;
    for (table, times) in [("handshakes", handshakes), ("visits", visits)] {
        encoder.count(name, &[("table", table)], times);
    }
}

/// Identities that have a series of their own.
const MAX_IDENTITIES: usize = 1_000;

fn identities(encoder: &mut Encoder<'_>, status: &IdentityStatus) {
    let name = "heddle_identity_expiry_timestamp_seconds";
    let help = "When the certificate of an identity expires, of a thousand identities at most.";
    encoder.family(name, Kind::Gauge, help);
    let held = status
        .identities
        .iter()
        .filter_map(|held| Some((held.spiffe_id.as_str(), held.not_after?)));
    for (id, not_after) in held.take(MAX_IDENTITIES) {
        encoder.count(name, &[("spiffe_id", id)], not_after);
    }
    for (name, kind, help, value) in [
        (
            "heddle_identity_renewals_total",
            Kind::Counter,
            "Certificates that took the place of others.",
            status.renewals,
        ),
        (
            "heddle_identity_renewal_failures_total",
            Kind::Counter,
            "Attempts to get a certificate that came to nothing.",
            status.renewal_failures,
        ),
        (
            "heddle_control_connected",
            Kind::Gauge,
            "Whether the control plane is reached.",
            u64::from(status.control.connected),
        ),
        (
            "heddle_clock_degraded",
            Kind::Gauge,
            "Whether the system's clock shows less than what was once certain.",
            u64::from(status.clock.degraded),
        ),
    ] {
        encoder.family(name, kind, help);
        encoder.count(name, &[], value);
    }
}

fn workloads(encoder: &mut Encoder<'_>, status: &Status) {
    let processes: Vec<(&str, &ProcessStatus)> = status
        .workloads
        .iter()
        .filter_map(|workload| Some((workload.name.as_str(), workload.process.as_ref()?)))
        .collect();
    let name = "heddle_workload_up";
    encoder.family(name, Kind::Gauge, "Whether the workload's process runs.");
    for (workload, process) in &processes {
        encoder.count(
            name,
            &[("workload", workload)],
            u64::from(process.pid.is_some()),
        );
    }
    let name = "heddle_workload_restarts_total";
    encoder.family(
        name,
        Kind::Counter,
        "Runs of the workload's process after the first.",
    );
    for (workload, process) in &processes {
        encoder.count(name, &[("workload", workload)], process.restarts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_tables_of_the_hooks_are_counted() {
        let mut text = String::new();
        let status = InterceptionStatus {
            holder_socket: "/x".into(),
            serving: 1,
            held: 0,
            full: FullTables {
                handshakes: 2,
                visits: 3,
            },
        };
        pods(&mut Encoder::new(&mut text), &status);
        for line in [
            "heddle_hook_tables_full_total{table=\"handshakes\"} 2\n",
            "heddle_hook_tables_full_total{table=\"visits\"} 3\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}

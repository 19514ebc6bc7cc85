//! The metrics of the process itself, beside those of its requests.

use std::fmt;

use heddle_intercept::hooks::FullTables;
use heddle_telemetry::exposition::{DescriptorEncoder, counter, counters, gauge, gauges};

use crate::status::{IdentityStatus, InterceptionStatus, ProcessStatus, Status};

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let version = [([("version", status.version.as_str())], 1_u64)];
    let help = "Always 1; the labels say what runs.";
    gauges(encoder, "heddle_build_info", help, version)?;
    let config = &status.config;
    for (name, help, value) in [
        (
            "heddle_ready",
            "Whether requests are served as the manifests say.",
            u64::from(status.ready),
        ),
        (
            "heddle_connections_limit",
            "Limit of client connections at a time.",
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
        gauge(encoder, name, help, value)?;
    }
    workloads(encoder, status)?;
    if let Some(identity) = &status.identity {
        identities(encoder, identity)?;
    }
    if let Some(registry) = &status.registry {
        registry.encode(encoder)?;
    }
    match &status.interception {
        Some(interception) => pods(encoder, interception),
        None => Ok(()),
    }
}

fn pods(encoder: &mut DescriptorEncoder<'_>, status: &InterceptionStatus) -> fmt::Result {
    let pods = [("serving", status.serving), ("held", status.held)];
    let pods = pods.map(|(state, pods)| ([("state", state)], pods));
    let help = "Enrolled pods, by whether the proxy serves them.";
    gauges(encoder, "heddle_pods", help, pods)?;
    let FullTables { handshakes, visits } = status.full;
    let full = [("handshakes", handshakes), ("visits", visits)];
    let full = full.map(|(table, times)| ([("table", table)], times));
    let help = "Connections for which a table of the hooks had no room.";
    counters(encoder, "heddle_hook_tables_full_total", help, full)
}

/// Most identities that have a series of their own.
const MAX_IDENTITIES: usize = 1_000;

fn identities(encoder: &mut DescriptorEncoder<'_>, status: &IdentityStatus) -> fmt::Result {
    let held = status.identities.iter().filter_map(|held| {
        let id = held.spiffe_id.as_str();
        Some(([("spiffe_id", id)], held.not_after?))
    });
    let name = "heddle_identity_expiry_timestamp_seconds";
    let help = "When the certificate of an identity expires, of a thousand identities at most.";
    gauges(encoder, name, help, held.take(MAX_IDENTITIES))?;
    counter(
        encoder,
        "heddle_identity_renewals_total",
        "Certificates that were renewed.",
        status.renewals,
    )?;
    counter(
        encoder,
        "heddle_identity_renewal_failures_total",
        "Requests for a certificate that failed.",
        status.renewal_failures,
    )?;
    gauge(
        encoder,
        "heddle_control_connected",
        "Whether the control plane is reached.",
        u64::from(status.control.connected),
    )?;
    gauge(
        encoder,
        "heddle_clock_degraded",
        "Whether the system's clock is behind the time floor.",
        u64::from(status.clock.degraded),
    )
}

fn workloads(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let all = status.workloads.iter();
    let processes: Vec<([(&str, &str); 1], &ProcessStatus)> = all
        .filter_map(|workload| {
            let labels = [("workload", workload.name.as_str())];
            Some((labels, workload.process.as_ref()?))
        })
        .collect();
    let up = processes.iter();
    let up = up.map(|(labels, process)| (*labels, u64::from(process.pid.is_some())));
    let help = "Whether the workload's process runs.";
    gauges(encoder, "heddle_workload_up", help, up)?;
    let restarts = processes.iter();
    let restarts = restarts.map(|(labels, process)| (*labels, process.restarts));
    let help = "Runs of the workload's process after the first.";
    counters(encoder, "heddle_workload_restarts_total", help, restarts)
}

#[cfg(test)]
mod tests {
    use heddle_telemetry::exposition;

    use super::*;

    #[test]
    fn full_tables_of_the_hooks_are_counted() {
        let status = InterceptionStatus {
            holder_socket: "/x".into(),
            serving: 1,
            held: 0,
            full: FullTables {
                handshakes: 2,
                visits: 3,
            },
        };
        let text = exposition::render(move |encoder| pods(encoder, &status));
        for line in [
            "heddle_hook_tables_full_total{table=\"handshakes\"} 2\n",
            "heddle_hook_tables_full_total{table=\"visits\"} 3\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}

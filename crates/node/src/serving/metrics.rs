//! The metrics of the process itself, beside those of its requests.

use std::fmt;

use heddle_intercept::hooks::FullTables;
use heddle_telemetry::exposition::{DescriptorEncoder, counter, counters, gauge, gauges};
use heddle_telemetry::families::{node, process, proxy};

use crate::status::{IdentityStatus, InterceptionStatus, ProcessStatus, Status};

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let version = [([("version", status.version.as_str())], 1_u64)];
    gauges(encoder, &process::BUILD_INFO, version)?;
    let config = &status.config;
    for (family, value) in [
        (&process::READY, u64::from(status.ready)),
        (&proxy::CONNECTIONS_LIMIT, status.connections_limit as u64),
        (&process::CONFIG_GENERATION, config.generation),
        (&process::CONFIG_STALE, u64::from(config.stale)),
        (&process::CONFIG_PROBLEMS, config.problems.len() as u64),
        (
            &node::LISTENER_PROBLEMS,
            config.listener_problems.len() as u64,
        ),
    ] {
        gauge(encoder, family, value)?;
    }
    status.config.encode_refused(encoder)?;
    workloads(encoder, status)?;
    if let Some(identity) = &status.identity {
        identities(encoder, identity)?;
    }
    if let Some(registry) = &status.registry {
        registry.encode(encoder)?;
    }
    if let Some(discovery) = &status.discovery {
        let learned = discovery.counts();
        let learned = learned.map(|(state, number)| ([("state", state)], number));
        gauges(encoder, &node::DISCOVERY_LEARNED, learned)?;
        counter(encoder, &node::DISCOVERY_ASKED, discovery.asked)?;
        counter(encoder, &node::DISCOVERY_FORGOTTEN, discovery.forgotten)?;
    }
    match &status.interception {
        Some(interception) => pods(encoder, interception),
        None => Ok(()),
    }
}

fn pods(encoder: &mut DescriptorEncoder<'_>, status: &InterceptionStatus) -> fmt::Result {
    let pods = [("serving", status.serving), ("held", status.held)];
    let pods = pods.map(|(state, pods)| ([("state", state)], pods));
    gauges(encoder, &node::PODS, pods)?;
    let FullTables { handshakes, visits } = status.full;
    let full = [("handshakes", handshakes), ("visits", visits)];
    let full = full.map(|(table, times)| ([("table", table)], times));
    counters(encoder, &node::HOOK_TABLES_FULL, full)
}

/// Most identities that have a series of their own.
const MAX_IDENTITIES: usize = 1_000;

fn identities(encoder: &mut DescriptorEncoder<'_>, status: &IdentityStatus) -> fmt::Result {
    let held = status.identities.iter().filter_map(|held| {
        let id = held.spiffe_id.as_str();
        Some(([("spiffe_id", id)], held.not_after?))
    });
    gauges(encoder, &node::IDENTITY_EXPIRY, held.take(MAX_IDENTITIES))?;
    counter(encoder, &node::IDENTITY_RENEWALS, status.renewals)?;
    counter(
        encoder,
        &node::IDENTITY_RENEWAL_FAILURES,
        status.renewal_failures,
    )?;
    gauge(
        encoder,
        &node::CONTROL_CONNECTED,
        u64::from(status.control.connected),
    )?;
    gauge(
        encoder,
        &node::CLOCK_DEGRADED,
        u64::from(status.clock.degraded),
    )?;
    gauge(encoder, &node::STATE_UNSAVED, u64::from(status.unsaved))
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
    gauges(encoder, &node::WORKLOAD_UP, up)?;
    let restarts = processes.iter();
    let restarts = restarts.map(|(labels, process)| (*labels, process.restarts));
    counters(encoder, &node::WORKLOAD_RESTARTS, restarts)
}

#[cfg(test)]
mod tests {
    use heddle_telemetry::exposition;

    use super::*;

    #[test]
    fn a_state_folder_that_cannot_be_written_is_shown() {
        for unsaved in [false, true] {
            let status = IdentityStatus {
                unsaved,
                ..IdentityStatus::default()
            };
            let text = exposition::render(move |encoder| identities(encoder, &status));
            let line = format!("heddle_state_unsaved {}\n", u8::from(unsaved));
            assert!(text.contains(&line), "{text}");
        }
    }

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

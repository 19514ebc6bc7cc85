//! `heddle status`.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use heddle_control::printable;

use crate::admin::{self, Location};
use crate::cli::OutputFormat;
use crate::exit::{Exit, Failure};
use crate::status::{ConfigStatus, ProcessStatus, Status, WorkloadStatus};
use crate::table::{self, count};

/// Show what a running heddle serves, where, and how it is doing
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle status
  heddle status --output json | jq -r '.listeners[].address'

Exit codes:
  0  answered, whatever the answer says
  1  failed
  2  wrong command line
  4  no running heddle answers on the admin socket")]
pub(crate) struct Args {
    /// The admin socket of the running heddle [default: as for `heddle up`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let answer = admin::get(&Location::new(args.socket), "/status").map_err(super::unanswered)?;
    super::print(&match args.output {
        OutputFormat::Json => answer + "\n",
        OutputFormat::Text => {
            text(&serde_json::from_str(&answer).context("the answer is not understood")?)
        }
    })?;
    Ok(Exit::Ok)
}

fn text(status: &Status) -> String {
    let Status {
        version,
        pid,
        uptime_s,
        usage,
        ..
    } = status;
    let state = match (status.draining, status.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready",
    };
    let mut out = format!(
        "heddle {version}, process {pid}, up {}, {state}\n",
        duration(*uptime_s)
    );
    let _infallible = writeln!(
        out,
        "{:.1} MiB resident, {:.1} s of CPU, {} threads, {} descriptors",
        usage.resident_bytes as f64 / (1024.0 * 1024.0),
        usage.cpu_ms as f64 / 1e3,
        usage.threads,
        usage.open_fds
    );
    let _infallible = writeln!(out, "{}", clients(status));
    if let Some(metrics) = status.metrics {
        let _infallible = writeln!(out, "metrics at http://{metrics}/metrics");
    }
    out.push_str(&config(
        &status.config,
        &status.folder.display().to_string(),
    ));
    let _infallible = write!(out, "\n{}", workers(&status.proxy));
    let _infallible = write!(out, "\n{}", table::listeners(&status.listeners));
    if !status.workloads.is_empty() {
        let _infallible = write!(out, "\n{}", workloads(&status.workloads));
    }
    out
}

fn config(config: &ConfigStatus, folder: &str) -> String {
    let ConfigStatus {
        generation,
        services,
        ..
    } = config;
    let mut out = format!(
        "{folder}: generation {generation}, {}",
        count(*services, "service")
    );
    if config.stale {
        out.push_str("; NOT as the folder is now, which was refused:");
    }
    out.push('\n');
    for problem in config.problems.iter().chain(&config.listener_problems) {
        let _infallible = writeln!(out, "  {}", printable(problem));
    }
    out
}

/// How many clients there are, may be, and were turned away.
fn clients(status: &Status) -> String {
    let workers = status.proxy["workers"].as_array();
    let each = workers.into_iter().flatten();
    let open: i64 = each
        .filter_map(|worker| worker["connections_active"].as_i64())
        .sum();
    format!(
        "{open} of {} clients, {} refused",
        status.connections_limit, status.connections_refused
    )
}

/// What each thread of the data plane does, in its own words.
fn workers(proxy: &serde_json::Value) -> String {
    let all = proxy["workers"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = all.iter().map(|worker| {
        let number = |name: &str| worker[name].to_string();
        let busy = worker["busy"].as_f64().unwrap_or_default() * 100.0;
        let state = match worker["retiring"].as_bool() {
            Some(true) => " retiring",
            _ => "",
        };
        [
            number("id") + state,
            format!("{busy:.0} %"),
            number("connections_active"),
            number("requests_active"),
            number("upstream_connections_active"),
            number("connections_moved"),
        ]
    });
    let head = [
        "WORKER",
        "BUSY",
        "CLIENTS",
        "REQUESTS",
        "UPSTREAMS",
        "MOVED AWAY",
    ];
    table::render(head, rows)
}

fn workloads(all: &[WorkloadStatus]) -> String {
    let rows = all.iter().map(|workload| {
        let process = match &workload.process {
            None => "not ours".to_owned(),
            Some(process) => state_of(process),
        };
        [workload.name.clone(), workload.address.to_string(), process]
    });
    table::render(["WORKLOAD", "ADDRESS", "PROCESS"], rows)
}

/// What a process does now, and how it came to that.
fn state_of(process: &ProcessStatus) -> String {
    let mut state = match process.pid {
        Some(pid) => format!("process {pid}"),
        None => "down".to_owned(),
    };
    if process.restarts > 0 || process.failed_starts == 0 {
        let _infallible = write!(state, ", {}", count(process.restarts, "restart"));
    }
    // What could not be started did not end: the reason says so itself.
    let last = if process.failed_starts > 0 {
        ""
    } else {
        "last "
    };
    if let Some(end) = &process.last_exit {
        let _infallible = write!(state, ", {last}{end}");
    }
    state
}

/// The two largest units: `3 d 4 h`, `5 min 6 s`.
fn duration(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, state_of};
    use crate::status::ProcessStatus;

    #[test]
    fn what_never_ran_did_not_end_and_was_not_restarted() {
        let process = |pid, restarts, failed_starts, last: Option<&str>| ProcessStatus {
            pid,
            restarts,
            failed_starts,
            last_exit: last.map(str::to_owned),
        };
        for (process, expected) in [
            (process(Some(7), 0, 0, None), "process 7, 0 restarts"),
            (
                process(Some(7), 1, 0, Some("exit code 3")),
                "process 7, 1 restart, last exit code 3",
            ),
            (
                process(None, 0, 2, Some("cannot start \"x\": gone")),
                "down, cannot start \"x\": gone",
            ),
            (
                process(None, 4, 2, Some("cannot start \"x\": gone")),
                "down, 4 restarts, cannot start \"x\": gone",
            ),
        ] {
            assert_eq!(state_of(&process), expected);
        }
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, expected) in [
            (0, "0 s"),
            (61, "1 min 1 s"),
            (3_660, "1 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}

//! `heddle status`.

mod control;
mod learned;
mod nodes;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use heddle_model::printable;
use heddle_node::exit::{Exit, Failure};
use heddle_node::status::{
    ConfigStatus, DiscoveryStatus, DrainStatus, LeftOutStatus, ProcessStatus, ProvidingStatus,
    RegistryStatus, Status, UsageStatus, WorkloadStatus,
};
use heddle_node::table::{self, count};
use heddle_node::time::duration;
use serde::Deserialize;

use crate::colour;
use crate::order::ControlStatus;
use crate::output::OutputFormat;

/// Show what a running heddle serves, where, and how it is doing
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle status
  heddle status --brief --watch
  heddle status --control
  heddle status --output json | jq -r '.listeners[].address'

Exit codes:
  0  answered, whatever the answer says
  1  failed
  2  wrong command line
  4  no running heddle answers on the admin socket")]
pub(crate) struct Args {
    #[command(flatten)]
    at: super::At,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    /// Leave out the addresses, one for each Service and caller; for a control plane, the nodes
    #[arg(long, conflicts_with = "output")]
    brief: bool,
    /// Show it again every two seconds, until Ctrl-C, and go on when nothing answers
    #[arg(long, conflicts_with = "output")]
    watch: bool,
}

/// How much the text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    Brief,
    Normal,
    /// Nothing is left out or summed up.
    Wide,
}

impl Args {
    fn detail(&self) -> Detail {
        match (self.brief, self.output) {
            (true, _) => Detail::Brief,
            (false, OutputFormat::Wide) => Detail::Wide,
            (false, _) => Detail::Normal,
        }
    }
}

impl Detail {
    /// How many of a list are shown: `some`, or all.
    fn most(self, some: usize) -> usize {
        match self {
            Detail::Wide => usize::MAX,
            Detail::Brief | Detail::Normal => some,
        }
    }
}

/// How much of what a node has learned is shown.
const MAX_LEARNED: usize = 30;
/// Time between two looks of `--watch`.
const LOOK: Duration = Duration::from_secs(2);
/// Clears a terminal and goes to its first line (ECMA-48: ED, CUP).
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    if args.watch {
        return watch(args);
    }
    super::print(&shown(args)?)?;
    Ok(Exit::Ok)
}

/// Ends with the signal that ends the process, or when nothing reads the output any more.
fn watch(args: &Args) -> Result<Exit, Failure> {
    let before = match io::stdout().is_terminal() {
        true => CLEAR,
        false => "\n",
    };
    loop {
        let shown = shown(args).unwrap_or_else(|failure| format!("{failure}\n"));
        super::print(&format!("{before}{shown}"))?;
        thread::park_timeout(LOOK);
    }
}

fn shown(args: &Args) -> Result<String, Failure> {
    let answer = args.at.get("/status")?;
    let status = who(&answer).context("the answer is not understood")?;
    let value: serde_json::Value =
        serde_json::from_str(&answer).context("the answer is not understood")?;
    args.output.written(&value, || match status {
        StatusAnswer::Node(status) => text(&status, args.detail()),
        StatusAnswer::Control(status) => control::text(&status, args.detail()),
    })
}

/// The answer to `GET /status`: a node's, or a control plane's.
pub(super) enum StatusAnswer {
    Node(Box<Status>),
    Control(Box<ControlStatus>),
}

pub(super) fn who(answer: &str) -> serde_json::Result<StatusAnswer> {
    #[derive(Deserialize)]
    struct Role {
        role: Option<String>,
    }
    let role: Role = serde_json::from_str(answer)?;
    Ok(match role.role.as_deref() {
        Some("control") => StatusAnswer::Control(serde_json::from_str(answer)?),
        _ => StatusAnswer::Node(serde_json::from_str(answer)?),
    })
}

fn text(status: &Status, detail: Detail) -> String {
    let brief = detail == Detail::Brief;
    let Status {
        version,
        pid,
        uptime_s,
        usage,
        ..
    } = status;
    let state = match (&status.drain, status.ready) {
        (Some(drain), _) => colour::attention(draining(*drain)),
        (None, _) if status.draining => colour::attention("draining"),
        (None, true) => colour::good("ready"),
        (None, false) => colour::bad("not ready"),
    };
    let mut out = format!(
        "heddle {version}, process {pid}, up {}, {state}\n",
        duration(*uptime_s)
    );
    let _infallible = writeln!(out, "{}", cost(usage));
    let _infallible = writeln!(out, "{}", clients(status));
    if let Some(metrics) = status.metrics {
        let _infallible = writeln!(out, "metrics at http://{metrics}/metrics");
    }
    if let Some(identity) = &status.identity {
        let _infallible = writeln!(out, "{}", super::check::summary(identity, 0));
    }
    if let Some(interception) = &status.interception {
        let _infallible = writeln!(out, "pods: {}", super::holder::pods(interception));
    }
    if let Some(qos) = &status.qos {
        let _infallible = writeln!(out, "{}", super::qos::summary(&qos.state));
    }
    out.push_str(&config(&status.config, &source(status)));
    if let Some(registry) = &status.registry {
        out.push_str(&registered(registry, detail));
    }
    let _infallible = write!(out, "\n{}", workers(&status.proxy));
    if let Some(callers) = callers(&status.proxy, detail) {
        let _infallible = writeln!(out, "{callers}");
    }
    if !status.nodes.is_empty() {
        let _infallible = match brief {
            true => writeln!(out, "{}", nodes::brief(&status.nodes)),
            false => write!(out, "\n{}", nodes::table(&status.nodes)),
        };
    }
    if let Some(DiscoveryStatus { learned, .. }) = &status.discovery {
        let _infallible = match brief {
            true => writeln!(out, "{}", learned::brief(learned)),
            false => write!(
                out,
                "\n{}",
                learned::table(learned, detail.most(MAX_LEARNED))
            ),
        };
    }
    let _infallible = match brief {
        true => writeln!(out, "{}", count(status.listeners.len(), "listener")),
        false => write!(out, "\n{}", table::listeners(&status.listeners)),
    };
    let left_out = status.registry.as_ref();
    let left_out = left_out.map_or(&[][..], |registry| &registry.left_out);
    if !status.workloads.is_empty() || !left_out.is_empty() {
        let _infallible = write!(out, "\n{}", workloads(&status.workloads, left_out));
    }
    out
}

/// State of the registry, and the providers of each Service; in brief, only Services that lack some of theirs.
fn registered(registry: &RegistryStatus, detail: Detail) -> String {
    let mut out = super::check::registry(registry) + "\n";
    let is_shown = |one: &&ProvidingStatus| detail > Detail::Brief || one.called < one.registered;
    let shown: Vec<&ProvidingStatus> = registry.services.iter().filter(is_shown).collect();
    let most = detail.most(MAX_PROVIDED);
    for one in shown.iter().take(most) {
        let (service, of) = (printable(&one.service), count(one.registered, "provider"));
        let _infallible = writeln!(out, "  {service}: {} of {of}", one.called);
    }
    if let Some(more) = shown.len().checked_sub(most).filter(|more| *more > 0) {
        let _infallible = writeln!(out, "  and {more} more");
    }
    out
}

/// Source of the mesh: the control plane's address, or the folder.
fn source(status: &Status) -> String {
    match &status.identity {
        Some(identity) => format!("mesh of {}", printable(&identity.control.address)),
        None => status.folder.display().to_string(),
    }
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
        out.push_str("; ");
        let refused = "NOT as the folder is now, which was refused as a whole:";
        out.push_str(&colour::bad(refused));
    }
    out.push('\n');
    let problems = config.problems.iter().chain(&config.listener_problems);
    let problems = problems.map(|problem| colour::attention(printable(problem)));
    let before = if config.stale { "since before: " } else { "" };
    let refused = config.refused.iter().map(|one| {
        let (origin, object) = (&one.origin, &one.object);
        let told = one.in_force.told(object);
        let line = format!("{before}{origin}: {object}: {told}");
        colour::bad(printable(&line))
    });
    // Why the folder is refused as a whole comes first.
    let lines: Vec<String> = match config.stale {
        true => problems.chain(refused).collect(),
        false => refused.chain(problems).collect(),
    };
    for line in lines {
        let _infallible = writeln!(out, "  {line}");
    }
    let more = config
        .refused_counts
        .all()
        .saturating_sub(config.refused.len() as u64);
    if more > 0 {
        let _infallible = writeln!(out, "  {} more refused", count(more, "object"));
    }
    out
}

/// Progress of a drain.
fn draining(drain: DrainStatus) -> String {
    let left = drain.left_ms.div_ceil(1_000);
    match u64::try_from(drain.connections) {
        Ok(0) | Err(_) => "draining: no connection is left, workloads are being stopped".to_owned(),
        Ok(open) => format!(
            "draining: waiting for {}, {left} s left",
            count(open, "connection")
        ),
    }
}

/// Resources of the process, as far as they are known.
fn cost(usage: &UsageStatus) -> String {
    let parts = [
        usage
            .resident_bytes
            .map(|bytes| format!("{:.1} MiB resident", bytes as f64 / (1024.0 * 1024.0))),
        usage
            .cpu_ms
            .map(|ms| format!("{:.1} s of CPU", ms as f64 / 1e3)),
        usage.threads.map(|threads| format!("{threads} threads")),
        usage.open_fds.map(|open| match usage.max_fds {
            Some(most) => format!("{open} of {most} descriptors"),
            None => format!("{open} descriptors"),
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Numbers of clients: connected, allowed and refused.
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

/// Table of the Workers, from the data plane's own status.
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

/// Most Services that are listed with their providers.
const MAX_PROVIDED: usize = 40;

/// Most callers that are named; all others are summed up.
const CALLERS: usize = 5;

/// Shares of the Workers' busy time since the start, by caller, and the largest number of Workers.
fn callers(proxy: &serde_json::Value, detail: Detail) -> Option<String> {
    let workers = proxy["workers"].as_array()?;
    let mut spent: BTreeMap<&str, u64> = BTreeMap::new();
    for worker in workers {
        for (caller, ms) in worker["cpu_by_source_ms"].as_object().into_iter().flatten() {
            *spent.entry(caller).or_default() += ms.as_u64().unwrap_or(0);
        }
    }
    let all: u64 = spent.values().sum();
    let mut spent: Vec<(&str, u64)> = spent.into_iter().filter(|(_, ms)| *ms > 0).collect();
    spent.sort_by_key(|(_, ms)| std::cmp::Reverse(*ms));
    let most = detail.most(CALLERS);
    let rest: u64 = spent.iter().skip(most).map(|(_, ms)| ms).sum();
    let named = spent.iter().take(most).copied();
    let shares = named
        .chain((rest > 0).then_some(("others", rest)))
        .map(|(caller, ms)| format!("{} {:.0} %", printable(caller), percent(ms, all)));
    let mut out = match proxy["workers_limit"].as_u64() {
        Some(most) => format!(
            "{} of at most {most}",
            count(workers.len() as u64, "worker")
        ),
        None => count(workers.len() as u64, "worker"),
    };
    let shares: Vec<String> = shares.collect();
    if !shares.is_empty() {
        let _infallible = write!(out, "; time by caller: {}", shares.join(", "));
    }
    Some(out)
}

fn percent(part: u64, all: u64) -> f64 {
    part as f64 * 100.0 / all.max(1) as f64
}

/// Table of the mesh's workloads, and of registered ones that were left out.
fn workloads(all: &[WorkloadStatus], left_out: &[LeftOutStatus]) -> String {
    let rows = all.iter().map(|workload| {
        let process = match &workload.process {
            None if workload.uncalled => "registered, NOT CALLED by any Service".to_owned(),
            None if workload.registered => "registered".to_owned(),
            None => "not ours".to_owned(),
            Some(process) => state_of(process),
        };
        let ports: Vec<String> = workload.ports.iter().map(ToString::to_string).collect();
        [
            workload.name.clone(),
            workload.address.to_string(),
            ports.join(" "),
            process,
        ]
    });
    let left_out = left_out.iter().map(|one| {
        let why = format!("registered, LEFT OUT: {}", one.reason);
        [one.workload.clone(), "-".to_owned(), "-".to_owned(), why]
    });
    let head = ["WORKLOAD", "ADDRESS", "PORTS", "PROCESS"];
    table::render(head, rows.chain(left_out))
}

/// State of a process, with its restarts and last exit.
fn state_of(process: &ProcessStatus) -> String {
    let mut state = match process.pid {
        Some(pid) => format!("process {pid}"),
        None => "down".to_owned(),
    };
    if process.restarts > 0 || process.failed_starts == 0 {
        let _infallible = write!(state, ", {}", count(process.restarts, "restart"));
    }
    // After a failed start there was no exit: `last_exit` holds the error of the start.
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

#[cfg(test)]
mod tests {
    use heddle_node::status::{
        DrainStatus, LeftOutStatus, ProcessStatus, ProvidingStatus, RegistryStatus, UsageStatus,
        WorkloadStatus,
    };

    use super::{Detail, callers, cost, draining, registered, state_of, workloads};

    #[test]
    fn who_registered_is_shown_with_what_has_become_of_it() {
        let workload = |name: &str, registered, uncalled| WorkloadStatus {
            name: name.to_owned(),
            address: [10, 0, 0, 1].into(),
            ports: vec![80, 8080],
            registered,
            uncalled,
            process: None,
        };
        let all = [
            workload("a/own", false, false),
            workload("a/web.x", true, false),
            workload("a/web.y", true, true),
        ];
        let left_out = [LeftOutStatus {
            workload: "a/web.z".to_owned(),
            reason: "it is wrong".to_owned(),
        }];
        assert_eq!(
            workloads(&all, &left_out),
            "WORKLOAD  ADDRESS   PORTS    PROCESS\n\
             a/own     10.0.0.1  80 8080  not ours\n\
             a/web.x   10.0.0.1  80 8080  registered\n\
             a/web.y   10.0.0.1  80 8080  registered, NOT CALLED by any Service\n\
             a/web.z   -         -        registered, LEFT OUT: it is wrong\n"
        );
    }

    #[test]
    fn of_services_it_is_shown_how_many_providers_they_have() {
        let providing = |service: &str, called, registered| ProvidingStatus {
            service: service.to_owned(),
            called,
            registered,
        };
        let registry = RegistryStatus {
            connected: true,
            endpoint: "http://e:1".to_owned(),
            prefix: "/p/".to_owned(),
            providers: 3,
            services: vec![providing("a/web", 2, 3), providing("a/db", 1, 1)],
            ..RegistryStatus::default()
        };
        let first =
            "registry http://e:1 /p/: followed for 0 s, 3 providers\n  a/web: 2 of 3 providers\n";
        assert_eq!(registered(&registry, Detail::Brief), first);
        let all = format!("{first}  a/db: 1 of 1 provider\n");
        assert_eq!(registered(&registry, Detail::Normal), all);
    }

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
    fn what_is_not_known_of_the_cost_is_not_said() {
        let usage = UsageStatus {
            cpu_ms: Some(1_500),
            open_fds: Some(300),
            max_fds: Some(300),
            ..UsageStatus::default()
        };
        assert_eq!(cost(&usage), "1.5 s of CPU, 300 of 300 descriptors");
    }

    #[test]
    fn a_drain_says_what_it_waits_for() {
        for (connections, left_ms, expected) in [
            (3, 6_100, "draining: waiting for 3 connections, 7 s left"),
            (1, 0, "draining: waiting for 1 connection, 0 s left"),
            (
                0,
                4_000,
                "draining: no connection is left, workloads are being stopped",
            ),
        ] {
            let drain = DrainStatus {
                connections,
                left_ms,
            };
            assert_eq!(draining(drain), expected);
        }
    }

    #[test]
    fn callers_are_shown_by_their_share_and_few_of_them() {
        let worker = |sources: serde_json::Value| serde_json::json!({"cpu_by_source_ms": sources});
        let proxy = serde_json::json!({"workers_limit": 4, "workers": [
            worker(serde_json::json!({"a/web": 500, "unidentified": 0})),
            worker(serde_json::json!({"a/web": 100, "b": 200, "c": 80, "d": 60, "e": 50, "f": 6, "g": 4})),
        ]});
        let expected = "2 workers of at most 4; time by caller: a/web 60 %, b 20 %, c 8 %, d 6 %, \
                        e 5 %, others 1 %";
        assert_eq!(callers(&proxy, Detail::Normal).as_deref(), Some(expected));
        let all = callers(&proxy, Detail::Wide).expect("callers");
        assert!(all.ends_with("f 1 %, g 0 %"), "{all}");
        let none = serde_json::json!({"workers_limit": 1, "workers": [{}]});
        assert_eq!(
            callers(&none, Detail::Normal).as_deref(),
            Some("1 worker of at most 1")
        );
        assert_eq!(callers(&serde_json::Value::Null, Detail::Normal), None);
    }
}

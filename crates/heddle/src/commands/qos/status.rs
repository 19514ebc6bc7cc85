//! `heddle qos status`: what the agent holds, and what it says beside.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heddle_model::ControlGroup;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::QosSettings;
use heddle_node::table::{self, count};
use heddle_node::time::duration;
use heddle_qos::agent::LatencyStatus;
use heddle_qos::arbiter::journal::{Journal, StateFolder};
use heddle_qos::arbiter::{Held, Key};
use heddle_qos::network;
use heddle_qos::remarks::{NotDone, Remarks};
use heddle_qos::state;
use serde::Serialize;

use super::{AgentFlags, remarks, restore};
use crate::commands::print;
use crate::output::OutputFormat;
use crate::{colour, qos};

/// Show what is changed on this machine: for which pod, from what to what, why, and since when; and evictions that are advised
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle qos status
  heddle qos status --output json | jq '.changes[] | select(.class == \"offline\")'
  heddle qos status --output json | jq '.advice[].pod'

Exit codes:
  0  an agent runs
  1  failed
  2  wrong command line
  3  settings refused
  4  no agent runs, and nothing is changed
  6  no agent runs, and what one has changed that was killed is still so, or may be (heddle qos restore)")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    agent: AgentFlags,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

/// What is changed on this machine.
#[derive(Serialize)]
struct QosStatus {
    /// Whether an agent runs.
    running: bool,
    /// The folder of its journal.
    state: PathBuf,
    /// What the latency loop does, while an online pod has an objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<LatencyStatus>,
    changes: Vec<ChangeStatus>,
    /// The control group in which a killed agent has left threads of the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_group: Option<ControlGroup>,
    /// What is not known of what was changed, since a journal has lines that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damage: Vec<String>,
    /// What the agent that runs says beside.
    #[serde(flatten)]
    remarks: Remarks,
}

#[derive(Serialize)]
struct ChangeStatus {
    pod: String,
    class: &'static str,
    /// The control group, or the interface, that is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    knob: &'static str,
    /// With its unit, as `to`.
    from: String,
    to: String,
    why: String,
    /// Seconds since 1970.
    since: u64,
}

/// A line for `heddle status` of a node that runs the agent with this journal.
pub(in crate::commands) fn summary(state: &Path) -> String {
    let looked = StateFolder::is_in_use(state).and_then(|running| {
        let of_network = network::Journal::look(state)?.held;
        Ok((running, Journal::look(state)?.held.len() + of_network.len()))
    });
    let what = match looked {
        Ok((true, changes)) => format!("an agent runs, {} changed", count(changes, "setting")),
        Ok((false, _)) => colour::bad("no agent runs: the log of the node says why"),
        Err(error) => colour::attention(format!("not known: {error}")),
    };
    let flag = match state == QosSettings::default().state_folder() {
        true => String::new(),
        false => format!(" --state {}", state.display()),
    };
    format!("node QoS: {what} (heddle qos status{flag})")
}

pub(super) fn run(args: StatusArgs) -> Result<Exit, Failure> {
    let folder = args.agent.folder()?;
    let unreadable = |error| qos::unreadable(&error);
    let groups = Journal::look(&folder).map_err(unreadable)?;
    let running = StateFolder::is_in_use(&folder).map_err(unreadable)?;
    let network = network::Journal::look(&folder).map_err(unreadable)?;
    let mut damage = damage(&folder);
    let mut proxy_group = None;
    if !running {
        damage.extend(unread("journal", &groups.damaged));
        damage.extend(unread("journal of the network", &network.damaged));
        match qos::threads_left(&folder) {
            Ok(left) => proxy_group = left,
            Err(error) => damage.push(error.to_string()),
        }
    }
    let mut changes: Vec<ChangeStatus> = groups.held.into_iter().map(change_status).collect();
    changes.extend(network.held.into_iter().map(network_status));
    let order = |change: &ChangeStatus| (change.pod.clone(), change.what());
    changes.sort_by_key(order);
    let (latency, remarks) = match running {
        true => said(&folder),
        // What an agent has left that was killed says nothing of now.
        false => (None, Remarks::default()),
    };
    let status = QosStatus {
        running,
        state: folder,
        latency,
        changes,
        proxy_group,
        damage,
        remarks,
    };
    let is_wide = args.output == OutputFormat::Wide;
    print(&args.output.written(&status, || text(&status, is_wide))?)?;
    Ok(match (running, status.is_as_it_was()) {
        (true, _) => Exit::Ok,
        (false, true) => Exit::Unreachable,
        (false, false) => Exit::Degraded,
    })
}

/// What a running agent says.
fn said(folder: &Path) -> (Option<LatencyStatus>, Remarks) {
    let remarks = Remarks::look(folder).and_then(|remarks| {
        remarks.ok_or_else(|| {
            let file = folder.join("remarks");
            let why = "is not there yet: the agent starts, or its disk is full";
            io::Error::new(io::ErrorKind::NotFound, format!("{} {why}", file.display()))
        })
    });
    let mut remarks = remarks.unwrap_or_else(|error| unknown(&error));
    let latency = qos::latency_status(folder).unwrap_or_else(|error| {
        remarks.not_done.extend(unknown(&error).not_done);
        None
    });
    (latency, remarks)
}

/// What is said of the copies that are kept of journals.
fn damage(folder: &Path) -> Vec<String> {
    match state::damaged(folder) {
        Ok(kept) => kept.iter().map(|kept| restore::damage(kept)).collect(),
        // No agent has made the folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

/// What is said of lines that cannot be read.
fn unread(journal: &str, lines: &[usize]) -> Option<String> {
    let number = count(lines.len(), "line");
    (!lines.is_empty()).then(|| {
        format!("{number} of the {journal} cannot be read, and what they say is not put back: heddle qos restore keeps a copy")
    })
}

/// A file of the agent that cannot be read hides no other.
fn unknown(error: &io::Error) -> Remarks {
    let one = NotDone {
        setting: "heddle qos status".to_owned(),
        why: format!("a part of what the agent says is not known: {error}"),
    };
    Remarks {
        not_done: vec![one],
        ..Remarks::default()
    }
}

fn change_status((key, held): (Key, Held)) -> ChangeStatus {
    let to = held.ours.last().copied().unwrap_or(held.original);
    ChangeStatus {
        pod: held.pod,
        class: held.class.as_str(),
        cgroup: Some(key.group.to_string()),
        interface: None,
        knob: key.knob.as_str(),
        from: key.knob.shown(held.original),
        to: key.knob.shown(to),
        why: held.why,
        since: held.since_s,
    }
}

fn network_status((key, held): (network::held::Key, network::held::Held)) -> ChangeStatus {
    ChangeStatus {
        class: held.class.as_str(),
        cgroup: None,
        interface: Some(key.link.name),
        knob: key.part.as_str(),
        from: held.original(),
        to: held.now,
        pod: held.pod,
        why: held.why,
        since: held.since_s,
    }
}

impl QosStatus {
    /// Whether nothing is changed.
    fn is_as_it_was(&self) -> bool {
        self.changes.is_empty() && self.proxy_group.is_none() && self.damage.is_empty()
    }
}

impl ChangeStatus {
    /// What is changed.
    fn what(&self) -> String {
        let of = self.cgroup.as_ref().or(self.interface.as_ref());
        format!("{} of {}", self.knob, of.map_or("", String::as_str))
    }
}

/// What the latency loop does: the pod that is worst off, or all of them.
fn latency_text(latency: &LatencyStatus, is_wide: bool) -> String {
    let may = match latency.percent {
        Some(percent) => format!("offline pods share {percent} % of the processors"),
        None => "offline pods are not limited".to_owned(),
    };
    let shown = if is_wide { latency.pods.len() } else { 1 };
    let rows = latency.pods.iter().take(shown).map(|pod| {
        let p99 = pod.p99_us.map(|us| format!("{:.1}ms", us as f64 / 1e3));
        [
            pod.pod.clone(),
            p99.unwrap_or_else(|| "-".to_owned()),
            format!("{}ms", pod.objective_ms),
        ]
    });
    let table = match latency.pods.is_empty() {
        true => String::new(),
        false => table::render(["OBJECTIVE OF", "P99", "OBJECTIVE"], rows),
    };
    let (level, tightest) = (latency.level, latency.tightest);
    format!("latency: level {level} of {tightest}, {may}\n{table}")
}

fn text(status: &QosStatus, is_wide: bool) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now_s.unwrap_or_default().as_secs();
    let what = count(status.changes.len(), "setting");
    let at = format!("(state folder {})", status.state.display());
    let head = match (status.running, status.is_as_it_was()) {
        (true, _) => format!("{}, {what} changed {at}\n", colour::good("an agent runs")),
        (false, true) => format!("no agent runs, and nothing is changed {at}\n"),
        (false, false) => format!("{}{} {at}\n", colour::bad("no agent runs"), left(status)),
    };
    let latency = status.latency.as_ref();
    let latency = latency.map(|latency| latency_text(latency, is_wide));
    let mut parts = vec![head + latency.as_deref().unwrap_or_default()];
    if !status.changes.is_empty() {
        parts.push(changes(&status.changes, now_s));
    }
    let left = status.proxy_group.as_ref();
    let left = left.map(|group| format!("threads of the proxy are in the control group {group}"));
    let left = left.iter().chain(&status.damage);
    let left: String = left.map(|line| format!("{line}\n")).collect();
    parts.extend(Some(left).filter(|left| !left.is_empty()));
    parts.extend(remarks::text(&status.remarks, now_s));
    parts.join("\n")
}

/// What a killed agent has left.
fn left(status: &QosStatus) -> String {
    match (status.changes.len(), &status.proxy_group) {
        (0, None) => ", and not all is known that one has changed that was killed".to_owned(),
        (0, Some(_)) => {
            ": one that was killed has left threads of the proxy in a group of its own; heddle qos restore puts them back".to_owned()
        }
        (changes, _) => format!(
            ": {} changed by one that was killed; heddle qos restore puts them back",
            count(changes, "setting")
        ),
    }
}

/// A table of what is changed.
fn changes(changes: &[ChangeStatus], now_s: u64) -> String {
    let rows = changes.iter().map(|change| {
        [
            change.pod.clone(),
            change.class.to_owned(),
            change.what(),
            change.from.clone(),
            change.to.clone(),
            format!("{} ago", duration(now_s.saturating_sub(change.since))),
            change.why.clone(),
        ]
    });
    let columns = ["POD", "CLASS", "CHANGED", "FROM", "TO", "SINCE", "WHY"];
    table::render(columns, rows)
}

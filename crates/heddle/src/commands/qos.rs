//! `heddle qos`: run the agent, show what it holds, put everything back.

mod remarks;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use heddle_model::{ControlGroup, NodeName};
use heddle_node::arguments::node_name;
use heddle_node::exit::{Exit, Failure};
use heddle_node::hygiene;
use heddle_node::settings::{GivenSettings, KubeletUrl, LogFlags, Metrics, QosSettings};
use heddle_node::table::{self, count};
use heddle_node::time::duration;
use heddle_qos::agent::LatencyStatus;
use heddle_qos::arbiter::journal::Journal;
use heddle_qos::arbiter::{Arbiter, Held, Key, Restored};
use heddle_qos::cgroup::{Mounts, System};
use heddle_qos::network::keeper::Keeper;
use heddle_qos::network::{self, keeper};
use heddle_qos::remarks::Remarks;
use serde::Serialize;

use crate::output::OutputFormat;
use crate::{colour, qos};

/// What became of settings, as in the output of `restore`.
const PUT_BACK: &str = "put back";
const FOREIGN: &str = "left as another program wrote them";

/// Keep latency-sensitive pods fast beside batch work, by control groups and traffic control
///
/// Pods are online (latency-sensitive) unless a label or annotation says `volcano.sh/preemptable: "true"` or
/// `heddle.dev/class: offline`. Needs root, and no mesh.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: QosCommand,
}

#[derive(Debug, Subcommand)]
enum QosCommand {
    Run(Box<RunArgs>),
    Status(StatusArgs),
    Restore(RestoreArgs),
}

/// Run the agent of this machine
///
/// It has the pods from a folder of manifests, from this machine's kubelet, or from both, and follows them. In a folder each
/// LocalWorkload that has the annotation `heddle.dev/cgroup: PATH` is a pod, and PATH its control group. What it changes is
/// put back when it stops, or by the next start after a kill. Values that other programs write stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle qos run DIR --dry-run
  heddle qos run DIR
  heddle qos run DIR --node edge-1 --config /etc/heddle/heddle.yaml
  heddle qos run --kubelet https://127.0.0.1:10250 --kubelet-token /etc/heddle/kubelet.token

Exit codes:
  0  stopped, and everything is as it was
  1  failed, or not everything could be put back
  2  wrong command line
  3  manifests or settings refused
  5  another agent runs")]
struct RunArgs {
    /// The folder of manifests; not needed with a kubelet
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only pods of this node (spec.nodeName) [default: all]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<NodeName>,
    /// Change nothing, and say what would be changed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    kubelet: KubeletFlags,
    #[command(flatten)]
    state: State,
    /// Admin socket of this machine's proxy, whose threads for offline callers yield, too [default: as for heddle status]
    #[arg(long, value_name = "PATH")]
    proxy_socket: Option<PathBuf>,
    /// Control group that is made for those threads, beside those of the pods or above [default: heddle-offline]
    #[arg(long, value_name = "PATH", value_parser = ControlGroup::new)]
    proxy_group: Option<ControlGroup>,
    /// Where to serve /metrics and /ready over TCP, or `none` [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Metrics>,
    /// Settings of the process; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    /// The node that has started it, by its process ID: the agent ends with it.
    #[arg(long, hide = true, value_name = "PID")]
    of_node: Option<i32>,
}

/// Flags that say how this machine's kubelet is asked.
#[derive(Debug, clap::Args)]
struct KubeletFlags {
    /// URL of this machine's kubelet, such as https://127.0.0.1:10250: its pods are followed
    #[arg(long, value_name = "URL")]
    kubelet: Option<KubeletUrl>,
    /// The kubelet's own certificate or that of its authority, in PEM [default: /var/lib/kubelet/pki/kubelet.crt]
    #[arg(long, value_name = "FILE")]
    kubelet_ca: Option<PathBuf>,
    /// A bearer token for the kubelet, of an account that may get nodes/pods
    #[arg(long, value_name = "FILE")]
    kubelet_token: Option<PathBuf>,
    /// A client certificate for the kubelet, in PEM, instead of a token
    #[arg(long, value_name = "FILE")]
    kubelet_certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE")]
    kubelet_key: Option<PathBuf>,
    /// The kubelet's --cgroup-root [default: /]
    #[arg(long, value_name = "PATH")]
    kubelet_cgroup_root: Option<String>,
}

impl KubeletFlags {
    fn over(self, given: &mut GivenSettings) {
        given.flag("--kubelet", "qos.kubelet.url", self.kubelet, |to, url| {
            to.qos.kubelet.set_url(url);
        });
        let (flag, field) = ("--kubelet-ca", "qos.kubelet.ca");
        given.flag(flag, field, self.kubelet_ca, |to, file| {
            to.qos.kubelet.ca = Some(file);
        });
        let (flag, field) = ("--kubelet-token", "qos.kubelet.token_file");
        given.flag(flag, field, self.kubelet_token, |to, file| {
            to.qos.kubelet.token_file = Some(file);
        });
        let (flag, field) = ("--kubelet-certificate", "qos.kubelet.certificate");
        given.flag(flag, field, self.kubelet_certificate, |to, file| {
            to.qos.kubelet.certificate = Some(file);
        });
        let (flag, field) = ("--kubelet-key", "qos.kubelet.key");
        given.flag(flag, field, self.kubelet_key, |to, file| {
            to.qos.kubelet.key = Some(file);
        });
        let (flag, field) = ("--kubelet-cgroup-root", "qos.kubelet.cgroup_root");
        given.flag(flag, field, self.kubelet_cgroup_root, |to, path| {
            to.qos.kubelet.cgroup_root = path;
        });
    }
}

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
  4  no agent runs")]
struct StatusArgs {
    #[command(flatten)]
    state: State,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

/// Put back what a killed agent has left
///
/// The next `heddle qos run` does so, too. Values that other programs wrote since then stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0  everything is as it was
  1  failed, or not everything could be put back
  2  wrong command line
  5  an agent runs: stop it, and it puts everything back itself")]
struct RestoreArgs {
    #[command(flatten)]
    state: State,
}

/// Flag that selects the journal.
#[derive(Debug, clap::Args)]
struct State {
    /// Folder of the journal, in which the agent writes what it changes before it does [default: /run/heddle/qos]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

impl State {
    fn folder(self) -> PathBuf {
        QosSettings {
            state: self.state,
            ..QosSettings::default()
        }
        .state_folder()
        .to_owned()
    }
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        QosCommand::Run(args) => agent(*args),
        QosCommand::Status(args) => status(args),
        QosCommand::Restore(args) => restore(args),
    }
}

fn agent(args: RunArgs) -> Result<Exit, Failure> {
    if let Some(node) = args.of_node {
        // Its name in ps, beside that of the node.
        let _set = rustix::thread::set_name(c"heddle-qos");
        let is_there = hygiene::stop_with(node).context("cannot end with the node")?;
        if !is_there {
            return Err(anyhow!("the node that has started the agent is gone").into());
        }
    }
    let mut given = GivenSettings::read(args.config.as_deref())?;
    let state = args.state.state;
    given.flag("--state", "qos.state", state, |to, state| {
        to.qos.state = Some(state);
    });
    let socket = args.proxy_socket;
    given.flag("--proxy-socket", "qos.proxy_socket", socket, |to, path| {
        to.qos.proxy_socket = Some(path);
    });
    let group = args.proxy_group;
    given.flag("--proxy-group", "qos.proxy_group", group, |to, group| {
        to.qos.proxy_group = group;
    });
    given.flag("--metrics", "qos.metrics", args.metrics, |to, at| {
        to.qos.metrics = at;
    });
    args.kubelet.over(&mut given);
    args.log.over(&mut given);
    let settings = given.checked()?;
    let dir = args.dir.or_else(|| settings.qos.folder.clone());
    if dir.is_none() && settings.qos.kubelet.url().is_none() {
        let why = "nothing says which pods there are: name a folder of manifests (DIR, qos.folder), or a kubelet (--kubelet URL, qos.kubelet.url)";
        return Err(Failure::new(Exit::Usage, anyhow!("{why}")));
    }
    let plan = qos::AgentPlan {
        dir,
        node: args.node,
        is_rehearsal: args.dry_run,
        state: settings.qos.state_folder().to_owned(),
    };
    qos::run(&plan, &settings)
}

/// What is changed on this machine.
#[derive(Serialize)]
struct QosStatus {
    /// Whether an agent runs.
    running: bool,
    /// What the latency loop does, while an online pod has an objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<LatencyStatus>,
    changes: Vec<ChangeStatus>,
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
    from: String,
    to: String,
    why: String,
    /// Seconds since 1970.
    since: u64,
}

/// A line for `heddle status` of a node that runs the agent with this journal.
pub(super) fn summary(state: &Path) -> String {
    let looked = Journal::is_in_use(state).and_then(|running| {
        let changes = Journal::look(state)?.len() + network::Journal::look(state)?.len();
        Ok((running, changes))
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

fn status(args: StatusArgs) -> Result<Exit, Failure> {
    let folder = args.state.folder();
    let held = Journal::look(&folder).map_err(|error| qos::unreadable(&folder, &error))?;
    let running = Journal::is_in_use(&folder).map_err(|error| qos::unreadable(&folder, &error))?;
    let network = network::Journal::look(&folder);
    let network = network.map_err(|error| qos::unreadable(&folder, &error))?;
    let mut changes: Vec<ChangeStatus> = held.into_iter().map(change_status).collect();
    changes.extend(network.into_iter().map(network_status));
    let order = |change: &ChangeStatus| (change.pod.clone(), change.what());
    changes.sort_by_key(order);
    let (latency, remarks) = match running {
        true => {
            let unreadable = |error: io::Error| qos::unreadable(&folder, &error);
            let latency = qos::latency_status(&folder).map_err(unreadable)?;
            (latency, Remarks::look(&folder).map_err(unreadable)?)
        }
        // What an agent has left that was killed says nothing of now.
        false => (None, Remarks::default()),
    };
    let status = QosStatus {
        running,
        latency,
        changes,
        remarks,
    };
    let is_wide = args.output == OutputFormat::Wide;
    super::print(&args.output.written(&status, || text(&status, is_wide))?)?;
    Ok(match running {
        true => Exit::Ok,
        false => Exit::Unreachable,
    })
}

fn change_status((key, held): (Key, Held)) -> ChangeStatus {
    let to = held.ours.last().copied().unwrap_or(held.original);
    ChangeStatus {
        pod: held.pod,
        class: held.class.as_str(),
        cgroup: Some(key.group.to_string()),
        interface: None,
        knob: key.knob.as_str(),
        from: held.original.to_string(),
        to: to.to_string(),
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
    let head = match (status.running, status.changes.is_empty()) {
        (true, _) => format!("{}, {what} changed\n", colour::good("an agent runs")),
        (false, true) => "no agent runs, and nothing is changed\n".to_owned(),
        (false, false) => format!(
            "{}: {what} changed by one that was killed; heddle qos restore puts them back\n",
            colour::bad("no agent runs")
        ),
    };
    let latency = status.latency.as_ref();
    let latency = latency.map(|latency| latency_text(latency, is_wide));
    let mut parts = vec![head + latency.as_deref().unwrap_or_default()];
    if !status.changes.is_empty() {
        parts.push(changes(&status.changes, now_s));
    }
    parts.extend(remarks::text(&status.remarks, now_s));
    parts.join("\n")
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

fn restore(args: RestoreArgs) -> Result<Exit, Failure> {
    let folder = args.state.folder();
    let (journal, held) = qos::open(&folder)?;
    qos::put_threads_back(&folder)?;
    let mounts = Mounts::find().context("cannot find the control groups")?;
    let mut failed = Vec::new();
    let mut put_back: BTreeMap<&str, usize> = BTreeMap::new();
    let (log, of_network) = journal
        .beside()
        .map_err(|error| qos::unreadable(&folder, &error))?;
    if !of_network.is_empty() {
        let kernel = network::system::TrafficControl::open(System::new(mounts.clone()));
        let kernel = kernel.context("cannot speak to the kernel about the network")?;
        let mut keeper = Keeper::new(kernel, log, of_network, Default::default());
        for (key, held, done) in keeper.restore_all() {
            let what = match done {
                keeper::Restored::Done => PUT_BACK,
                keeper::Restored::Gone => "gone with their interfaces",
                keeper::Restored::Foreign(_) => FOREIGN,
                keeper::Restored::Failed(error) => {
                    failed.push(format!("the {key} to {}: {error}", held.original()));
                    continue;
                }
            };
            *put_back.entry(what).or_default() += 1;
        }
    }
    let mut arbiter = Arbiter::new(System::new(mounts), journal, held);
    for (key, held, done) in arbiter.restore_all() {
        let what = match done {
            Restored::Done => PUT_BACK,
            Restored::Gone => "gone with their control groups",
            Restored::Foreign(_) => FOREIGN,
            Restored::Failed(error) => {
                failed.push(format!("the {key} to {}: {error}", held.original));
                continue;
            }
        };
        *put_back.entry(what).or_default() += 1;
    }
    let parts: Vec<String> = put_back
        .iter()
        .map(|(what, number)| format!("{} {what}", count(*number, "setting")))
        .collect();
    match (parts.is_empty(), failed.is_empty()) {
        (_, false) => Err(anyhow!("cannot set back {}", failed.join("; ")).into()),
        (true, true) => {
            super::print("nothing is changed\n")?;
            Ok(Exit::Ok)
        }
        (false, true) => {
            super::print(&format!("{}\n", parts.join(", ")))?;
            Ok(Exit::Ok)
        }
    }
}

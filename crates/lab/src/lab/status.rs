//! `heddle-lab status`: a lab and the state of its processes, as text or JSON.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::file::Carried;
use super::output::print;
use super::which::Which;
use super::{Lab, Note};

#[cfg(test)]
mod tests;

/// Quoted lines of an ended process's log.
const LAST_LINES: usize = 3;

/// Options of `heddle-lab status`.
#[derive(Args)]
pub struct StatusOptions {
    #[command(flatten)]
    pub(super) which: Which,
    /// Print JSON: docs/lab.md lists its fields; later versions only add fields
    #[arg(long)]
    json: bool,
}

/// Prints the status.
///
/// # Errors
/// The boot time cannot be read, or standard output cannot be written to.
pub(super) fn show(lab: &Lab, options: &StatusOptions) -> anyhow::Result<()> {
    let status = Status::of(lab)?;
    print(&match options.json {
        true => serde_json::to_string_pretty(&status)? + "\n",
        false => status.text()?,
    })
}

#[derive(Debug, Serialize)]
struct Status {
    name: String,
    /// Whether every part was made: `false` while it is being made, or if that was interrupted.
    ready: bool,
    /// `node`, `pod` or `nothing`.
    carried: Carried,
    folder: PathBuf,
    nodes: Vec<NodeStatus>,
    services: Vec<ServiceStatus>,
    /// Processes of no single node: control plane and keeper.
    processes: Vec<ProcessStatus>,
}

#[derive(Debug, Serialize)]
struct NodeStatus {
    name: String,
    addresses: Vec<IpAddr>,
    settings: Option<PathBuf>,
    processes: Vec<ProcessStatus>,
    pods: Vec<PodStatus>,
}

#[derive(Debug, Serialize)]
struct PodStatus {
    /// `NAMESPACE/NAME`.
    name: String,
    addresses: Vec<IpAddr>,
    enrolled: bool,
    /// Whether it has an Envoy of its own.
    envoy: bool,
    /// Its program, its Envoy, and its proxy if the lab has `carried: pod`.
    processes: Vec<ProcessStatus>,
}

#[derive(Debug, Serialize)]
struct ServiceStatus {
    /// `NAMESPACE/NAME`.
    name: String,
    /// Empty if it is headless.
    addresses: Vec<IpAddr>,
    pods: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ProcessStatus {
    /// File name of its log, without `.log`.
    name: String,
    what: String,
    pid: i32,
    state: ProcessState,
    /// Unix time in seconds.
    started: u64,
    restarts: u32,
    log: PathBuf,
    /// Last change of its log, Unix time in seconds; for an ended process, roughly when it ended.
    last_wrote: Option<u64>,
    /// The last lines of its log; empty while it runs.
    last_words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ProcessState {
    Running,
    Ended,
}

impl Status {
    fn of(lab: &Lab) -> anyhow::Result<Self> {
        let clock = ProcessClock::read()?;
        let all = lab.processes();
        let mut left: Vec<ProcessStatus> = all.iter().map(|note| clock.process(note)).collect();
        let mut take = |names: &[String]| {
            let is_one = |process: &mut ProcessStatus| names.contains(&process.name);
            left.extract_if(.., is_one).collect::<Vec<_>>()
        };
        let plan = lab.plan();
        let nodes = lab.nodes().map(|node| {
            let name = &node.plan().name;
            let pods = plan.pods_of(node.plan()).map(|pod| PodStatus {
                name: pod.workload.to_string(),
                addresses: pod.addresses.clone(),
                enrolled: pod.enrolled,
                envoy: pod.has_envoy,
                processes: take(&match plan.carried {
                    Carried::Pod => vec![pod.process_name(), format!("heddle-{}", pod.mesh_node)],
                    Carried::Node | Carried::Nothing => vec![pod.process_name(), pod.envoy_name()],
                }),
            });
            let pods = pods.collect();
            NodeStatus {
                name: name.to_string(),
                addresses: node.addresses().to_vec(),
                settings: node.plan().settings.clone(),
                processes: take(&[format!("heddle-{name}"), format!("dns-{name}")]),
                pods,
            }
        });
        let nodes = nodes.collect();
        let services = plan.services.iter().map(|service| ServiceStatus {
            name: service.name.to_string(),
            addresses: service.cluster_addresses.clone(),
            pods: service.pods.iter().map(ToString::to_string).collect(),
        });
        Ok(Self {
            name: plan.name.to_string(),
            ready: lab.is_ready(),
            carried: plan.carried,
            folder: lab.folder().to_owned(),
            nodes,
            services: services.collect(),
            processes: left,
        })
    }

    fn text(&self) -> anyhow::Result<String> {
        let state = match self.ready {
            true => "up",
            false => "incomplete: it is being made, or that was interrupted",
        };
        let mut out = format!(
            "lab {}: {state}; carried by: {}\nfolder: {}\n",
            self.name,
            self.carried,
            self.folder.display()
        );
        processes(&mut out, "", &self.processes)?;
        for node in &self.nodes {
            writeln!(out, "node {}: {}", node.name, joined(&node.addresses))?;
            if let Some(settings) = &node.settings {
                writeln!(out, "  settings: {}", settings.display())?;
            }
            processes(&mut out, "  ", &node.processes)?;
            for pod in &node.pods {
                let note = match (pod.enrolled, pod.envoy) {
                    (true, _) => "",
                    (false, true) => " (with an Envoy)",
                    (false, false) => " (not enrolled)",
                };
                writeln!(out, "  pod {}: {}{note}", pod.name, joined(&pod.addresses))?;
                processes(&mut out, "    ", &pod.processes)?;
            }
        }
        for service in &self.services {
            let at = match service.addresses.as_slice() {
                [] => "headless".to_owned(),
                addresses => joined(addresses),
            };
            writeln!(
                out,
                "service {}: {at}, {} pods",
                service.name,
                service.pods.len()
            )?;
        }
        Ok(out)
    }
}

fn joined(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    texts.join(" ")
}

fn processes(out: &mut String, indent: &str, all: &[ProcessStatus]) -> std::fmt::Result {
    for process in all {
        let (pid, what, log) = (process.pid, &process.what, process.log.display());
        let state = match (process.state, process.last_wrote) {
            (ProcessState::Running, _) => format!("runs since {}", shown(process.started)),
            (ProcessState::Ended, Some(at)) => format!("ENDED, last output at {}", shown(at)),
            (ProcessState::Ended, None) => "ENDED".to_owned(),
        };
        let restarts = match process.restarts {
            0 => String::new(),
            1 => ", 1 restart".to_owned(),
            times => format!(", {times} restarts"),
        };
        writeln!(
            out,
            "{indent}process {pid} {state}{restarts}: {what}, {log}"
        )?;
        for line in &process.last_words {
            writeln!(out, "{indent}    {line}")?;
        }
    }
    Ok(())
}

/// The time in UTC, the format of all output.
fn shown(seconds: u64) -> String {
    heddle_model::calendar::utc(seconds)
}

/// Converts kernel times to Unix time.
struct ProcessClock {
    /// Boot time, Unix time in seconds.
    boot: u64,
    ticks_per_second: u64,
}

impl ProcessClock {
    fn read() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime "));
        let boot = boot.and_then(|text| text.trim().parse().ok());
        Ok(Self {
            boot: boot.context("/proc/stat does not say when the machine started")?,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
        })
    }

    fn process(&self, note: &Note) -> ProcessStatus {
        let state = match note.runs() {
            true => ProcessState::Running,
            false => ProcessState::Ended,
        };
        let words = match state {
            ProcessState::Running => String::new(),
            ProcessState::Ended => note.last_words(LAST_LINES),
        };
        let name = note.log.file_stem().map(|name| name.to_string_lossy());
        let wrote = fs::metadata(&note.log).and_then(|log| log.modified()).ok();
        ProcessStatus {
            name: name.unwrap_or_default().into_owned(),
            what: note.what.clone(),
            pid: note.pid,
            state,
            started: self.boot + note.started / self.ticks_per_second,
            restarts: note.restarts,
            log: note.log.clone(),
            last_wrote: wrote.and_then(since_1970),
            last_words: words.lines().map(str::to_owned).collect(),
        }
    }
}

fn since_1970(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

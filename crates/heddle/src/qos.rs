//! `heddle qos run`: the agent, and the folder that says which pods there are.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use heddle_compile::{Addresses, Options, Watcher};
use heddle_model::report::Report;
use heddle_model::{Mesh, NodeName};
use heddle_node::exit::{Exit, Failure};
use heddle_node::serving;
use heddle_node::serving::signals::{Signal, Signals};
use heddle_node::settings::{QosSettings, Settings, TurboMode};
use heddle_node::table::count;
use heddle_qos::agent::{self, Agent, Now, Pod};
use heddle_qos::arbiter::journal::{Journal, Nowhere, Store};
use heddle_qos::arbiter::{Held, Key};
use heddle_qos::cgroup::{Mounts, System};
use heddle_qos::controllers::turbo;
use heddle_qos::network::Thread;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::{report, settings};

mod network;

/// What the command line says.
pub(crate) struct AgentPlan {
    pub(crate) dir: PathBuf,
    /// Only pods of this node.
    pub(crate) node: Option<NodeName>,
    pub(crate) is_rehearsal: bool,
    /// Folder of the journal.
    pub(crate) state: PathBuf,
}

/// Runs the agent until a signal ends it, and puts everything back.
///
/// # Errors
/// There are no control groups, another agent runs, or the folder is refused at the start.
pub(crate) fn run(plan: &AgentPlan, settings: &Settings) -> Result<Exit, Failure> {
    serving::in_runtime_of(Builder::new_current_thread(), settings, async |_| {
        let wanted = controllers(&settings.qos);
        let mounts = Mounts::find().context("cannot find the control groups")?;
        if plan.is_rehearsal {
            tracing::info!("a dry run: nothing is changed");
            let network = network::rehearse(&settings.qos.network, mounts.clone())?;
            let system = System::rehearsing(mounts);
            let agent = Agent::new(wanted, system, Nowhere, Default::default());
            return follow(agent.context("/proc")?, network, plan, settings).await;
        }
        let (journal, held) = open(&plan.state)?;
        let network = &settings.qos.network;
        let network = network::start(network, mounts.clone(), &journal, &plan.state)?;
        let left = held.len();
        let agent = Agent::new(wanted, System::new(mounts), journal, held);
        let mut agent = agent.context("/proc")?;
        if left > 0 {
            tracing::warn!(
                "an agent was killed before it had put back {}: that is done first",
                count(left, "setting")
            );
            agent.restore();
        }
        follow(agent, network, plan, settings).await
    })
}

fn controllers(settings: &QosSettings) -> agent::Settings {
    let mode = match settings.turbo {
        TurboMode::Off => None,
        TurboMode::Reactive => Some(turbo::Mode::Reactive),
        TurboMode::Predictive => Some(turbo::Mode::Predictive),
    };
    // Percentages are exact.
    let percent = |number: u64| number as f64;
    agent::Settings {
        preemption: settings.preemption,
        burst: settings.burst,
        memory: settings.memory,
        turbo: mode.map(|mode| turbo::Settings {
            high: percent(settings.turbo_high_percent.get()),
            alarm: percent(settings.turbo_alarm_percent.get()),
            ..turbo::Settings::new(mode)
        }),
    }
}

/// Follows the folder and the node until a signal comes.
async fn follow<S: Store>(
    mut agent: Agent<S>,
    mut network: Option<Thread>,
    plan: &AgentPlan,
    settings: &Settings,
) -> Result<Exit, Failure> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    let options = Options {
        addresses: Addresses::Given,
        ..settings::options(&settings.mesh)
    };
    let mut watcher = Watcher::with(&plan.dir, options);
    let (mesh, first) = watcher.next().await;
    report::say(&first);
    let mesh = mesh.ok_or_else(|| {
        let errors = count(first.errors(), "error");
        Failure::new(Exit::Refused, anyhow!("{errors} in {}", plan.dir.display()))
    })?;
    agent.set_pods(pods(&mesh, plan));
    let began = Instant::now();
    let mut changes = watched(watcher);
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = sleep(pause) => {
                pause = agent.tick(now(began));
                if let Some(network) = &mut network {
                    network.set_pods(agent.offline_pods());
                }
            }
            Some((mesh, report)) = changes.recv() => {
                report::say(&report);
                match mesh {
                    Some(mesh) => agent.set_pods(pods(&mesh, plan)),
                    None => tracing::error!("the folder is refused: the pods stay as they were"),
                }
                pause = Duration::ZERO;
            }
            signal = signals.next() => if signal == Signal::Stop {
                break;
            },
        }
    }
    let is_network_restored = network.is_none_or(Thread::stop);
    Ok(match agent.restore() && is_network_restored {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}

/// Reads the folder in a task of its own, which ticks of the agent do not interrupt.
fn watched(mut watcher: Watcher) -> tokio::sync::mpsc::Receiver<(Option<Mesh>, Report)> {
    let (sender, changes) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move { while sender.send(watcher.next().await).await.is_ok() {} });
    changes
}

fn now(began: Instant) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        since: began.elapsed(),
        unix_s: unix.unwrap_or_default().as_secs(),
    }
}

/// The pods that this agent is for.
fn pods(mesh: &Mesh, plan: &AgentPlan) -> Vec<Pod> {
    let is_here = |node: Option<&NodeName>| plan.node.is_none() || node == plan.node.as_ref();
    let here = mesh
        .workloads
        .iter()
        .filter(|workload| is_here(workload.node.as_ref()));
    let mut pods = Vec::new();
    let mut without = 0;
    for workload in here {
        match workload.qos.cgroup.clone() {
            Some(group) => pods.push(Pod {
                name: workload.name.to_string(),
                group,
                qos: workload.qos.clone(),
            }),
            None => without += 1,
        }
    }
    tracing::info!("{} with a control group", count(pods.len(), "pod"));
    if without > 0 {
        tracing::warn!(
            "{} without the annotation heddle.dev/cgroup: left alone",
            count(without, "LocalWorkload")
        );
    }
    pods
}

/// Opens the journal for this process alone.
pub(crate) fn open(folder: &Path) -> Result<(Journal, BTreeMap<Key, Held>), Failure> {
    Journal::open(folder).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let shown = folder.display();
            Failure::new(
                Exit::Busy,
                anyhow!("another agent runs with the journal in {shown}: stop it first"),
            )
        }
        _ => unreadable(folder, &error),
    })
}

/// Why a journal cannot be used.
pub(crate) fn unreadable(folder: &Path, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{error}; node QoS needs root"),
        _ => error.to_string(),
    };
    anyhow!("the journal in {}: {why}", folder.display()).into()
}

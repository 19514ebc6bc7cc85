//! `heddle qos run`: the agent, and the folder that says which pods there are.

mod proxy;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use heddle_compile::{Addresses, Options, Watcher};
use heddle_model::report::Report;
use heddle_model::{Mesh, NodeName};
use heddle_node::admin::Location;
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
use heddle_qos::threads::OfflineThreads;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::{report, settings};

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
            let system = System::rehearsing(mounts);
            let agent = Agent::new(wanted, system, Nowhere, Default::default());
            return follow(agent.context("/proc")?, None, plan, settings).await;
        }
        let (journal, held) = open(&plan.state)?;
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
        let threads = offline_threads(plan, settings)?;
        follow(agent, threads, plan, settings).await
    })
}

/// The group for the proxy's threads. What an earlier agent has left of it is put back first.
fn offline_threads(
    plan: &AgentPlan,
    settings: &Settings,
) -> Result<Option<OfflineThreads>, Failure> {
    put_threads_back(&plan.state)?;
    if !settings.qos.preemption {
        return Ok(None);
    }
    let mounts = Mounts::find().context("cannot find the control groups")?;
    let group = settings.qos.proxy_group.clone();
    match OfflineThreads::new(&mounts, group, &plan.state) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            tracing::info!("the proxy's threads for offline callers stay in its group: {error}");
            Ok(None)
        }
        made => Ok(Some(made.context("the group for the proxy's threads")?)),
    }
}

/// Puts back the proxy's threads that an agent has left in a group of their own.
pub(crate) fn put_threads_back(state: &Path) -> Result<(), Failure> {
    let mounts = Mounts::find().context("cannot find the control groups")?;
    let left = OfflineThreads::left(&mounts, state)
        .and_then(|left| left.map_or(Ok(()), |mut left| left.restore()));
    Ok(left.context("the group for the proxy's threads")?)
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
    mut threads: Option<OfflineThreads>,
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
    let mut proxy = proxy::offline_threads(Location::new(settings.qos.proxy_socket.clone()));
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = sleep(pause) => pause = agent.tick(now(began)),
            Some((mesh, report)) = changes.recv() => {
                report::say(&report);
                match mesh {
                    Some(mesh) => agent.set_pods(pods(&mesh, plan)),
                    None => tracing::error!("the folder is refused: the pods stay as they were"),
                }
                pause = Duration::ZERO;
            }
            Ok(()) = proxy.changed() => place(&mut threads, &proxy.borrow_and_update()),
            signal = signals.next() => if signal == Signal::Stop {
                break;
            },
        }
    }
    let threads = threads.map_or(Ok(()), |mut threads| threads.restore());
    if let Err(error) = &threads {
        tracing::error!("the proxy's threads cannot be put back: {error}");
    }
    Ok(match agent.restore() && threads.is_ok() {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}

/// Makes the proxy's threads for offline callers yield.
fn place(group: &mut Option<OfflineThreads>, threads: &[i32]) {
    let Some(group) = group else { return };
    match group.place(threads) {
        Ok(0) => {}
        Ok(placed) => tracing::info!(
            "{} of the proxy for offline callers yields from now on",
            count(placed, "thread")
        ),
        Err(error) => {
            tracing::warn!("the proxy's threads for offline callers do not yield: {error}");
        }
    }
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

//! `heddle qos run`: the agent, and what says which pods there are: a folder, a kubelet, or both.

mod kubelet;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use heddle_compile::{Addresses, Options, Watcher};
use heddle_model::report::Report;
use heddle_model::{Class, Mesh, NodeName};
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
use tokio::runtime::Builder;
use tokio::sync::mpsc::Receiver;
use tokio::time::sleep;

use crate::{report, settings};

/// What the command line says.
pub(crate) struct AgentPlan {
    /// The folder of manifests; at least one of it and a kubelet is there.
    pub(crate) dir: Option<PathBuf>,
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
            return follow(agent.context("/proc")?, plan, settings).await;
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
        follow(agent, plan, settings).await
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

/// Follows the pods and the node until a signal comes.
async fn follow<S: Store>(
    mut agent: Agent<S>,
    plan: &AgentPlan,
    settings: &Settings,
) -> Result<Exit, Failure> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    let mut pods = Pods::default();
    let mut changes = match &plan.dir {
        Some(dir) => {
            let (mesh, changes) = folder(dir, settings).await?;
            pods.of_folder = of_folder(&mesh, plan);
            Some(changes)
        }
        None => None,
    };
    let groups = System::new(Mounts::find().context("cannot find the control groups")?);
    let mut of_kubelet = kubelet::followed(&settings.qos.kubelet, groups)?;
    agent.set_pods(pods.all());
    let began = Instant::now();
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = sleep(pause) => {
                pause = agent.tick(now(began));
                continue;
            }
            Some((mesh, report)) = next(&mut changes) => {
                report::say(&report);
                match mesh {
                    Some(mesh) => pods.of_folder = of_folder(&mesh, plan),
                    None => tracing::error!("the folder is refused: the pods stay as they were"),
                }
            }
            Some(all) = next(&mut of_kubelet) => pods.follow_kubelet(all),
            signal = signals.next() => match signal {
                Signal::Stop => break,
                _ => continue,
            },
        }
        agent.set_pods(pods.all());
        pause = Duration::ZERO;
    }
    Ok(match agent.restore() {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}

/// The next change of a source, if there is such a source.
async fn next<T>(source: &mut Option<Receiver<T>>) -> Option<T> {
    match source {
        Some(source) => source.recv().await,
        None => None,
    }
}

/// The pods of both sources.
#[derive(Default)]
struct Pods {
    of_folder: Vec<Pod>,
    of_kubelet: Vec<Pod>,
}

impl Pods {
    fn follow_kubelet(&mut self, pods: Vec<Pod>) {
        if self.of_kubelet.len() != pods.len() {
            let is_offline = |pod: &&Pod| pod.qos.class == Class::Offline;
            let offline = pods.iter().filter(is_offline).count();
            let all = count(pods.len(), "pod");
            tracing::info!("the kubelet has {all}, {offline} of them offline");
        }
        self.of_kubelet = pods;
    }

    /// All pods. A LocalWorkload that has the name or the group of a kubelet's pod is that pod: an operator of the machine
    /// wrote it.
    fn all(&self) -> Vec<Pod> {
        let named = |pod: &Pod| {
            let mut folder = self.of_folder.iter();
            folder.any(|one| one.name == pod.name || one.group == pod.group)
        };
        let more = self.of_kubelet.iter().filter(|pod| !named(pod));
        self.of_folder.iter().chain(more).cloned().collect()
    }
}

type FolderChange = (Option<Mesh>, Report);

/// Reads the folder for the first time, and follows it.
async fn folder(
    dir: &Path,
    settings: &Settings,
) -> Result<(Mesh, Receiver<FolderChange>), Failure> {
    let options = Options {
        addresses: Addresses::Given,
        ..settings::options(&settings.mesh)
    };
    let mut watcher = Watcher::with(dir, options);
    let (mesh, first) = watcher.next().await;
    report::say(&first);
    let mesh = mesh.ok_or_else(|| {
        let errors = count(first.errors(), "error");
        Failure::new(Exit::Refused, anyhow!("{errors} in {}", dir.display()))
    })?;
    Ok((mesh, watched(watcher)))
}

/// Reads the folder in a task of its own, which ticks of the agent do not interrupt.
fn watched(mut watcher: Watcher) -> Receiver<FolderChange> {
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

/// The pods of a folder that this agent is for.
fn of_folder(mesh: &Mesh, plan: &AgentPlan) -> Vec<Pod> {
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
                is_resizing: false,
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

//! `heddle qos run`: the agent, and what says which pods there are: a folder, a kubelet, or both.

mod kubelet;
mod latency;
mod metrics;
mod network;
mod pods;
mod proxy;
mod remarks;
mod told;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use heddle_model::NodeName;
use heddle_node::admin::Ask;
use heddle_node::exit::{Exit, Failure};
use heddle_node::serving;
use heddle_node::serving::signals::{Signal, Signals};
use heddle_node::settings::{EvictionMode, QosSettings, Settings, TurboMode};
use heddle_node::table::count;
use heddle_qos::agent::{self, Agent};
use heddle_qos::arbiter::journal::{Journal, Nowhere, StateFolder, Store};
use heddle_qos::arbiter::{Held, Key};
use heddle_qos::cgroup::{Mounts, System};
use heddle_qos::controllers::{eviction, turbo};
use heddle_qos::network::Thread;
use heddle_qos::now::Now;
use heddle_qos::remarks::NotDone;
use tokio::runtime::Builder;
use tokio::time::sleep_until;

pub(crate) use self::latency::status as latency_status;
use self::latency::{Seen, StatusFile};
use self::metrics::{Look, Server};
use self::pods::{First, Pods, folder, next, not_in_force, of_folder};
use self::proxy::ProxyThreads;
pub(crate) use self::proxy::{put_threads_back, threads_left};
use self::remarks::Teller;
use crate::report;

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

/// How often the network is asked what it does not do.
const ASK_NETWORK: Duration = Duration::from_secs(1);

/// What runs beside the agent's own controllers.
struct Beside {
    proxy: ProxyThreads,
    /// The bandwidth of offline pods, if it is on.
    network: Option<Thread>,
    /// When the network was last asked what it does not do, and what it said.
    asked: Option<Instant>,
    not_done: Vec<NotDone>,
}

impl Beside {
    fn new(proxy: ProxyThreads, network: Option<Thread>) -> Self {
        Beside {
            proxy,
            network,
            asked: None,
            not_done: Vec::new(),
        }
    }

    /// What is not done. The network's thread is asked once a second: the agent may look a hundred times as often.
    fn not_done(&mut self) -> Vec<NotDone> {
        if let Some(network) = &mut self.network
            && self
                .asked
                .is_none_or(|asked| asked.elapsed() >= ASK_NETWORK)
        {
            self.asked = Some(Instant::now());
            self.not_done.clone_from(&network.snapshot().not_done);
        }
        let of_proxy = self.proxy.not_done().into_iter();
        of_proxy.chain(self.not_done.iter().cloned()).collect()
    }

    /// Puts everything back, and returns whether all of it is.
    fn restore(self) -> bool {
        let mut proxy = self.proxy;
        let is_network_back = self.network.is_none_or(Thread::stop);
        proxy.restore() && is_network_back
    }
}

/// Runs the agent until a signal ends it, and puts everything back.
///
/// # Errors
/// There are no control groups, another agent runs, or the folder is refused at the start.
pub(crate) fn run(plan: &AgentPlan, settings: &Settings) -> Result<Exit, Failure> {
    // A question to the proxy, or a name that is looked up, must not hold up the end.
    serving::in_runtime_at_once(Builder::new_current_thread(), settings, async |_| {
        // Before the first change: a signal that comes while the agent starts ends it like any other.
        let signals = Signals::new().context("cannot handle signals")?;
        let wanted = controllers(&settings.qos, plan);
        let mounts = Mounts::find().context("cannot find the control groups")?;
        if plan.is_rehearsal {
            tracing::info!(
                "a dry run: nothing is changed and no metrics are served; it follows the pods until it is stopped (Ctrl-C)"
            );
            let left = left_by_a_killed_agent(&plan.state)?;
            let network = network::rehearse(&settings.qos.network, mounts.clone())?;
            let is_left = !left.is_empty();
            let agent = Agent::new(wanted, System::rehearsing(mounts), Nowhere, left);
            let mut agent = agent.context("/proc")?;
            if is_left {
                agent.restore();
            }
            let beside = Beside::new(ProxyThreads::default(), network);
            return follow(agent, beside, signals, plan, settings).await;
        }
        if !rustix::process::geteuid().is_root() {
            tracing::warn!("not run as root: only control groups of this user can be changed");
        }
        let folder = open(&plan.state)?;
        if let Some(why) = folder.read_only() {
            return Err(anyhow!(
                "{why}: nothing is changed without a journal; name another folder by --state (qos.state)"
            )
            .into());
        }
        let journal = Journal::open(&folder);
        let (journal, held): (Journal, BTreeMap<Key, Held>) =
            journal.map_err(|error| unreadable(&error))?;
        let network = &settings.qos.network;
        let network = network::start(network, mounts.clone(), &folder)?;
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
        let beside = Beside::new(ProxyThreads::follow(plan, &settings.qos)?, network);
        follow(agent, beside, signals, plan, settings).await
    })
}

/// What an agent holds that was killed: a dry run says that a real one puts it back first.
fn left_by_a_killed_agent(state: &Path) -> Result<BTreeMap<Key, Held>, Failure> {
    let unreadable = |error| unreadable(&error);
    if StateFolder::is_in_use(state).map_err(unreadable)? {
        tracing::warn!("another agent runs: what it has changed counts as found");
        return Ok(BTreeMap::new());
    }
    let left = Journal::look(state).map_err(unreadable)?.held;
    let of_network = heddle_qos::network::Journal::look(state).map_err(unreadable)?;
    let all = left.len() + of_network.held.len();
    if all > 0 {
        let what = count(all, "setting");
        tracing::warn!(
            "an agent was killed before it had put back {what}: that would be done first"
        );
    }
    Ok(left)
}

fn controllers(settings: &QosSettings, plan: &AgentPlan) -> agent::Settings {
    let eviction = match settings.eviction {
        EvictionMode::Off => eviction::Mode::Off,
        EvictionMode::Act if !plan.is_rehearsal => eviction::Mode::Act,
        EvictionMode::Act | EvictionMode::Advise => eviction::Mode::Advise,
    };
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
        io: settings.io,
        eviction,
        latency: settings.latency,
        root: settings.root.clone(),
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
    mut beside: Beside,
    mut signals: Signals,
    plan: &AgentPlan,
    settings: &Settings,
) -> Result<Exit, Failure> {
    let mut teller = Teller::new((!plan.is_rehearsal).then(|| plan.state.clone()));
    let mut metrics = match plan.is_rehearsal {
        true => None,
        false => Server::start(settings.qos.metrics)?,
    };
    let (first, first_refused, mut folder_status, mut changes) = match &plan.dir {
        Some(dir) => {
            let First {
                mesh,
                refused,
                status,
                changes,
            } = folder(dir, settings).await?;
            (of_folder(&mesh, plan), refused, Some(status), Some(changes))
        }
        None => (Vec::new(), Vec::new(), None, None),
    };
    let groups = System::new(Mounts::find().context("cannot find the control groups")?);
    let (mut of_kubelet, answers) = kubelet::followed(&settings.qos.kubelet, groups)?.unzip();
    let mut pods = Pods::new(first, of_kubelet.is_some());
    agent.set_pods(pods.all());
    let folder = (!plan.is_rehearsal).then_some(plan.state.as_path());
    let mut status = StatusFile::new(folder);
    let mut seen = Seen::at(settings.qos.proxy_socket.clone());
    // What of the folder is not in force as it is written.
    let mut refused = first_refused;
    let began = Instant::now();
    let mut due = tokio::time::Instant::now();
    loop {
        tokio::select! {
            // A moment, not a pause: what else happens does not put it off.
            () = sleep_until(due) => {
                let pause = agent.tick(now(began));
                due = tokio::time::Instant::now() + pause;
                let mut remarks = agent.remarks();
                remarks.not_done.extend(refused.clone());
                remarks.not_done.extend(beside.not_done());
                teller.tell(remarks);
                if let Some(network) = &mut beside.network {
                    network.set_pods(agent.batch());
                }
                seen.want(agent.has_objectives());
                status.follow(agent.latency());
                continue;
            }
            Some((mesh, report)) = next(&mut changes) => {
                report::say(&report);
                if let Some(status) = &mut folder_status {
                    status.follow(mesh.is_some(), &report);
                }
                match mesh {
                    Some(mesh) => {
                        pods.of_folder = of_folder(&mesh, plan);
                        let dir = plan.dir.as_deref();
                        refused = dir.map_or_else(Vec::new, |dir| not_in_force(dir, &report));
                    }
                    None => {
                        tracing::error!("the folder is refused: the pods stay as they were");
                        refused.extend(plan.dir.as_deref().map(refusal));
                        refused.dedup();
                    }
                }
            }
            latencies = seen.next() => {
                agent.saw(now(began), &latencies);
                continue;
            }
            () = beside.proxy.changed() => {
                beside.proxy.place();
                continue;
            }
            Some(ask) = asked(&mut metrics) => {
                if let Some(metrics) = &metrics {
                    metrics.answer(ask, pods.are_known(), || Look {
                        agent: agent.snapshot(),
                        network: beside.network.as_mut().map(|network| network.snapshot().clone()),
                        kubelet: answers.clone(),
                        folder: folder_status,
                    });
                }
                continue;
            }
            Some(all) = next(&mut of_kubelet) => pods.follow_kubelet(all),
            signal = signals.next() => match signal {
                Signal::Stop => break,
                _ => continue,
            },
        }
        agent.set_pods(pods.all());
        due = tokio::time::Instant::now();
    }
    let are_back = beside.restore();
    teller.end();
    Ok(match (plan.is_rehearsal || agent.restore()) && are_back {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}

/// What status says of a folder that was refused.
fn refusal(dir: &Path) -> NotDone {
    let dir = dir.display();
    NotDone {
        setting: "qos.folder".to_owned(),
        why: format!(
            "the last edit of {dir} is refused: the pods stay as they were (heddle validate {dir})"
        ),
    }
}

/// The next question for metrics, if they are served.
async fn asked(server: &mut Option<Server>) -> Option<Ask> {
    match server {
        Some(server) => server.questions.recv().await,
        None => None,
    }
}

fn now(began: Instant) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        since: began.elapsed(),
        unix_s: unix.unwrap_or_default().as_secs(),
    }
}

/// Takes the state folder for this process alone.
pub(crate) fn open(folder: &Path) -> Result<StateFolder, Failure> {
    StateFolder::open(folder).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let shown = folder.display();
            Failure::new(
                Exit::Busy,
                anyhow!("another agent runs with the state folder {shown}: stop it first"),
            )
        }
        _ => unreadable(&error),
    })
}

/// Why the state folder, or a journal, cannot be used. The error names it.
pub(crate) fn unreadable(error: &io::Error) -> Failure {
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    match is_denied && !rustix::process::geteuid().is_root() {
        true => anyhow!("{error}; node QoS needs root").into(),
        false => anyhow!("{error}").into(),
    }
}

//! The agent: samples the node and its groups, asks the controllers, and has the arbiter write.
//!
//! It has no thread and no clock of its own: its owner calls [`Agent::tick`], which says when to call again.

mod disks;
mod eviction;
mod latency;
mod left_alone;
mod node;
mod notes;
mod plan;
mod snapshot;
#[cfg(test)]
mod tests;
mod turbo;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use heddle_model::{Class, Qos};

use self::disks::IoWeights;
use self::eviction::Evictions;
use self::latency::LatencyLoop;
pub use self::latency::{Latencies, LatencyStatus, PodLatency};
use self::left_alone::LeftAlone;
use self::node::{Memory, Node};
use self::notes::Notes;
pub use self::snapshot::Snapshot;
use self::turbo::TurboPods;
use crate::arbiter::journal::Store;
use crate::arbiter::{Arbiter, Change, Held, Key, Refusal, Restored};
use crate::cgroup::{Below, ControlGroup, Knob, System, Value};
use crate::controllers::eviction::Mode as EvictionMode;
use crate::controllers::fssr::{self, Fssr};
use crate::controllers::turbo::Settings as TurboSettings;
use crate::network::OfflinePod;
use crate::now::Now;
use crate::remarks::{NotDone, Remarks};

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name, as in output: `namespace/name`.
    pub name: String,
    /// Its control group, which may not be there yet.
    pub group: ControlGroup,
    /// What shall be done for it.
    pub qos: Qos,
    /// Whether its owner changes its groups now, as a kubelet does that resizes it: until it has, everything there is as
    /// without us. The kernel would refuse a weight for a group that is idle, and a quota below its burst.
    pub is_resizing: bool,
    /// Whether a kubelet runs it. Then the API server ends it, and the agent never does.
    pub is_of_kubelet: bool,
}

/// Which controllers run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Offline pods yield the processors.
    pub preemption: bool,
    /// Pods that ask for it may save up quota.
    pub burst: bool,
    /// Pods that ask for it get more quota while there is time to spare.
    pub turbo: Option<TurboSettings>,
    /// Offline pods give up memory when the node runs short.
    pub memory: bool,
    /// Offline pods yield the disk.
    pub io: bool,
    /// What is done when pressure lasts.
    pub eviction: EvictionMode,
    /// Offline pods get less quota while an online pod misses its objective.
    pub latency: bool,
    /// The group that all pods are in: its memory limit counts as the node's memory, where it is less than the machine's.
    pub root: Option<ControlGroup>,
}

/// How often groups are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often quotas follow their use.
const TURBO: Duration = Duration::from_millis(100);
/// How long a pod may be without its group before that is said: it may be about to start.
const MISSING: Duration = Duration::from_secs(5);

/// The agent of one node.
#[derive(Debug)]
pub struct Agent<S> {
    settings: Settings,
    arbiter: Arbiter<System, S>,
    node: Node,
    pods: Vec<Pod>,
    /// Pods that were offline, with their group's inode: they do not become online again.
    offline: BTreeMap<String, u64>,
    /// Pods without a group, and since when.
    missing: BTreeMap<String, Duration>,
    notes: Notes,
    turbo: TurboPods,
    latency: LatencyLoop,
    fssr: Option<Fssr>,
    /// The groups of the pods' containers.
    containers: Below,
    io: IoWeights,
    evictions: Evictions,
    left_alone: LeftAlone,
    swept: Option<Duration>,
    checked_memory: Option<Duration>,
}

impl<S: Store> Agent<S> {
    /// An agent that has no pods yet. `held` is what an earlier process held: call [`Agent::restore`] first.
    ///
    /// # Errors
    /// When `/proc` does not tell how busy the node is.
    pub fn new(
        settings: Settings,
        groups: System,
        store: S,
        held: BTreeMap<Key, Held>,
    ) -> io::Result<Self> {
        let node = Node::open()?;
        let memory = node_memory(&node, &groups, settings.root.as_ref());
        let fssr = match settings.memory {
            true => Some(Fssr::new(memory?.total)),
            false => None,
        };
        Ok(Agent {
            turbo: TurboPods::new(settings.turbo),
            latency: LatencyLoop::default(),
            settings,
            arbiter: Arbiter::new(groups, store, held),
            node,
            pods: Vec::new(),
            offline: BTreeMap::new(),
            missing: BTreeMap::new(),
            notes: Notes::default(),
            fssr,
            containers: Below::default(),
            io: IoWeights::default(),
            evictions: Evictions::new()?,
            left_alone: LeftAlone::default(),
            swept: None,
            checked_memory: None,
        })
    }

    /// The pods of this node from now on. What was done for others is put back by the next tick.
    pub fn set_pods(&mut self, pods: Vec<Pod>) {
        self.pods = pods;
        self.swept = None;
    }

    /// Everything that is not as it was found.
    #[cfg(test)]
    fn held(&self) -> &BTreeMap<Key, Held> {
        self.arbiter.held()
    }

    /// Does what is due, and returns how long nothing will be.
    pub fn tick(&mut self, now: Now) -> Duration {
        let is_due = |last: Option<Duration>, every: Duration| {
            last.is_none_or(|last| now.since.saturating_sub(last) >= every)
        };
        if is_due(self.swept, SWEEP) {
            self.swept = Some(now.since);
            self.sweep(now);
        }
        if self.fssr.is_some() && is_due(self.checked_memory, fssr::INTERVAL) {
            self.checked_memory = Some(now.since);
            self.memory(now);
        }
        self.evictions(now);
        match self.turbo.is_empty() {
            true => SWEEP,
            false => {
                self.turbo(now);
                TURBO
            }
        }
    }

    /// Puts everything back, and returns whether all of it is.
    pub fn restore(&mut self) -> bool {
        let mut is_done = true;
        for (key, held, restored) in self.arbiter.restore_all() {
            match restored {
                Restored::Done => {
                    tracing::debug!("the {key} is {} again", key.knob.shown(held.original));
                }
                Restored::Gone => tracing::debug!("the {key} is gone"),
                Restored::Foreign(value) => {
                    let value = key.knob.shown(value);
                    tracing::warn!("another program set the {key} to {value}, which stays");
                }
                Restored::Failed(error) => {
                    is_done = false;
                    let original = key.knob.shown(held.original);
                    tracing::error!("the {key} cannot be set back to {original}: {error}");
                }
            }
        }
        is_done
    }

    /// Brings the groups of all pods to what they should have, and puts back what no pod wants any more.
    fn sweep(&mut self, now: Now) {
        self.left_alone.begin_sweep(now);
        for (key, done) in self.arbiter.begin_sweep() {
            if let Restored::Foreign(value) = done {
                self.left_alone
                    .add(&Refusal::Foreign(key.clone(), value), &key, now);
            }
        }
        let pods = self.pods.clone();
        let mut wanted = BTreeSet::new();
        for pod in &pods {
            let Some(inode) = self.inode_of(pod, now) else {
                continue;
            };
            let class = self.class(pod, inode);
            if pod.is_resizing {
                self.let_go(pod);
                continue;
            }
            for change in self.changes(pod, class) {
                wanted.extend(change.steps.iter().map(|step| step.key.clone()));
                self.apply(&change, now);
            }
        }
        wanted.extend(self.io_weights(now));
        self.note_what_is_not_done(&pods);
        let there: BTreeSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        self.offline.retain(|name, _| there.contains(name.as_str()));
        self.missing.retain(|name, _| there.contains(name.as_str()));
        wanted.extend(self.follow_latency(now));
        let in_reach = pods.iter().filter(|pod| !pod.is_resizing);
        wanted.extend(self.refresh_turbo(in_reach));
        let held: Vec<Key> = self.arbiter.held().keys().cloned().collect();
        let offline = self.offline_pods().map(|pod| pod.group.clone());
        let offline: BTreeSet<ControlGroup> = offline.collect();
        for key in held {
            let is_wanted = match key.knob {
                Knob::Memory => self.fssr.is_some() && offline.contains(&key.group),
                Knob::CpuShare
                | Knob::CpuQuota
                | Knob::CpuBurst
                | Knob::IoWeight
                | Knob::BfqWeight => wanted.contains(&key),
            };
            if !is_wanted && let Restored::Failed(error) = self.arbiter.restore(&key) {
                tracing::warn!("the {key} cannot be put back, and will be tried again: {error}");
            }
        }
        self.arbiter.end_sweep();
        self.left_alone.tell(&mut self.notes);
        self.notes.end_sweep();
        let groups: BTreeSet<&ControlGroup> = pods.iter().map(|pod| &pod.group).collect();
        self.containers.retain(|group| groups.contains(group));
    }

    /// The inode of a pod's group, which may not be there yet.
    fn inode_of(&mut self, pod: &Pod, now: Now) -> Option<u64> {
        match self.arbiter.groups().inode_of(&pod.group) {
            Ok(inode) => {
                self.missing.remove(&pod.name);
                Some(inode)
            }
            Err(error) => {
                let since = self.missing.entry(pod.name.clone()).or_insert(now.since);
                if now.since.saturating_sub(*since) >= MISSING {
                    let why = match error.kind() {
                        io::ErrorKind::NotFound => {
                            format!("there is no control group {}", pod.group)
                        }
                        _ => format!("the control group {}: {error}", pod.group),
                    };
                    let why = format!("{why}: nothing is done for the pod until there is");
                    self.notes.pod("heddle.dev/cgroup", &pod.name, &why);
                }
                None
            }
        }
    }

    /// Says what is so of pods and their groups that an operator would not expect.
    fn note_what_is_not_done(&mut self, pods: &[Pod]) {
        if let Some(root) = &self.settings.root
            && self.arbiter.groups().inode_of(root).is_err()
        {
            let why = format!("there is no control group {root}: the machine's memory counts");
            self.notes.add("qos.root".to_owned(), &why);
        }
        let offline = pods.iter();
        let offline = offline.filter(|pod| self.known_class(pod) == Class::Offline);
        let offline: BTreeMap<&str, &str> = offline
            .map(|pod| (pod.group.as_str(), pod.name.as_str()))
            .collect();
        for pod in pods {
            let within = pod.group.and_above().find_map(|group| offline.get(group));
            if let Some(other) = within
                && self.known_class(pod) == Class::Online
            {
                let why = format!(
                    "its control group is that of {other} or in it, which is offline: it yields as well. Give it a group beside"
                );
                self.notes.pod("heddle.dev/class", &pod.name, &why);
            }
        }
    }

    /// The pod's class. One that was offline stays so: its work runs already, and would disturb online pods at once.
    fn class(&mut self, pod: &Pod, inode: u64) -> Class {
        let was_offline = self.offline.get(&pod.name) == Some(&inode);
        match (pod.qos.class, was_offline) {
            (Class::Online, false) => {
                // It may have been offline before it was started anew.
                self.offline.remove(&pod.name);
                return Class::Online;
            }
            (Class::Online, true) => {
                let why = "it is offline and cannot become online while it runs: start it anew";
                self.notes.pod("heddle.dev/class", &pod.name, why);
            }
            (Class::Offline, _) => {
                self.offline.insert(pod.name.clone(), inode);
            }
        }
        Class::Offline
    }

    /// What was left alone at a pod that is resized may be changed again afterwards.
    fn let_go(&mut self, pod: &Pod) {
        let is_of_pod = |key: &Key| key.group == pod.group || key.group.is_below(&pod.group);
        self.left_alone.forget(is_of_pod);
    }

    /// The class of a pod as it was last found.
    fn known_class(&self, pod: &Pod) -> Class {
        match self.offline.contains_key(&pod.name) {
            true => Class::Offline,
            false => Class::Online,
        }
    }

    /// Offline pods whose groups are ours to change.
    fn offline_pods(&self) -> impl Iterator<Item = &Pod> {
        let is_offline = |pod: &&Pod| self.known_class(pod) == Class::Offline && !pod.is_resizing;
        self.pods.iter().filter(is_offline)
    }

    /// The pods that are offline, as of the last tick.
    pub fn batch(&self) -> Vec<OfflinePod> {
        let offline = self.pods.iter();
        let offline = offline.filter(|pod| self.known_class(pod) == Class::Offline);
        let pods = offline.map(|pod| OfflinePod {
            name: pod.name.clone(),
            group: pod.group.clone(),
        });
        pods.collect()
    }

    /// What there is to say beside what is held.
    pub fn remarks(&self) -> Remarks {
        let io = self.io_lack().map(|why| NotDone {
            setting: "qos.io".to_owned(),
            why,
        });
        let mut remarks = Remarks {
            not_done: io.into_iter().chain(self.notes.told()).collect(),
            ..Remarks::default()
        };
        self.evictions.tell(&mut remarks);
        remarks
    }

    /// Lets memory follow what is free.
    fn memory(&mut self, now: Now) {
        let memory = node_memory(
            &self.node,
            self.arbiter.groups(),
            self.settings.root.as_ref(),
        );
        let (Some(fssr), Ok(memory)) = (&mut self.fssr, memory) else {
            return;
        };
        if fssr.total() != memory.total {
            // The limit of all pods was changed, or their group was made only now.
            *fssr = Fssr::new(memory.total);
        }
        let limit = fssr.step(memory.free);
        for change in self.memory_changes(limit) {
            self.apply(&change, now);
        }
    }

    /// Makes a change, unless another program has written one of its knobs lately.
    fn apply(&mut self, change: &Change, now: Now) -> bool {
        let steps = &mut change.steps.iter();
        if steps.any(|step| self.left_alone.has(&step.key)) {
            return false;
        }
        let Err(refusal) = self.arbiter.apply(change, now.unix_s) else {
            return true;
        };
        match &refusal {
            Refusal::Gone(_) => {}
            // Memory that cannot be reclaimed now may be later.
            Refusal::Failed(_, error) if error.kind() == io::ErrorKind::ResourceBusy => {
                tracing::debug!("{refusal}");
            }
            Refusal::Foreign(key, _) | Refusal::Failed(key, _) => {
                self.left_alone.add(&refusal, key, now);
            }
        }
        false
    }
}

/// Memory of the machine, or of the group that all pods are in where that is scarcer.
fn node_memory(node: &Node, groups: &System, root: Option<&ControlGroup>) -> io::Result<Memory> {
    let machine = node.memory()?;
    // The group may not be there yet.
    Ok(match root.map(|root| groups.memory(root)) {
        Some(Ok((Value::Amount(limit), used))) => machine.within(limit, used),
        _ => machine,
    })
}

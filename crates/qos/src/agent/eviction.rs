//! Eviction of offline pods: the shell around [`crate::controllers::eviction`], which decides.
//!
//! Pressure is read every five seconds, what each pod uses only while there is some.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use heddle_model::Class;
use rustix::process::Signal;

use super::node::Node;
use super::{Agent, Pod};
use crate::arbiter::journal::Store;
use crate::cgroup::{ControlGroup, Groups, Knob, Value, Version, pressure};
use crate::controllers::eviction::{
    Candidate, Cause, CpuSample, Event, Eviction, INTERVAL, LEAST_CPU_PRESSURE, MemorySample, Mode,
    Order, Sample,
};
use crate::now::Now;
use crate::remarks::{Evicted, NotDone, Remarks};

#[cfg(test)]
mod tests;

/// What is known of evictions.
#[derive(Debug)]
pub(super) struct Evictions {
    controller: Eviction,
    /// Has samples of its own of how busy the node is.
    node: Node,
    sampled: Option<Duration>,
    /// Why the kernel does not tell pressure.
    untold: Option<String>,
    evicted: Option<Evicted>,
    /// How many pods were evicted.
    count: u64,
    /// The group of the pod that is being evicted, and whether it was killed already.
    target: Option<Target>,
    /// Takes the place of what the machine says.
    #[cfg(test)]
    pub(super) sample: Option<Sample>,
}

#[derive(Debug)]
struct Target {
    group: ControlGroup,
    inode: u64,
    is_killed: bool,
    /// Whether it was said that it cannot be killed.
    is_warned: bool,
}

impl Evictions {
    /// # Errors
    /// When `/proc` does not tell how busy the node is.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Evictions {
            controller: Eviction::default(),
            node: Node::open()?,
            sampled: None,
            untold: None,
            evicted: None,
            count: 0,
            target: None,
            #[cfg(test)]
            sample: None,
        })
    }

    /// How many pods were evicted.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds what there is to say.
    pub(super) fn tell(&self, remarks: &mut Remarks) {
        remarks.advice = self.controller.advice().to_vec();
        remarks.evicted.clone_from(&self.evicted);
        remarks
            .not_done
            .extend(self.untold.as_ref().map(|why| NotDone {
                setting: "qos.eviction".to_owned(),
                why: why.clone(),
            }));
    }
}

impl<S: Store> Agent<S> {
    /// Looks at pressure when that is due, and evicts where that is allowed.
    pub(super) fn evictions(&mut self, now: Now) {
        if self.settings.eviction == Mode::Off {
            return;
        }
        let is_due = |last: Duration| now.since.saturating_sub(last) >= INTERVAL;
        if self.evictions.sampled.is_none_or(is_due) {
            self.evictions.sampled = Some(now.since);
            self.advise(now);
        }
        if self.settings.eviction == Mode::Act {
            self.act(now);
        }
    }

    fn advise(&mut self, now: Now) {
        let sample = self.sample();
        let candidates = match self.evictions.controller.wants_candidates(&sample) {
            true => self.candidates(),
            false => Vec::new(),
        };
        for event in self.evictions.controller.step(now, &sample, &candidates) {
            match event {
                Event::Began(advice) => {
                    let pod = self.pods.iter().find(|pod| pod.name == advice.pod);
                    let is_of_kubelet = pod.is_some_and(|pod| pod.is_of_kubelet);
                    let how = match (is_of_kubelet, self.settings.eviction) {
                        (true, Mode::Act) => {
                            " (a kubelet runs it: delete the Pod at the API server)"
                        }
                        _ => "",
                    };
                    tracing::warn!("it is advised to evict {}{how}: {}", advice.pod, advice.why);
                }
                Event::Ended(advice) => {
                    let (pod, cause) = (&advice.pod, advice.cause);
                    let seconds = now.unix_s.saturating_sub(advice.since_s);
                    tracing::info!(
                        "it is no longer advised to evict {pod} for {cause}, after {seconds} s"
                    );
                }
            }
        }
    }

    /// What the machine says of memory and processors.
    fn sample(&mut self) -> Sample {
        #[cfg(test)]
        if let Some(sample) = self.evictions.sample {
            return sample;
        }
        let memory = self.memory_sample();
        let busy = self.evictions.node.used();
        Sample {
            memory: memory.ok(),
            cpu: busy.ok().and_then(|busy| self.cpu_sample(busy)),
        }
    }

    fn memory_sample(&mut self) -> io::Result<MemorySample> {
        let groups = self.arbiter.groups();
        let root = self.settings.root.as_ref();
        let of_root = root.and_then(|root| groups.pressure(root, Cause::Memory).ok().flatten());
        let mut memory = self.node.available()?;
        if let Some(root) = root
            && let Ok((Value::Amount(limit), used)) = groups.memory(root)
        {
            let idle = groups.idle_file_pages(root).unwrap_or_default();
            memory = memory.within(limit, used.saturating_sub(idle));
        }
        let pressure = match of_root {
            Some(pressure) => Some(pressure),
            None => self.told(pressure::of_machine(Cause::Memory)),
        };
        Ok(MemorySample {
            pressure,
            total: memory.total,
            available: memory.free,
        })
    }

    /// Pressure, if the kernel tells it. That it does not is said once.
    fn told<T>(&mut self, read: io::Result<T>) -> Option<T> {
        let error = match read {
            Ok(told) => {
                self.evictions.untold = None;
                return Some(told);
            }
            Err(error) => error,
        };
        if self.evictions.untold.is_none() {
            let why = format!(
                "the kernel does not tell pressure ({error}; it needs CONFIG_PSI and psi=1): evictions are advised by available memory alone"
            );
            tracing::warn!("{why}");
            self.evictions.untold = Some(why);
        }
        None
    }

    /// How long online pods wait for processors that are so busy, in percent.
    fn cpu_sample(&self, busy: f64) -> Option<CpuSample> {
        let machine = pressure::of_machine(Cause::Cpu).ok()?.some;
        // Percentages: between 0 and 100.
        let sample = |some: u32| CpuSample {
            some,
            busy: busy as u32,
        };
        if machine < LEAST_CPU_PRESSURE {
            return Some(sample(machine));
        }
        let groups = self.arbiter.groups();
        if groups.cpu_version() == Some(Version::V2) {
            let online = self.online_groups();
            let each = online.filter_map(|group| groups.pressure(group, Cause::Cpu).ok().flatten());
            return each
                .map(|pressure| sample(pressure.some.min(machine)))
                .max_by_key(|one| one.some);
        }
        // The kernel tells it of the machine alone: work of offline pods that wait because they yield is in it.
        let mut offline = self.offline_pods();
        offline
            .any(|pod| !self.yields(pod))
            .then(|| sample(machine))
    }

    /// The offline pods that could be evicted.
    fn candidates(&self) -> Vec<Candidate> {
        let groups = self.arbiter.groups();
        let is_v1 = groups.cpu_version() != Some(Version::V2);
        let pods = self
            .evictable()
            .filter(|pod| groups.may_have_process(&pod.group));
        let candidates = pods.map(|pod| {
            let used = || groups.cpu_files(&pod.group).and_then(|files| files.read());
            let counts = !(is_v1 && self.yields(pod));
            Candidate {
                pod: pod.name.clone(),
                memory: groups.memory(&pod.group).map_or(0, |(_, used)| used),
                cpu_us: counts.then(used).and_then(|used| Some(used.ok()?.used_us)),
            }
        });
        candidates.collect()
    }

    /// Offline pods that are the same as when they were found offline, and whose processes are no online pod's.
    fn evictable(&self) -> impl Iterator<Item = &Pod> {
        self.offline_pods().filter(|pod| {
            let inode = self.arbiter.groups().inode_of(&pod.group).ok();
            let is_same = inode.is_some() && self.offline.get(&pod.name).copied() == inode;
            let mut online = self.online_groups();
            let is_shared = online.any(|group| {
                *group == pod.group || group.is_below(&pod.group) || pod.group.is_below(group)
            });
            is_same && !is_shared
        })
    }

    fn online_groups(&self) -> impl Iterator<Item = &ControlGroup> {
        let is_online = |pod: &&Pod| self.known_class(pod) == Class::Online;
        self.pods.iter().filter(is_online).map(|pod| &pod.group)
    }

    /// Whether a pod runs only when nothing else wants to.
    fn yields(&self, pod: &Pod) -> bool {
        let share = self.arbiter.groups().read(&pod.group, Knob::CpuShare);
        matches!(share, Ok(Value::Idle))
    }

    fn act(&mut self, now: Now) {
        if self.evictions.controller.advice().is_empty() && self.evictions.target.is_none() {
            return;
        }
        self.look_for_the_end();
        let allowed = self.evictable().filter(|pod| !pod.is_of_kubelet);
        let allowed: Vec<Pod> = allowed.cloned().collect();
        let names: BTreeSet<&str> = allowed.iter().map(|pod| pod.name.as_str()).collect();
        let order = self.evictions.controller.order(now.since, &names);
        let group_of = |name: &str| {
            let pod = allowed.iter().find(|pod| pod.name == name);
            pod.map(|pod| pod.group.clone())
        };
        match order {
            Some(Order::Terminate(pod, why)) => {
                if let Some(group) = group_of(&pod) {
                    self.terminate(now, pod, why, group);
                }
            }
            Some(Order::Kill(_)) => self.kill(),
            None => {}
        }
    }

    fn terminate(&mut self, now: Now, pod: String, why: String, group: ControlGroup) {
        let groups = self.arbiter.groups();
        let sent = groups
            .inode_of(&group)
            .and_then(|inode| Ok((inode, groups.signal(&group, Signal::TERM)?)));
        match sent {
            Ok((inode, processes)) => {
                tracing::warn!("{pod} is evicted: SIGTERM to {processes} of its processes: {why}");
                self.evictions.target = Some(Target {
                    group,
                    inode,
                    is_killed: false,
                    is_warned: false,
                });
                self.evictions.count += 1;
                self.evictions.evicted = Some(Evicted {
                    pod,
                    why,
                    at_s: now.unix_s,
                });
            }
            Err(error) => {
                tracing::error!("{pod} cannot be evicted: {error}");
                self.evictions.controller.is_gone();
            }
        }
    }

    fn kill(&mut self) {
        let Some(target) = &mut self.evictions.target else {
            return self.evictions.controller.is_gone();
        };
        let groups = self.arbiter.groups();
        let error = match groups.signal(&target.group, Signal::KILL) {
            Ok(processes) => {
                if !target.is_killed {
                    let group = &target.group;
                    tracing::warn!("SIGKILL to {processes} of the processes of {group}");
                }
                target.is_killed = true;
                return;
            }
            Err(error) => error,
        };
        match error.kind() {
            // It has a process that may not be ended.
            io::ErrorKind::PermissionDenied => {
                tracing::error!("{} cannot be killed: {error}", target.group);
                self.evictions.target = None;
                self.evictions.controller.is_gone();
            }
            // The next look finds the end.
            io::ErrorKind::NotFound => {}
            _ => match groups.kill_all(&target.group) {
                Ok(()) => {
                    if !target.is_killed {
                        let group = &target.group;
                        tracing::warn!("{group} is killed by cgroup.kill: {error}");
                    }
                    target.is_killed = true;
                }
                // It is tried again until another pod may be evicted.
                Err(refused) => {
                    if !target.is_warned {
                        tracing::warn!(
                            "{} cannot be killed, and its processes may still run: {error}; {refused}",
                            target.group
                        );
                    }
                    target.is_warned = true;
                }
            },
        }
    }

    /// Forgets the pod that is being evicted when it has no process left, or another group has its path. What cannot be
    /// read is no end.
    fn look_for_the_end(&mut self) {
        let Some(target) = &self.evictions.target else {
            return;
        };
        let groups = self.arbiter.groups();
        let is_same = match groups.inode_of(&target.group) {
            Ok(inode) => inode == target.inode,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if is_same && groups.may_have_process(&target.group) {
            return;
        }
        tracing::info!("no process of {} is left", target.group);
        self.evictions.target = None;
        self.evictions.controller.is_gone();
    }
}

//! The latency loop: what the proxy has seen of online pods with an objective limits what offline pods may use.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::Class;
use serde::{Deserialize, Serialize};

use super::plan::step;
use super::{Agent, Now, Pod};
use crate::arbiter::journal::Store;
use crate::arbiter::{Change, Key, Step};
use crate::cgroup::{ControlGroup, Groups, Knob, Value};
use crate::controllers::latency::share::shares;
use crate::controllers::latency::window::{STALE, Window};
use crate::controllers::latency::{INTERVAL, Judgement, Latency, TIGHTEST};

/// Groups below a pod's that are looked at, and how deep: a runtime has one or two levels. Were there more, version 1 would
/// refuse the quota, and the pod would be left alone.
const MAX_GROUPS: usize = 256;
const MAX_DEPTH: usize = 4;
/// Least quota that the kernel takes, in microseconds.
const LEAST_QUOTA_US: u64 = 1_000;

/// Histograms of the durations of requests, as the proxy of this node has counted them since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Upper bounds of the buckets in microseconds. One bucket more is above all bounds.
    pub bounds_us: Vec<u64>,
    /// Requests in each bucket (not cumulative), by the pod that they went to: `namespace/name`.
    pub pods: BTreeMap<String, Vec<u64>>,
}

/// What the loop does now, as `heddle qos status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// From 0, which limits nothing, to `tightest`.
    pub level: usize,
    /// The tightest level.
    pub tightest: usize,
    /// What all offline pods together may use, in percent of the machine's processors, unless they are not limited.
    pub percent: Option<u8>,
    /// Pods with an objective: the one that is worst off first.
    pub pods: Vec<PodLatency>,
}

/// An online pod with an objective.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodLatency {
    /// Its name: `namespace/name`.
    pub pod: String,
    /// The p99 of its requests' durations in microseconds, if it is known.
    pub p99_us: Option<u64>,
    /// Its objective in milliseconds.
    pub objective_ms: u64,
}

impl PodLatency {
    /// The p99 in percent of the objective, rounded up: above 100 it is missed.
    fn percent(&self) -> Option<u64> {
        let objective_us = self.objective_ms.saturating_mul(1_000).max(1);
        Some(self.p99_us?.saturating_mul(100).div_ceil(objective_us))
    }
}

/// The loop's state.
#[derive(Debug, Default)]
pub(super) struct LatencyLoop {
    controller: Latency,
    /// Requests of each pod with an objective, by its name.
    windows: BTreeMap<String, Window>,
    /// Pods with an objective as of the last judgement, the worst one first.
    pods: Vec<PodLatency>,
    /// Whether the proxy has answered since then.
    is_fresh: bool,
    judged: Option<Duration>,
    /// Offline pods whose quota is decided here.
    limited: BTreeSet<ControlGroup>,
    /// Why the level is what it is.
    why: String,
}

impl LatencyLoop {
    /// Whether a pod's quota is decided here: neither turbo nor burst changes it then.
    pub(super) fn limits(&self, pod: &ControlGroup) -> bool {
        self.limited.contains(pod)
    }
}

/// A group whose quota may be limited.
struct Limited {
    group: ControlGroup,
    period_us: u64,
    own: Value,
}

/// An offline pod: its own group and those below it that have a quota.
struct LimitedPod {
    name: String,
    group: Limited,
    below: Vec<Limited>,
    /// Processors that it may use without us.
    own: Option<f64>,
}

impl<S: Store> Agent<S> {
    /// Whether an online pod declares an objective.
    pub fn has_objectives(&self) -> bool {
        self.objectives().next().is_some()
    }

    /// What the loop does; `None` without an objective while nothing is limited.
    pub fn latency(&self) -> Option<LatencyStatus> {
        let state = &self.latency;
        let level = state.controller.level();
        (level > 0 || !state.pods.is_empty()).then(|| LatencyStatus {
            level,
            tightest: TIGHTEST,
            percent: state.controller.percent(),
            pods: state.pods.clone(),
        })
    }

    /// Takes what the proxy has seen until now. What does not fit together is passed over.
    pub fn saw(&mut self, now: Now, seen: &Latencies) {
        let names: BTreeSet<String> = self.objectives().map(|(pod, _)| pod.name.clone()).collect();
        let state = &mut self.latency;
        state.windows.retain(|name, _| names.contains(name));
        for name in names {
            if let Some(counts) = seen.pods.get(&name) {
                let window = state.windows.entry(name).or_default();
                window.add(now.since, &seen.bounds_us, counts);
            }
        }
        state.is_fresh = true;
    }

    fn objectives(&self) -> impl Iterator<Item = (&Pod, u64)> {
        let is_on = self.settings.latency;
        let online = self.pods.iter();
        let online = online.filter(move |pod| is_on && self.known_class(pod) == Class::Online);
        online.filter_map(|pod| Some((pod, pod.qos.latency_p99_ms?)))
    }

    /// Judges what was seen, limits offline pods accordingly, and returns the knobs that may differ from their origin.
    pub(super) fn follow_latency(&mut self, now: Now) -> BTreeSet<Key> {
        self.judge(now);
        let Some(percent) = self.latency.controller.percent() else {
            self.latency.limited.clear();
            return BTreeSet::new();
        };
        let pods: Vec<LimitedPod> = self
            .offline_pods()
            .filter_map(|pod| self.limited_pod(pod))
            .collect();
        let own: Vec<Option<f64>> = pods.iter().map(|pod| pod.own).collect();
        let all = self.node.processors() * f64::from(percent) / 100.0;
        let least = pods.iter().map(LimitedPod::least).fold(0.0, f64::max);
        let mut wanted = BTreeSet::new();
        for (pod, share) in pods.iter().zip(shares(all, &own, least)) {
            let Some(share) = share else { continue };
            let change = self.limit(pod, share);
            wanted.extend(change.steps.iter().map(|step| step.key.clone()));
            self.apply(&change, now);
        }
        self.latency.limited = pods.into_iter().map(|pod| pod.group.group).collect();
        wanted
    }

    fn judge(&mut self, now: Now) {
        let since = self.latency.judged.map(|at| now.since.saturating_sub(at));
        let pause = match self.latency.is_fresh {
            true => INTERVAL,
            false => STALE,
        };
        if since.is_some_and(|since| since < pause) {
            return;
        }
        let windows = &self.latency.windows;
        let mut pods: Vec<PodLatency> = self
            .objectives()
            .map(|(pod, objective_ms)| PodLatency {
                pod: pod.name.clone(),
                p99_us: windows.get(&pod.name).and_then(|one| one.p99_us(now.since)),
                objective_ms,
            })
            .collect();
        pods.sort_by_key(|pod| std::cmp::Reverse(pod.percent()));
        let worst = pods.first();
        let judgement = match worst.map(PodLatency::percent) {
            None => Judgement::NoObjective,
            Some(None) => Judgement::Unknown,
            Some(Some(percent)) => Judgement::Worst(percent),
        };
        let why = match worst {
            Some(
                pod @ PodLatency {
                    p99_us: Some(us), ..
                },
            ) => format!(
                "the p99 of {} is {:.1} ms, its objective {} ms",
                pod.pod,
                *us as f64 / 1e3,
                pod.objective_ms
            ),
            Some(_) => "no p99 of a pod with an objective is known".to_owned(),
            None => "no pod has an objective".to_owned(),
        };
        let state = &mut self.latency;
        state.pods = pods;
        state.is_fresh = false;
        state.judged = Some(now.since);
        if state.controller.step(now.since, judgement) {
            state.windows.values_mut().for_each(Window::begin_anew);
            let may = match state.controller.percent() {
                Some(percent) => format!("offline pods share {percent} % of the processors"),
                None => "offline pods are not limited".to_owned(),
            };
            tracing::info!("{why}: {may}");
            state.why = format!("{why}: {may}");
        }
    }

    /// `None` when the pod's group cannot be read: it is not there yet, or not any more.
    fn limited_pod(&self, pod: &Pod) -> Option<LimitedPod> {
        let group = self.limited(pod.group.clone())?;
        let children = |group: &ControlGroup| self.arbiter.groups().children(group);
        let below = groups_below(&pod.group, |group| children(group).unwrap_or_default());
        let mut below: Vec<Limited> = below.filter_map(|one| self.limited(one)).collect();
        // Those without a quota are held back by the one above.
        below.retain(|one| one.own != Value::Max);
        // Version 1 refuses a quota above that of a group above the pod, such as the one of all pods.
        let mut own = group.processors();
        let mut path = pod.group.as_str();
        while let Some((above, _)) = path.rsplit_once('/') {
            let above_us = ControlGroup::new(above)
                .ok()
                .and_then(|one| self.limited(one));
            let limit = above_us.and_then(|above| above.processors());
            own = [own, limit].into_iter().flatten().reduce(f64::min);
            path = above;
        }
        Some(LimitedPod {
            name: pod.name.clone(),
            group,
            below,
            own,
        })
    }

    fn limited(&self, group: ControlGroup) -> Option<Limited> {
        let key = Key {
            group: group.clone(),
            knob: Knob::CpuQuota,
        };
        let period_us = self.arbiter.groups().cpu_period_us(&group).ok()?;
        Some(Limited {
            own: self.arbiter.original(&key).ok()?,
            period_us: Some(period_us).filter(|us| *us > 0)?,
            group,
        })
    }

    /// The quotas of a pod and its containers for a share in processors.
    fn limit(&self, pod: &LimitedPod, share: f64) -> Change {
        // Whole microseconds.
        let quota_us = ((share * pod.group.period_us as f64) as u64).max(LEAST_QUOTA_US);
        let mut steps = Vec::with_capacity(pod.below.len() + 1);
        for one in [&pod.group].into_iter().chain(&pod.below) {
            // A container's part of its period is at most the pod's, as version 1 wants it.
            let us =
                u128::from(quota_us) * u128::from(one.period_us) / u128::from(pod.group.period_us);
            let us = u64::try_from(us).unwrap_or(u64::MAX).max(LEAST_QUOTA_US);
            // The kernel refuses a quota below what may be saved up.
            steps.extend(self.without_burst(&one.group));
            steps.push(step(
                &one.group,
                Knob::CpuQuota,
                Value::Amount(us).min(one.own),
            ));
        }
        Change {
            pod: pod.name.clone(),
            class: Class::Offline,
            why: self.latency.why.clone(),
            steps,
        }
    }

    /// Lets a group save up nothing, if it does now or did without us.
    fn without_burst(&self, group: &ControlGroup) -> Option<Step> {
        let none = step(group, Knob::CpuBurst, Value::Amount(0));
        let now = self.arbiter.groups().read(group, Knob::CpuBurst).ok()?;
        let original = self.arbiter.original(&none.key).ok()?;
        (now.max(original) > none.value).then_some(none)
    }
}

/// The groups below a pod's that are looked at: those nearest to it, so that a container which makes many of its own
/// does not hide another container.
fn groups_below(
    pod: &ControlGroup,
    children: impl Fn(&ControlGroup) -> Vec<ControlGroup>,
) -> impl Iterator<Item = ControlGroup> {
    let mut all = vec![(pod.clone(), 0)];
    let mut looked_at = 0;
    while let Some((parent, depth)) = all.get(looked_at).cloned() {
        // The pod's own group is one more.
        let room = (MAX_GROUPS + 1).saturating_sub(all.len());
        if depth == MAX_DEPTH || room == 0 {
            break;
        }
        looked_at += 1;
        let some = children(&parent).into_iter().take(room);
        all.extend(some.map(|child| (child, depth + 1)));
    }
    all.into_iter().skip(1).map(|(group, _)| group)
}

impl Limited {
    /// The quota without us, in processors.
    fn processors(&self) -> Option<f64> {
        Some(self.own.amount()? as f64 / self.period_us as f64)
    }
}

impl LimitedPod {
    /// Processors of which the kernel takes a quota at each of its groups.
    fn least(&self) -> f64 {
        let all = [&self.group].into_iter().chain(&self.below);
        let shortest = all.map(|one| one.period_us).min().unwrap_or(LEAST_QUOTA_US);
        LEAST_QUOTA_US as f64 / shortest as f64
    }
}

//! Brings together what the kubelet says and what is in the tree, and says when to ask the kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::ControlGroup;

use super::answer::{Answer, KubeletPod};
use super::group::Uid;
use super::resize::Resizes;
use super::tree::Tree;
use crate::agent::Pod;

#[cfg(test)]
mod tests;

/// How often the tree is looked at, and how soon the kubelet may be asked again.
pub const LOOK: Duration = Duration::from_secs(1);
/// How soon a kubelet that did not answer is asked again, at most.
const AGAIN: Duration = Duration::from_secs(5);

/// The pods of a kubelet.
#[derive(Debug)]
pub struct Follower {
    every: Duration,
    tree: Tree,
    pods: Vec<KubeletPod>,
    resizes: Resizes,
    /// Groups that were there when the kubelet was asked, and that its answer did not have: left over, or another's.
    strangers: BTreeSet<Uid>,
    /// When the kubelet was asked last, and what was in the tree then.
    asked: Option<(Duration, BTreeSet<Uid>)>,
    is_away: bool,
}

impl Follower {
    /// Asks the kubelet `every` so often when nothing happens.
    pub fn new(tree: Tree, every: Duration) -> Self {
        Follower {
            every,
            tree,
            pods: Vec::new(),
            resizes: Resizes::default(),
            strangers: BTreeSet::new(),
            asked: None,
            is_away: false,
        }
    }

    /// Looks at the tree: to be done every [`LOOK`]. `below` lists the groups directly below one.
    pub fn look(&mut self, below: impl Fn(&ControlGroup) -> Vec<ControlGroup>) {
        self.tree.look(below);
        let there: BTreeSet<&Uid> = self.tree.uids().collect();
        self.strangers.retain(|uid| there.contains(uid));
    }

    /// Whether to ask the kubelet now: at the start, once in a while, and within a second when a group of an unknown pod
    /// has appeared or a pod is being resized.
    pub fn is_due(&self, now: Duration) -> bool {
        let Some((asked, _)) = &self.asked else {
            return true;
        };
        let since = now.saturating_sub(*asked);
        let wait = match () {
            () if self.is_away => self.every.min(AGAIN),
            () if self.resizes.is_any_let_go(now) || self.has_unknown() => LOOK,
            () => self.every,
        };
        since >= wait
    }

    /// The kubelet is asked now.
    pub fn asks(&mut self, now: Duration) {
        self.asked = Some((now, self.tree.uids().cloned().collect()));
    }

    /// It has answered. Returns whether it was away before.
    pub fn answered(&mut self, now: Duration, answer: Answer) -> bool {
        let listed: BTreeSet<&Uid> = answer.pods.iter().map(|pod| &pod.uid).collect();
        if let Some((_, there)) = &self.asked {
            let others = there.iter().filter(|uid| !listed.contains(*uid));
            self.strangers = others.cloned().collect();
        }
        let resizing = answer.pods.iter().filter(|pod| pod.is_resizing);
        self.resizes.follow(now, resizing.map(|pod| &pod.uid));
        self.pods = answer.pods;
        // A kubelet lists them in no order.
        self.pods
            .sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        std::mem::replace(&mut self.is_away, false)
    }

    /// It has not answered: the pods stay as they were. Returns whether it was there before.
    pub fn is_missing(&mut self) -> bool {
        !std::mem::replace(&mut self.is_away, true)
    }

    /// The pods, as the kubelet described them last.
    pub fn described(&self) -> &[KubeletPod] {
        &self.pods
    }

    /// Names of pods whose resize does not end.
    pub fn stuck(&self, now: Duration) -> impl Iterator<Item = &str> {
        let is_stuck =
            move |pod: &&KubeletPod| pod.is_resizing && !self.resizes.is_let_go(&pod.uid, now);
        self.pods
            .iter()
            .filter(is_stuck)
            .map(|pod| pod.name.as_str())
    }

    /// The pods whose place is known, for the agent.
    pub fn pods(&self, now: Duration) -> Vec<Pod> {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut pods = Vec::with_capacity(self.pods.len());
        for pod in &self.pods {
            let Some(place) = self.tree.group(&pod.uid, pod.pod_qos) else {
                continue;
            };
            // A pod that ends, and the one that replaces it under the same name.
            let same = names.entry(&pod.name).or_default();
            *same += 1;
            let name = match *same {
                1 => pod.name.clone(),
                _ => format!("{} ({})", pod.name, pod.uid),
            };
            pods.push(Pod {
                name,
                group: place.group,
                qos: pod.qos.clone(),
                is_resizing: self.resizes.is_let_go(&pod.uid, now),
                is_of_kubelet: true,
            });
        }
        pods
    }

    fn has_unknown(&self) -> bool {
        let known: BTreeSet<&Uid> = self.pods.iter().map(|pod| &pod.uid).collect();
        let mut there = self.tree.uids();
        there.any(|uid| !known.contains(uid) && !self.strangers.contains(uid))
    }
}

//! Which changes have come to which nodes. No clock: the caller says when something came.
//!
//! A change has come to a node when the node has marked it, or a later change of the same pod: the control plane may
//! merge what follows in quick succession.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::schedule::Schedule;
use super::shape::{Shape, service_of};

#[cfg(test)]
mod tests;

/// Which nodes are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Those that use the Service.
    Users,
    /// All.
    All,
}

#[derive(Debug)]
pub(super) struct Ledger {
    schedule: Schedule,
    changes: Vec<ChangeRecord>,
    /// The changes of each pod, in order.
    of_pods: HashMap<usize, Vec<usize>>,
    /// The newest change of a pod that a node has.
    newest: HashMap<(usize, usize), usize>,
    /// By node: whether it is left out.
    is_left_out: Vec<bool>,
    /// Changes that nodes were told, each time.
    pub(super) delivered: u64,
    /// Changes that came to a node with a later one of the same pod.
    pub(super) merged: u64,
    /// Changes that came to nodes that do not use the Service.
    pub(super) strangers: u64,
    told: Told,
}

#[derive(Debug, Clone, Copy)]
struct ChangeRecord {
    pod: usize,
    /// The nodes that it has not come to.
    waits_for: usize,
    /// The nodes that it goes to.
    nodes: usize,
    last: Option<Instant>,
}

/// The changes of the window.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// How long each change took that came to all its nodes, from when it was due until it came to the last one.
    pub(super) took: Vec<Duration>,
    /// Changes that did not come to all their nodes.
    pub(super) missed: usize,
    /// The nodes that a change goes to, on average.
    pub(super) nodes: f64,
}

impl Ledger {
    /// Before the first change. Nothing is expected of nodes that are `left_out`, and what they have is not looked at.
    pub(super) fn new(schedule: Schedule, shape: &Shape, told: Told, left_out: &[usize]) -> Ledger {
        let is_left_out: Vec<bool> = (0..shape.nodes)
            .map(|node| left_out.contains(&node))
            .collect();
        let counted = |nodes: &[usize]| nodes.iter().filter(|node| !is_left_out[**node]).count();
        let all = shape.nodes - left_out.len();
        let mut of_pods: HashMap<usize, Vec<usize>> = HashMap::new();
        let changes = schedule.changes().map(|change| {
            let pod = schedule.pod(change);
            of_pods.entry(pod).or_default().push(change);
            let nodes = match told {
                Told::Users => counted(shape.users(service_of(pod))),
                Told::All => all,
            };
            ChangeRecord {
                pod,
                waits_for: nodes,
                nodes,
                last: None,
            }
        });
        Ledger {
            changes: changes.collect(),
            schedule,
            of_pods,
            newest: HashMap::new(),
            is_left_out,
            delivered: 0,
            merged: 0,
            strangers: 0,
            told,
        }
    }

    /// A node has marked this change.
    pub(super) fn came(&mut self, node: usize, change: usize, shape: &Shape, at: Instant) {
        // Of an earlier run, if it is not of this one.
        let index = change.checked_sub(self.schedule.first);
        let Some(record) = index.and_then(|index| self.changes.get(index)) else {
            return;
        };
        if self.is_left_out[node] {
            return;
        }
        let pod = record.pod;
        let users = shape.users(service_of(pod));
        if self.told == Told::Users && users.binary_search(&node).is_err() {
            self.strangers += 1;
            return;
        }
        let before = self.newest.get(&(node, pod)).copied();
        if before >= Some(change) {
            return;
        }
        self.newest.insert((node, pod), change);
        self.delivered += 1;
        let of_pod = self.of_pods.get(&pod).into_iter().flatten().copied();
        for one in of_pod.filter(|one| Some(*one) > before && *one <= change) {
            self.merged += u64::from(one < change);
            let record = &mut self.changes[one - self.schedule.first];
            record.waits_for = record.waits_for.saturating_sub(1);
            record.last = Some(at);
        }
    }

    /// How many changes have not come to all their nodes.
    pub(super) fn open(&self) -> usize {
        let open = self.changes.iter().filter(|one| one.waits_for > 0);
        open.count()
    }

    /// What became of the changes of the window.
    pub(super) fn pushed(&self) -> Pushed {
        let mut pushed = Pushed::default();
        let mut nodes = 0;
        let window = self.changes.iter().zip(self.schedule.changes());
        for (record, change) in window.skip(self.schedule.warm_up) {
            nodes += record.nodes;
            match record.last.filter(|_| record.waits_for == 0) {
                Some(last) => pushed.took.push(last - self.schedule.due(change)),
                None => pushed.missed += 1,
            }
        }
        let count = pushed.took.len() + pushed.missed;
        pushed.nodes = nodes as f64 / count.max(1) as f64;
        pushed.took.sort_unstable();
        pushed
    }
}

/// The value below which this part of all sorted values is (nearest rank), in milliseconds.
pub(super) fn quantile_ms(sorted: &[Duration], part: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    let found = sorted.get(rank.saturating_sub(1))?;
    Some(found.as_secs_f64() * 1e3)
}

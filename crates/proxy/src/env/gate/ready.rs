//! The order in which ready work runs: online before offline, each first in, first out, with a floor for offline work.

use std::collections::VecDeque;

use heddle_model::Class;

use super::WorkKey;

/// Offline work that waits is owed this part of the time that online work takes, as a power of two: a sixteenth.
const FLOOR_SHIFT: u32 = 4;
/// Time that offline work has to be owed before it goes first. One piece of it may take longer.
const DUE_NS: u64 = 100_000;
/// Most time that it can be owed: what waited for long must not take a Worker for long.
const MOST_OWED_NS: u64 = 1_000_000;

/// A task's entry in the ready queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) slot: u32,
    /// Guards against a wake that arrives after the slot was given to another task.
    pub(super) generation: u64,
    pub(super) key: WorkKey,
}

/// Ready work in the order it will run.
#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    online: VecDeque<Work>,
    offline: VecDeque<Work>,
    /// Whether an account is that of an offline caller, by its row. Empty while there is none.
    is_offline: Vec<bool>,
    /// Time that offline work is owed.
    owed_ns: u64,
}

impl ReadyQueue {
    pub(super) fn push(&mut self, work: Work) {
        match self.is_offline(work.key) {
            false => self.online.push_back(work),
            true => self.offline.push_back(work),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Work> {
        if self.offline.is_empty() {
            return self.online.pop_front();
        }
        let is_due = self.owed_ns >= DUE_NS;
        match self.online.is_empty() || is_due {
            true => self.offline.pop_front(),
            false => self.online.pop_front(),
        }
    }

    /// Accounts for a piece of work that has run. Returns whether it was offline.
    pub(super) fn ran(&mut self, key: WorkKey, spent_ns: u64) -> bool {
        if self.is_offline(key) {
            self.owed_ns = self.owed_ns.saturating_sub(spent_ns);
            return true;
        }
        if !self.offline.is_empty() {
            self.owed_ns = (self.owed_ns + (spent_ns >> FLOOR_SHIFT)).min(MOST_OWED_NS);
        }
        false
    }

    #[inline]
    fn is_offline(&self, key: WorkKey) -> bool {
        self.is_offline
            .get(key.row())
            .is_some_and(|offline| *offline)
    }

    /// The class of an account's caller.
    pub(super) fn class(&self, key: WorkKey) -> Class {
        match self.is_offline(key) {
            false => Class::Online,
            true => Class::Offline,
        }
    }

    /// Says of an account whether its caller is offline. Work that is queued keeps its place.
    pub(super) fn set_offline(&mut self, key: WorkKey, is_offline: bool) {
        let row = key.row();
        if is_offline && self.is_offline.len() <= row {
            self.is_offline.resize(row + 1, false);
        }
        if let Some(known) = self.is_offline.get_mut(row) {
            *known = is_offline;
        }
    }

    /// From now on no caller is offline.
    pub(super) fn forget_offline(&mut self) {
        self.is_offline = Vec::new();
    }

    /// Shrinks the queues if they have become far too large.
    pub(super) fn tidy(&mut self) {
        for queue in [&mut self.online, &mut self.offline] {
            if super::is_roomy(queue.len(), queue.capacity()) {
                queue.shrink_to_fit();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.online.len() + self.offline.len()
    }
}

//! Numbers that addresses are made of, each given once.

use std::collections::{BTreeMap, BTreeSet};

/// Who has which number, counted from 1. What had one before keeps it; what is new gets none that anything before had, so
/// that nothing is taken for what has just gone.
pub(super) struct Numbers<K> {
    before: BTreeMap<K, u16>,
    taken: BTreeSet<u16>,
    last: u16,
}

impl<K: Ord> Numbers<K> {
    /// The number of one of that name, which is asked for once.
    pub(super) fn of(&mut self, name: &K) -> u16 {
        if let Some(number) = self.before.get(name) {
            return *number;
        }
        loop {
            self.last = self.last.saturating_add(1);
            if self.last == u16::MAX || !self.taken.contains(&self.last) {
                return self.last;
            }
        }
    }
}

impl<K: Ord> FromIterator<(K, u16)> for Numbers<K> {
    fn from_iter<I: IntoIterator<Item = (K, u16)>>(before: I) -> Self {
        let before: BTreeMap<K, u16> = before.into_iter().collect();
        Self {
            taken: before.values().copied().collect(),
            before,
            last: 0,
        }
    }
}

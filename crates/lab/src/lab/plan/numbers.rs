//! Unique numbers, from which addresses are made.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers from 1. An old name keeps its number; a new name never gets the number of an old one, so that a new pod
/// cannot be taken for one that has just gone.
pub(super) struct Numbers<K> {
    before: BTreeMap<K, u16>,
    taken: BTreeSet<u16>,
    last: u16,
}

impl<K: Ord> Numbers<K> {
    /// The number of a name. Call it once for each name: a new name gets another number each time.
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

//! The valid entries in pages, of which only those are made anew in which something has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use heddle_compile::registered::{Entries, Entry, EntryPage};

use super::Held;

#[cfg(test)]
mod tests;

/// Entries of a new page. One that has grown to twice as many is divided; one that has shrunk to a quarter is joined with
/// the next one. Few in tests, so that they do both.
const ENTRIES: usize = if cfg!(test) { 4 } else { 64 };

/// All pages, and what has changed since they were made.
#[derive(Debug)]
pub(super) struct Pages {
    /// By the key at which a page begins; it ends where the next one begins. The first one begins before all keys.
    pages: BTreeMap<Vec<u8>, EntryPage>,
    /// Keys whose entry may be another one than in its page; `None` while that is so of all, before the first list is complete.
    changed: Option<BTreeSet<Vec<u8>>>,
}

impl Default for Pages {
    fn default() -> Self {
        Pages {
            pages: BTreeMap::from([(Vec::new(), EntryPage::default())]),
            changed: None,
        }
    }
}

impl Pages {
    /// Notes that the entry of a key may be another one, or gone.
    pub(super) fn changed(&mut self, key: &[u8]) {
        if let Some(changed) = &mut self.changed {
            changed.insert(key.to_vec());
        }
    }

    /// Whether that was noted since the last call of [`Pages::refresh`].
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn has_changed(&self, key: &[u8]) -> bool {
        let changed = self.changed.as_ref();
        changed.is_none_or(|changed| changed.contains(key))
    }

    /// The valid entries of all keys, and the keys that have changed since the last call.
    pub(super) fn refresh(
        &mut self,
        held: &BTreeMap<Vec<u8>, Held>,
    ) -> (Entries, BTreeSet<Vec<u8>>) {
        let changed = self.changed.replace(BTreeSet::new());
        let changed = changed.unwrap_or_else(|| held.keys().cloned().collect());
        let begins: BTreeSet<Vec<u8>> = changed.iter().map(|key| self.page_of(key)).collect();
        for begin in begins {
            // It may have been joined with the one before it.
            if self.pages.remove(&begin).is_some() {
                self.make(begin, held);
            }
        }
        (Entries::new(self.pages.values().cloned()), changed)
    }

    /// Where the page of a key begins.
    fn page_of(&self, key: &[u8]) -> Vec<u8> {
        let to = (Bound::Unbounded, Bound::Included(key));
        let page = self.pages.range::<[u8], _>(to).next_back();
        page.map_or_else(Vec::new, |(begin, _)| begin.clone())
    }

    /// Makes the page anew that begins at this key, or several.
    fn make(&mut self, begin: Vec<u8>, held: &BTreeMap<Vec<u8>, Held>) {
        let mut entries = self.entries(&begin, held);
        if entries.len() < ENTRIES / 4
            && let Some(next) = self.next(&begin)
        {
            self.pages.remove(&next);
            entries = self.entries(&begin, held);
        }
        if entries.is_empty() && !begin.is_empty() {
            return;
        }
        let in_one = if entries.len() < 2 * ENTRIES {
            2 * ENTRIES
        } else {
            ENTRIES
        };
        let page = |some: &[(&Vec<u8>, &Arc<Entry>)]| {
            some.iter().map(|(_, one)| Arc::clone(one)).collect()
        };
        let mut pieces = entries.chunks(in_one);
        let first = pieces.next().map_or_else(EntryPage::default, page);
        for piece in pieces {
            if let Some((begin, _)) = piece.first() {
                self.pages.insert((*begin).clone(), page(piece));
            }
        }
        self.pages.insert(begin, first);
    }

    /// Where the page after the one that begins at this key begins.
    fn next(&self, begin: &[u8]) -> Option<Vec<u8>> {
        let after = (Bound::Excluded(begin), Bound::Unbounded);
        let next = self.pages.range::<[u8], _>(after).next();
        next.map(|(begin, _)| begin.clone())
    }

    /// The valid entries from this key on until the next page.
    fn entries<'h>(
        &self,
        begin: &[u8],
        held: &'h BTreeMap<Vec<u8>, Held>,
    ) -> Vec<(&'h Vec<u8>, &'h Arc<Entry>)> {
        let next = self.next(begin);
        let end = next.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = held.range::<[u8], _>((Bound::Included(begin), end));
        let entries = range.filter_map(|(key, held)| Some((key, &held.good.as_ref()?.0)));
        entries.collect()
    }
}

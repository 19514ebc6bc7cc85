//! The entries of a registry, in pages that one state shares with the next one.
//!
//! A registry may have a hundred thousand entries, of which a few change at a time. A state of it that lists them all costs
//! as little as the pages that have changed, and so does the comparison of two states.

use std::collections::HashSet;
use std::sync::Arc;

use heddle_model::differences;

use super::{Entry, ProviderKey};

#[cfg(test)]
mod tests;

/// Entries next to each other.
pub type EntryPage = Arc<[Arc<Entry>]>;

/// Entries in the order of their keys in etcd. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    pages: Arc<[EntryPage]>,
    len: usize,
}

/// An entry before and now; one of the two is there.
pub(super) type EntryDifference = (Option<Arc<Entry>>, Option<Arc<Entry>>);

impl Entries {
    /// The entries of all these pages. Their keys are in order, across pages as well.
    pub fn new(pages: impl IntoIterator<Item = EntryPage>) -> Self {
        let pages: Arc<[EntryPage]> = pages.into_iter().collect();
        Entries {
            len: pages.iter().map(|page| page.len()).sum(),
            pages,
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Entry>> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// The entries that are others now, new, or gone. Takes time for the pages that the two do not share.
    pub(super) fn differences(&self, now: &Entries) -> Vec<EntryDifference> {
        let apart = |one: &Entries, other: &Entries| {
            let shared: HashSet<*const Arc<Entry>> =
                other.pages.iter().map(|page| page.as_ptr()).collect();
            let pages = one.pages.iter();
            let apart = pages.filter(|page| !shared.contains(&page.as_ptr()));
            apart.flat_map(|page| page.iter().cloned()).collect()
        };
        let (before, after): (Vec<Arc<Entry>>, Vec<Arc<Entry>>) =
            (apart(self, now), apart(now, self));
        let differences = differences(
            &before,
            &after,
            |one, other| in_etcd(&one.key).cmp(in_etcd(&other.key)),
            |one, other| Arc::ptr_eq(one, other) || one == other,
        );
        let owned = |(before, now): (Option<&_>, Option<&_>)| (before.cloned(), now.cloned());
        differences.into_iter().map(owned).collect()
    }
}

/// As one page. The keys are in order.
impl FromIterator<Arc<Entry>> for Entries {
    fn from_iter<I: IntoIterator<Item = Arc<Entry>>>(entries: I) -> Self {
        Entries::new([entries.into_iter().collect()])
    }
}

/// As one page. The keys are in order.
impl From<Vec<Arc<Entry>>> for Entries {
    fn from(entries: Vec<Arc<Entry>>) -> Self {
        entries.into_iter().collect()
    }
}

/// The key as etcd sorts it: by its bytes.
fn in_etcd(key: &ProviderKey) -> impl Iterator<Item = u8> + '_ {
    let parts = [
        key.namespace.as_str(),
        "/",
        key.service.as_str(),
        "/",
        key.provider.as_str(),
    ];
    parts.into_iter().flat_map(str::bytes)
}

//! What differs between two states of the registry.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::registered::{Entry, ProviderKey};

/// A provider that is another one now, new, or gone.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) old: Option<Arc<Entry>>,
    pub(super) new: Option<Arc<Entry>>,
}

/// The changes from one list to the next; both are in the order of etcd.
pub(super) fn changes(old: &[Arc<Entry>], new: &[Arc<Entry>]) -> Vec<Change> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut changes = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => Ordering::Equal,
            (Some(old), Some(new)) => in_etcd(&old.key).cmp(in_etcd(&new.key)),
        };
        let old = if order.is_le() { old.next() } else { None };
        let new = if order.is_ge() { new.next() } else { None };
        let is_same = match (old, new) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
            _ => false,
        };
        if !is_same {
            changes.push(Change {
                old: old.cloned(),
                new: new.cloned(),
            });
        }
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

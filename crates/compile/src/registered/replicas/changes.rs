//! What differs between two states of the registry.

use std::sync::Arc;

use heddle_model::{Difference, differences};

use crate::registered::{Entry, ProviderKey};

/// The providers that are others now, new, or gone. Both lists are in the order of etcd.
pub(super) fn changes<'e>(
    before: &'e [Arc<Entry>],
    now: &'e [Arc<Entry>],
) -> Vec<Difference<'e, Arc<Entry>>> {
    differences(
        before,
        now,
        |one, other| in_etcd(&one.key).cmp(in_etcd(&other.key)),
        |one, other| Arc::ptr_eq(one, other) || one == other,
    )
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

//! Converts etcd's answers into the types of [`core`](super::super::core).

use etcd_client::{GetResponse, KeyValue, WatchResponse};

use super::super::access::Trouble;
use super::super::core::{Change, Kv, Page};

/// A page of a list.
///
/// # Errors
/// When the answer has no header, and so no revision.
pub(super) fn page(mut answer: GetResponse) -> Result<Page, Trouble> {
    let header = answer.take_header();
    let header = header.ok_or_else(|| Trouble::Away("an answer without a header".to_owned()))?;
    Ok(Page {
        cluster: header.cluster_id(),
        revision: header.revision(),
        more: answer.more(),
        kvs: answer.take_kvs().into_iter().map(kv).collect(),
    })
}

fn kv(kv: KeyValue) -> Kv {
    let (lease, created, modified) = (kv.lease(), kv.create_revision(), kv.mod_revision());
    let (key, value) = kv.into_key_value();
    Kv {
        key,
        value,
        lease,
        created,
        modified,
    }
}

/// Converts an event. A deletion is recognised by a version of 0, not by the event's type: the library panics on a type
/// that it does not know.
pub(super) fn change(event: &etcd_client::Event) -> Option<Change> {
    let found = event.kv()?;
    Some(match found.version() {
        0 => Change::Delete {
            key: found.key().to_vec(),
            modified: found.mod_revision(),
        },
        _ => Change::Put(kv(found.clone())),
    })
}

/// Why etcd ended a watch. A compacted revision is not a failure: everything is listed again.
pub(super) fn cancelled(answer: &WatchResponse) -> Result<(), Trouble> {
    let why = answer.cancel_reason();
    if answer.compact_revision() > 0 || why.contains("compacted") {
        tracing::info!(
            "the watch of the registry fell behind a compaction: everything is listed anew"
        );
        return Ok(());
    }
    let why = match why {
        "" => "etcd has ended the watch".to_owned(),
        why => format!("etcd has ended the watch: {why}"),
    };
    Err(match why.contains("permission denied") {
        true => Trouble::Ours(why),
        false => Trouble::Away(why),
    })
}

//! The follower's state machine, fed by fuzzing. For fuzz targets only.

use std::time::Instant;

use heddle_compile::registered::{Layout, Providers};

use crate::core::{Change, Core, Kv, Next, Page};

/// A key, its value, and its lease (0: none).
pub type Written = (Vec<u8>, Vec<u8>, i64);

/// A follower's view of a store.
#[derive(Debug)]
pub struct View {
    core: Core,
    revision: i64,
}

impl View {
    /// A view of a store with this content.
    #[must_use]
    pub fn listed(written: &[Written]) -> Self {
        let mut view = View {
            core: Core::new(Layout::default()),
            revision: 1,
        };
        view.core.begin();
        let kvs = written.iter().map(|written| kv(written, 1)).collect();
        let page = Page {
            cluster: 7,
            revision: 1,
            kvs,
            more: false,
        };
        let next = view.core.page(Instant::now(), page.clone());
        if matches!(next, Next::List { .. }) {
            view.core.page(Instant::now(), page);
        }
        view.core.check_invariants();
        view
    }

    /// Applies a change: a value written with a lease, or the deletion of the key.
    pub fn hears(&mut self, key: &[u8], written: Option<(&[u8], i64)>) {
        self.revision += 1;
        let change = match written {
            Some((value, lease)) => {
                Change::Put(kv(&(key.to_vec(), value.to_vec(), lease), self.revision))
            }
            None => Change::Delete {
                key: key.to_vec(),
                modified: self.revision,
            },
        };
        let _lists_anew = self.core.changed(self.revision, vec![change]);
        self.core.check_invariants();
    }

    /// The current providers, if they changed since the last call.
    pub fn providers(&mut self) -> Option<Providers> {
        self.core.providers()
    }
}

fn kv((key, value, lease): &Written, revision: i64) -> Kv {
    Kv {
        key: key.clone(),
        value: value.clone(),
        lease: *lease,
        created: revision,
        modified: revision,
    }
}

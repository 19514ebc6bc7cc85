//! Denied accounts have no part in forwarding for lazy Envoys: no gateway forwards in their name, and none of them is one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::Shared;

/// How often it is looked for entries of the deny-list that have expired.
const LOOK: Duration = Duration::from_secs(30);

impl Shared {
    /// Has what is denied now take no part in forwarding. Blocks if that is something else than before.
    pub(crate) fn deny_forwarding(&self) {
        let denied = self.authority.trust().denied;
        let identities = denied.identities((self.clock)());
        self.board.deny(identities.cloned().collect());
    }

    /// Follows the deny-list, also as its entries expire. Never returns.
    pub(crate) async fn follow_denied(self: Arc<Self>) {
        let mut trust = self.authority.watch_trust();
        loop {
            trust.mark_unchanged();
            let shared = Arc::clone(&self);
            let publishing = tokio::task::spawn_blocking(move || shared.deny_forwarding());
            // It fails only when the runtime ends.
            let _ended = publishing.await;
            tokio::select! {
                changed = trust.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = sleep(LOOK) => {}
            }
        }
    }
}

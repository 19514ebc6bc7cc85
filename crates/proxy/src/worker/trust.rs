//! What connections between nodes rest on, and whether it still holds.

use std::rc::Rc;
use std::sync::Arc;

use heddle_transport::Identities;

use super::{Millis, Worker};
use crate::io::{Proof, Side};

/// How often it is looked whether a certificate has expired, in milliseconds.
const LOOK_MS: Millis = 1000;

impl Worker {
    /// Whom this node can call and be called as now.
    pub(crate) fn identities(&self) -> Option<Arc<Identities>> {
        self.identities.borrow().clone()
    }

    /// Calls, and is called, as these from now on.
    pub(super) fn identify(&self, identities: Arc<Identities>) {
        self.alarms.distrust(|proof| holds(proof, &identities));
        self.upstreams.distrust(|proof| holds(proof, &identities));
        drop(self.identities.replace(Some(identities)));
    }

    /// Ends what rests on a certificate that has expired.
    pub(super) fn expire(&self, now: Millis) {
        let identities = self.identities.borrow();
        let Some(identities) = identities.as_deref() else {
            return;
        };
        if now.saturating_sub(self.expires_looked.get()) < LOOK_MS {
            return;
        }
        self.expires_looked.set(now);
        let now_s = identities.clock().now();
        self.alarms.distrust(|proof| now_s <= proof.not_after);
    }

    /// Whether what a connection to another node rests on still holds.
    pub(crate) fn believes(&self, side: &Side) -> bool {
        side.proof().is_none_or(|proof| {
            let identities = self.identities.borrow();
            identities.as_deref().is_some_and(|now| holds(proof, now))
        })
    }

    /// A place for one more connection from another node that has not proven who it is.
    pub(crate) fn unproven(self: &Rc<Self>) -> Option<Unproven> {
        let unproven = self.unproven.get();
        if unproven >= self.unproven_limit.get() {
            return None;
        }
        self.unproven.set(unproven + 1);
        Some(Unproven(Rc::clone(self)))
    }
}

/// The place of a connection that has not proven who it is.
pub(crate) struct Unproven(Rc<Worker>);

impl Drop for Unproven {
    fn drop(&mut self) {
        let unproven = &self.0.unproven;
        unproven.set(unproven.get().saturating_sub(1));
    }
}

/// Whether a peer is believed, and whoever vouches for it, and neither its certificate nor ours has expired.
fn holds(proof: &Proof, identities: &Identities) -> bool {
    identities.clock().now() <= proof.not_after
        && identities.trust().trusts(proof.root)
        && identities.check(&proof.peer).is_ok()
}

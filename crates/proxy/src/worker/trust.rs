//! What connections between nodes rest on, and whether it still holds.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use heddle_transport::{Identities, Refusal};

use super::alarm::Rope;
use super::{Alarm, Worker};
use crate::clock::Millis;
use crate::io::{Carrier, Proof, Side};

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
    pub(crate) fn believes(&self, side: &Side<impl Carrier>) -> bool {
        self.check(side).is_ok()
    }

    /// The same.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, side: &Side<impl Carrier>) -> Result<(), Refusal> {
        let Some(proof) = side.proof() else {
            return Ok(());
        };
        self.check_proof(proof)
    }

    /// Whether what a connection rested on still holds.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_proof(&self, proof: &Proof) -> Result<(), Refusal> {
        let identities = self.identities.borrow();
        let identities = identities.as_deref().ok_or(Refusal::UnknownAuthority)?;
        check(proof, identities)
    }

    /// A place for one more connection from another node that has not proven who it is. Where there is
    /// none left the oldest makes room: whoever is honest needs milliseconds.
    pub(crate) fn unproven(self: &Rc<Self>, alarm: &Alarm) -> Unproven {
        let evicted = Rc::new(Cell::new(false));
        let mut all = self.unproven.borrow_mut();
        if all.len() >= self.unproven_limit.get().max(1)
            && let Some((oldest, rope)) = all.pop_front()
        {
            oldest.set(true);
            rope.pull();
        }
        all.push_back((Rc::clone(&evicted), alarm.rope()));
        Unproven {
            worker: Rc::clone(self),
            evicted,
        }
    }
}

/// Connections that have not proven who they are, the oldest first: whether they had to make room, and
/// how they are told.
pub(super) type UnprovenOnes = VecDeque<(Rc<Cell<bool>>, Rope)>;

/// The place of a connection that has not proven who it is.
pub(crate) struct Unproven {
    worker: Rc<Worker>,
    evicted: Rc<Cell<bool>>,
}

impl Unproven {
    /// Whether it has to make room for another.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut all = self.worker.unproven.borrow_mut();
        all.retain(|(one, _)| !Rc::ptr_eq(one, &self.evicted));
    }
}

fn holds(proof: &Proof, identities: &Identities) -> bool {
    check(proof, identities).is_ok()
}

/// Whether a peer is believed, and whoever vouches for it, and neither its certificate nor ours has expired.
///
/// # Errors
/// Why not.
fn check(proof: &Proof, identities: &Identities) -> Result<(), Refusal> {
    identities.check(&proof.peer)?;
    if !identities.trust().trusts(proof.root) {
        return Err(Refusal::UnknownAuthority);
    }
    match identities.clock().now() <= proof.not_after {
        true => Ok(()),
        false => Err(Refusal::Expired),
    }
}

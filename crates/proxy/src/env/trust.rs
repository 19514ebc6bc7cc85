//! What connections between nodes rest on, and whether it still holds.

use std::sync::Arc;

use heddle_transport::{Identities, Refusal};

use super::Env;
use crate::clock::Millis;
use crate::io::{Carrier, Proof, SideOf};

/// How often it is looked whether a certificate has expired, in milliseconds.
const LOOK_MS: Millis = 1000;

impl Env {
    /// The identities with which this node calls and is called now.
    pub(crate) fn identities(&self) -> Option<Arc<Identities>> {
        self.identities.borrow().clone()
    }

    /// Whether there are any.
    pub(crate) fn is_identified(&self) -> bool {
        self.identities.borrow().is_some()
    }

    /// Calls, and is called, as these from now on.
    pub(crate) fn identify(&self, identities: Arc<Identities>) {
        self.alarms
            .distrust(|proof| proof_holds(proof, &identities));
        drop(self.identities.replace(Some(identities)));
    }

    /// Ends what rests on a certificate that has expired.
    pub(crate) fn expire(&self, now: Millis) {
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
    pub(crate) fn believes(&self, side: &SideOf<impl Carrier>) -> bool {
        self.check(side).is_ok()
    }

    /// The same.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, side: &SideOf<impl Carrier>) -> Result<(), Refusal> {
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
}

/// Whether what a connection rested on holds with these identities.
pub(crate) fn proof_holds(proof: &Proof, identities: &Identities) -> bool {
    check(proof, identities).is_ok()
}

/// Whether a peer and the root that vouches for it are believed, and neither its certificate nor ours has expired.
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

//! Whether the proofs on which connections between nodes rest are still valid.

use std::sync::Arc;

use heddle_transport::{Identities, Refusal};

use super::Env;
use crate::clock::Millis;
use crate::io::{Carrier, Proof, SideOf};

/// Interval of checks for expired certificates, in milliseconds.
const LOOK_MS: Millis = 1000;

impl Env {
    /// The identities with which this node currently calls and is called.
    pub(crate) fn identities(&self) -> Option<Arc<Identities>> {
        self.identities.borrow().clone()
    }

    /// Whether this node has identities.
    pub(crate) fn is_identified(&self) -> bool {
        self.identities.borrow().is_some()
    }

    /// Replaces the identities, and ends connections whose proof does not hold with the new ones.
    pub(crate) fn identify(&self, identities: Arc<Identities>) {
        self.alarms
            .distrust(|proof| proof_holds(proof, &identities));
        drop(self.identities.replace(Some(identities)));
    }

    /// Ends connections that rest on an expired certificate.
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

    /// Whether the proof of a connection to another node still holds.
    pub(crate) fn believes(&self, side: &SideOf<impl Carrier>) -> bool {
        self.check(side).is_ok()
    }

    /// Checks whether the proof of a connection to another node still holds.
    ///
    /// # Errors
    /// Why it does not hold.
    pub(crate) fn check(&self, side: &SideOf<impl Carrier>) -> Result<(), Refusal> {
        let Some(proof) = side.proof() else {
            return Ok(());
        };
        self.check_proof(proof)
    }

    /// Checks whether a proof still holds.
    ///
    /// # Errors
    /// Why it does not hold.
    pub(crate) fn check_proof(&self, proof: &Proof) -> Result<(), Refusal> {
        let identities = self.identities.borrow();
        let identities = identities.as_deref().ok_or(Refusal::UnknownAuthority)?;
        check(proof, identities)
    }
}

/// Whether a proof holds with these identities.
pub(crate) fn proof_holds(proof: &Proof, identities: &Identities) -> bool {
    check(proof, identities).is_ok()
}

/// Checks that the peer and its trust root are trusted, and that neither its certificate nor ours has expired.
///
/// # Errors
/// Why it does not hold.
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

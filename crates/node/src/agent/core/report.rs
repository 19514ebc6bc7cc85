//! Status of a node's identities, and problems that an operator should look at.

use heddle_model::SpiffeId;
use heddle_model::calendar::utc;
use heddle_transport::{Peer, Refusal, hex};

use super::super::disk;
use super::super::keeper::KeptIdentity;
use super::super::moment::Moment;
use super::Core;
use crate::status::{
    ClockStatus, ControlConnectionStatus, HeldStatus, IdentityStatus, TrustStatus,
};
use crate::time::duration;

/// Most problems of single identities that are listed.
const TOLD: usize = 20;
/// Failed requests for an identity that make a problem, however long the old certificate lasts.
const SEVERAL: u32 = 3;
/// Seconds without the control plane that are not a problem yet: a restart takes less.
const GRACE_S: u64 = 60;

impl Core {
    pub(crate) fn status(&self, now: Moment) -> IdentityStatus {
        let unix_s = self.clock.now();
        let (renewals, renewal_failures) = self.keeper.counts();
        let ends = self
            .keeper
            .all()
            .filter_map(|(_, kept)| Some(kept.lease?.not_after));
        // The node's own identity first.
        let mut all: Vec<_> = self.keeper.all().collect();
        all.sort_by_key(|(id, _)| **id != self.own);
        let mut status = IdentityStatus {
            node: self.name().to_owned(),
            trust_domain: Some(self.trusted.domain.to_string()),
            mesh_address: None,
            control: ControlConnectionStatus {
                address: self.link.address.clone(),
                connected: self.link.is_up,
                for_s: now.elapsed.saturating_sub(self.link.since).as_secs(),
                problem: self.link.problem.clone(),
            },
            clock: ClockStatus {
                now: unix_s,
                floor: self.clock.floor(),
                degraded: self.clock.is_degraded(),
            },
            trust: Some(TrustStatus {
                bundle_generation: self.trusted.bundle.generation,
                roots: self.trusted.bundle.roots.len(),
                deny_generation: self.trusted.denied.generation,
                denied: self.trusted.alive(unix_s),
            }),
            identities: all.into_iter().map(|one| self.held(one)).collect(),
            serves_until: ends.min(),
            renewals,
            renewal_failures,
            unsaved: self.problems.contains_key(disk::TOPIC),
            problems: Vec::new(),
        };
        status.problems = self.look(&status, unix_s);
        status
    }

    fn held(&self, (id, kept): (&SpiffeId, &KeptIdentity)) -> HeldStatus {
        let leaf = self.leaves.get(id);
        HeldStatus {
            refused: self.refused(id),
            spiffe_id: id.to_string(),
            // All 32 digits, as `heddle deny list` shows them.
            serial: leaf.map(|leaf| format!("{:0>32}", hex::encode(leaf.serial()))),
            root_sha256: self.signers.get(id).cloned(),
            not_after: kept.lease.map(|lease| lease.not_after),
            renew_at: kept.lease.map(|lease| lease.renew_at.max(lease.obtained)),
            failures: kept.failures(),
            failure: kept.failure.clone(),
        }
    }

    /// Why other nodes refuse a certificate that is there and has not expired.
    fn refused(&self, id: &SpiffeId) -> Option<String> {
        let leaf = self.leaves.get(id)?;
        let shown = Peer {
            id: id.clone(),
            node: leaf.node().cloned(),
            serial: leaf.serial().into(),
            not_before: leaf.not_before(),
            not_after: leaf.not_after(),
        };
        match self.trust.check(&shown, self.clock.now()) {
            // Expiry is reported by [`late`].
            Err(Refusal::Expired | Refusal::NotYetValid) => None,
            Err(Refusal::Denied) => Some("it is on the deny-list: no node talks to it".to_owned()),
            Err(refusal) => Some(refusal.to_string()),
            Ok(()) if shown.node.is_none() => Some(Refusal::NotANode.to_string()),
            Ok(()) if self.signers.contains_key(id) => None,
            Ok(()) => Some("no trusted root signed it".to_owned()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match &self.own.subject {
            heddle_model::Subject::Node(name) => name.as_str(),
            _ => "",
        }
    }

    /// Problems for the operator.
    fn look(&self, status: &IdentityStatus, unix_s: u64) -> Vec<String> {
        let mut problems = Vec::new();
        if status.clock.degraded {
            problems.push(format!(
                "the system's clock is behind {}, a time that has certainly passed: set it",
                utc(status.clock.floor)
            ));
        }
        let own = self.keeper.get(&self.own).and_then(|kept| kept.lease);
        let is_over = own.is_some_and(|lease| lease.is_over(unix_s));
        if is_over {
            problems.push(format!(
                "the node's own certificate has expired: make a token (heddle token create {}) and \
                 start the node with it",
                self.name()
            ));
        } else if !self.link.is_up {
            let time = duration(status.control.for_s);
            if own.is_some_and(|lease| lease.renew_at <= unix_s) {
                problems.push(format!(
                    "the control plane was not reached for {time}, and certificates are due for renewal"
                ));
            } else if status.control.for_s > GRACE_S {
                problems.push(format!(
                    "the control plane was not reached for {time}: changes do not arrive, and nothing \
                     can be renewed"
                ));
            }
        }
        let late: Vec<String> = self
            .keeper
            .all()
            .filter(|(id, _)| !(is_over && **id == self.own))
            .filter_map(|(id, kept)| match self.refused(id) {
                Some(why) => Some(format!("{id}: {why}")),
                None => late(id, kept, unix_s),
            })
            .collect();
        problems.extend(late.iter().take(TOLD).cloned());
        if late.len() > TOLD {
            problems.push(format!("and {} identities more", late.len() - TOLD));
        }
        problems.extend(self.problems.values().cloned());
        problems
    }
}

/// The problem of an identity that other nodes accept, if it has one.
fn late(id: &SpiffeId, kept: &KeptIdentity, unix_s: u64) -> Option<String> {
    let why = |text: String| match &kept.failure {
        Some(failure) => format!("{text}: {failure}"),
        None => text,
    };
    match kept.lease {
        // The first request is still pending.
        None if kept.failures() == 0 => None,
        None => Some(why(format!("{id} has no certificate"))),
        Some(lease) if lease.is_over(unix_s) => {
            Some(why(format!("{id} has expired at {}", utc(lease.not_after))))
        }
        Some(lease) if lease.is_late(unix_s) => {
            let at = utc(lease.not_after);
            Some(why(format!("{id} expires at {at} and was not renewed")))
        }
        Some(_) if kept.failures() >= SEVERAL => {
            let attempts = kept.failures();
            Some(why(format!("{id} was not renewed in {attempts} attempts")))
        }
        Some(_) => None,
    }
}

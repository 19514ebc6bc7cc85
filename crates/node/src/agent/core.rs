//! State machine of a node's identities. It has no network, no disk and no clock of its own: the caller reports what
//! happened, and carries out what the core decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use heddle_model::Random;
use heddle_model::{Mesh, SpiffeId};
use heddle_transport::{Clock, Identities, Leaf, Peer, Refusal, Trust};
use heddle_xds::TrustUpdate;

use super::keeper::Keeper;
use super::moment::Moment;
use super::trusted::Trusted;

mod report;
#[cfg(test)]
mod tests;

/// The time floor is written again once it is this many seconds above the one on disk, to keep writes rare.
const FLOOR_STEP_S: u64 = 600;
/// Longest time between two rounds of the agent's loop.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// A joined node's trust, its certificates, and its link to the control plane.
#[derive(Debug)]
pub(crate) struct Core {
    own: SpiffeId,
    clock: Arc<Clock>,
    trusted: Trusted,
    /// The part of `trusted` in force now. It changes next at `trust_until` (seconds since 1970), when a deny-list
    /// entry expires.
    trust: Arc<Trust>,
    trust_until: Option<u64>,
    leaves: BTreeMap<SpiffeId, Arc<Leaf>>,
    /// SHA-256 of the trusted root that signed each leaf; no entry if no trusted root did.
    signers: BTreeMap<SpiffeId, String>,
    keeper: Keeper,
    link: ControlConnectionState,
    /// The clock's floor when it was last raised from outside, and the uptime at that moment: the floor rises with
    /// uptime.
    certain: (u64, Duration),
    floor_on_disk: u64,
    /// The identities must be rebuilt.
    is_stale: bool,
    /// Earliest expiry among the certificates of the last rebuild, in seconds since 1970.
    lasts_until: Option<u64>,
    /// Other problems, by topic.
    problems: BTreeMap<&'static str, String>,
}

#[derive(Debug)]
struct ControlConnectionState {
    is_up: bool,
    /// Uptime of the process at the last change of `is_up`.
    since: Duration,
    /// Why the connection failed or ended.
    problem: Option<String>,
    /// Why node or control plane refused the other, if that happened since the last good connection. Kept because later
    /// attempts may fail without a reason: the connection is just closed.
    refusal: Option<String>,
    address: String,
}

impl Core {
    /// Starts with the node's own certificate, its trust, and the certificates of its workloads. `control` is the
    /// control plane's address, `floor_on_disk` the time floor that a restart would find.
    ///
    /// # Errors
    /// When a root is not a certificate.
    pub(crate) fn new(
        (clock, floor_on_disk): (Arc<Clock>, u64),
        (own, trusted): (Arc<Leaf>, Trusted),
        leaves: Vec<Arc<Leaf>>,
        control: String,
        random: Random,
        now: Moment,
    ) -> Result<Core, String> {
        let id = own.id().clone();
        let trust = trusted
            .in_force(now.unix_s)
            .map_err(|error| error.to_string())?;
        let mut keeper = Keeper::new(id.clone(), random);
        keeper.hold(&id, (own.not_before(), own.not_after()), None);
        let leaves = leaves.into_iter().map(|leaf| (leaf.id().clone(), leaf));
        let floor = clock.floor();
        let mut core = Core {
            trust_until: trusted.next_end(now.unix_s),
            trust,
            trusted,
            leaves: leaves.chain([(id.clone(), own)]).collect(),
            signers: BTreeMap::new(),
            own: id,
            keeper,
            link: ControlConnectionState {
                is_up: false,
                since: now.elapsed,
                problem: None,
                refusal: None,
                address: control,
            },
            certain: (floor, now.elapsed),
            floor_on_disk,
            is_stale: true,
            lasts_until: None,
            problems: BTreeMap::new(),
            clock,
        };
        core.doubt();
        Ok(core)
    }

    pub(crate) fn link_up(&mut self, now: Moment) {
        if !self.link.is_up {
            self.link.since = now.elapsed;
        }
        self.link.is_up = true;
        self.link.problem = None;
        self.link.refusal = None;
        self.problem("control", None);
    }

    /// The connection failed or ended. Returns the reason, after the last refusal if there was one.
    pub(crate) fn link_down(&mut self, why: String, now: Moment) -> String {
        self.keeper.broken();
        if self.link.is_up {
            self.link.since = now.elapsed;
        }
        self.link.is_up = false;
        let why = match &self.link.refusal {
            Some(refusal) if *refusal != why => format!("{refusal}; since then: {why}"),
            _ => why,
        };
        self.link.problem = Some(why.clone());
        why
    }

    /// Like [`Core::link_down`], because node or control plane refused the other: this stays a problem until a
    /// connection succeeds.
    pub(crate) fn link_refused(&mut self, why: String, now: Moment) -> String {
        let problem = format!("no data from the control plane: {why}");
        self.problem("control", Some(problem));
        self.link.refusal = Some(why.clone());
        self.link_down(why, now)
    }

    /// Checks the connected control plane against the trust in force now.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn check_peer(&self, peer: &Peer) -> Result<(), Refusal> {
        self.trust.check(peer, self.clock.now())
    }

    /// Identities to request certificates for now.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<SpiffeId> {
        self.keeper.due(now)
    }

    /// Puts a new certificate to use, if it is for the requested identity and verifies against the trust in force.
    ///
    /// # Errors
    /// Why it is refused; the old certificate stays in use.
    pub(crate) fn issued(
        &mut self,
        id: &SpiffeId,
        leaf: Arc<Leaf>,
        now: Moment,
    ) -> Result<(), Refusal> {
        if let Err(refusal) = self.check_issued(id, &leaf) {
            self.keeper.failed(id, refusal.to_string(), now);
            return Err(refusal);
        }
        let validity = (leaf.not_before(), leaf.not_after());
        // `check_issued` may have raised the clock.
        let now = Moment {
            unix_s: self.clock.now(),
            ..now
        };
        self.keeper.hold(id, validity, Some(now));
        if self.keeper.wants(id) {
            self.leaves.insert(id.clone(), leaf);
            self.signers.remove(id);
            self.name_signers();
            self.is_stale = true;
        }
        Ok(())
    }

    fn check_issued(&self, id: &SpiffeId, leaf: &Leaf) -> Result<(), Refusal> {
        if leaf.id() != id {
            return Err(Refusal::WrongIdentity {
                expected: id.clone(),
                found: leaf.id().clone(),
            });
        }
        let now = self.clock.now();
        // As when connecting: a clock that is known to be behind learns the time from a trusted certificate.
        let at = match self.clock.is_degraded() {
            true => now.max(leaf.not_before()),
            false => now,
        };
        leaf.verify(&self.trust, at)?;
        self.clock.raise(leaf.not_before());
        match self.clock.now() < leaf.not_before() {
            true => Err(Refusal::NotYetValid),
            false => Ok(()),
        }
    }

    /// A certificate request failed.
    pub(crate) fn failed(&mut self, id: &SpiffeId, why: String, now: Moment) {
        self.keeper.failed(id, why, now);
    }

    /// Applies a trust update. Own certificates that no longer verify are renewed at once.
    ///
    /// # Errors
    /// When a root is not a certificate; then nothing has changed.
    pub(crate) fn trust(&mut self, update: &TrustUpdate) -> Result<(), String> {
        let next = self.trusted.with(update);
        let now = self.clock.now();
        self.trust = next.in_force(now).map_err(|error| error.to_string())?;
        self.trust_until = next.next_end(now);
        self.trusted = next;
        self.signers.clear();
        self.is_stale = true;
        self.doubt();
        Ok(())
    }

    /// Makes renewal due for each of our certificates that other nodes refuse.
    fn doubt(&mut self) {
        let now = self.clock.now();
        for (id, leaf) in &self.leaves {
            let verdict = leaf.verify(&self.trust, now);
            // Leases take care of expiry.
            if !matches!(
                verdict,
                Ok(()) | Err(Refusal::Expired | Refusal::NotYetValid)
            ) {
                self.keeper.renew(id);
            }
        }
        self.name_signers();
    }

    /// Finds the root of each new leaf, and drops entries of leaves that are gone.
    fn name_signers(&mut self) {
        self.signers.retain(|id, _| self.leaves.contains_key(id));
        for (id, leaf) in &self.leaves {
            if !self.signers.contains_key(id)
                && let Some(root) = self.trusted.signer(leaf)
            {
                self.signers.insert(id.clone(), root);
            }
        }
    }

    /// Sets the wanted identities to those of a mesh's workloads, except for those with an Envoy of their own. Returns
    /// the identities that were dropped.
    pub(crate) fn want(&mut self, mesh: &Mesh) -> Vec<SpiffeId> {
        let domain = &self.trusted.domain;
        let served = mesh.workloads.iter();
        let served = served.filter(|workload| !workload.proxy.is_envoy());
        let accounts = served.map(|workload| &workload.service_account);
        let wanted: BTreeSet<SpiffeId> = accounts
            .map(|account| SpiffeId::workload(domain.clone(), account.clone()))
            .collect();
        let mut held = self.leaves.keys();
        if self.keeper.wants_only(&wanted) && held.all(|id| self.keeper.wants(id)) {
            // Most changes of a mesh are about other things.
            return Vec::new();
        }
        let mut dropped = self.keeper.want(&wanted);
        // A leaf that was found on disk is used as soon as its identity is wanted.
        for id in &wanted {
            let is_new = self.keeper.get(id).is_some_and(|kept| kept.lease.is_none());
            if let (true, Some(leaf)) = (is_new, self.leaves.get(id)) {
                self.keeper
                    .hold(id, (leaf.not_before(), leaf.not_after()), None);
            }
        }
        let stray = self.leaves.keys().filter(|id| !self.keeper.wants(id));
        dropped.extend(stray.cloned());
        dropped.sort_unstable();
        dropped.dedup();
        for id in &dropped {
            self.leaves.remove(id);
        }
        self.doubt();
        self.is_stale = true;
        dropped
    }

    /// Handles the passing of time: deny-list entries and certificates expire.
    pub(crate) fn tick(&mut self, now: Moment) {
        self.learn_time(now);
        let unix_s = self.clock.now();
        if self.trust_until.is_some_and(|until| until <= unix_s) {
            // The same roots were parsed before, so this does not fail.
            if let Ok(trust) = self.trusted.in_force(unix_s) {
                self.trust = trust;
            }
            self.trust_until = self.trusted.next_end(unix_s);
            self.is_stale = true;
        }
        if self.lasts_until.is_some_and(|until| until < unix_s) {
            self.is_stale = true;
        }
    }

    /// Raises the clock's floor with the uptime: this is right however wrong the system's clock is.
    fn learn_time(&mut self, now: Moment) {
        let (floor, since) = self.certain;
        let passed = floor + now.elapsed.saturating_sub(since).as_secs();
        if self.clock.floor() > passed || floor == 0 {
            self.certain = (self.clock.floor(), now.elapsed);
        } else {
            self.clock.raise(passed);
        }
    }

    /// Whether the identities must be rebuilt.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// The rebuilt identities; `None` when nothing has changed.
    ///
    /// # Errors
    /// When rustls rejects them, which would be a bug in Heddle.
    pub(crate) fn take_identities(&mut self) -> Result<Option<Arc<Identities>>, String> {
        if !std::mem::take(&mut self.is_stale) {
            return Ok(None);
        }
        let Some(own) = self.leaves.get(&self.own) else {
            return Ok(None);
        };
        let now = self.clock.now();
        let ends = self.leaves.values().map(|leaf| leaf.not_after());
        self.lasts_until = ends.filter(|until| *until >= now).min();
        let accounts = self.leaves.values().filter(|leaf| *leaf.id() != self.own);
        let identities = Identities::new(
            Arc::clone(&self.trust),
            Arc::clone(&self.clock),
            Arc::clone(own),
            accounts.cloned(),
        );
        let identities = identities.map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(identities)))
    }

    /// The time floor, when it is due to be written.
    pub(crate) fn take_floor(&mut self) -> Option<u64> {
        let floor = self.clock.floor();
        if floor < self.floor_on_disk + FLOOR_STEP_S {
            return None;
        }
        self.floor_on_disk = floor;
        Some(floor)
    }

    /// Time until the next timer. Renewals count only while the control plane is connected.
    pub(crate) fn sleep(&self, now: Moment) -> Duration {
        let until = |unix_s: u64| Duration::from_secs(unix_s.saturating_sub(now.unix_s));
        let asking = self.keeper.next(now).filter(|_| self.link.is_up);
        let expiry = self.lasts_until.map(|until| until + 1);
        let ends = self.trust_until.into_iter().chain(expiry).map(until);
        let waits = asking.into_iter().chain(ends);
        waits.min().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    /// Sets the problem of a topic, or clears it (`None`).
    pub(crate) fn problem(&mut self, about: &'static str, what: Option<String>) {
        match what {
            Some(what) => self.problems.insert(about, what),
            None => self.problems.remove(about),
        };
    }

    pub(crate) fn wants(&self, id: &SpiffeId) -> bool {
        self.keeper.wants(id)
    }

    pub(crate) fn own_leaf(&self) -> Option<&Arc<Leaf>> {
        self.leaves.get(&self.own)
    }

    /// Trust as the control plane sent it.
    pub(crate) fn trusted(&self) -> &Trusted {
        &self.trusted
    }

    /// Trust without expired deny-list entries.
    pub(crate) fn in_force(&self) -> &Arc<Trust> {
        &self.trust
    }

    /// The wanted identities without a certificate that has not expired.
    pub(crate) fn missing(&self) -> BTreeSet<SpiffeId> {
        self.keeper.missing(self.clock.now())
    }

    /// Whether every wanted identity has a certificate that has not expired.
    pub(crate) fn is_complete(&self) -> bool {
        self.keeper.is_complete(self.clock.now())
    }
}

//! What a node knows of identities, and what follows from what happens. No network, no disk, no clock of
//! its own: the caller says what happened, and does what the core says.

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

/// So much later than the floor on the disk is the time certain to be before it is written again, in
/// seconds: each write costs the disk something.
const FLOOR_STEP_S: u64 = 600;
/// How long nothing is looked at, at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// What a node knows.
#[derive(Debug)]
pub(crate) struct Core {
    own: SpiffeId,
    clock: Arc<Clock>,
    trusted: Trusted,
    /// What of it is in force, and when that changes by itself, in seconds since 1970.
    trust: Arc<Trust>,
    trust_until: Option<u64>,
    leaves: BTreeMap<SpiffeId, Arc<Leaf>>,
    /// Which root vouches for each, once it was looked for among those that are trusted now.
    signers: BTreeMap<SpiffeId, String>,
    keeper: Keeper,
    link: ControlConnectionState,
    /// A time that was certain, and since when it is known: since then time has gone on.
    certain: (u64, Duration),
    floor_on_disk: u64,
    /// Identities are to be put together anew.
    is_stale: bool,
    /// When the next certificate expires of those that were put together, in seconds since 1970.
    lasts_until: Option<u64>,
    /// What else is wrong, by what it is about.
    problems: BTreeMap<&'static str, String>,
}

/// Whether the control plane is reached.
#[derive(Debug)]
struct ControlConnectionState {
    is_up: bool,
    /// Since when it is so, since the process started.
    since: Duration,
    /// Why it is not reached.
    problem: Option<String>,
    /// Why one of the two did not believe the other, if that was said since it was reached last. What fails after
    /// that says it no more: a connection that is broken off has no words.
    refusal: Option<String>,
    address: String,
}

impl Core {
    /// A node that joined, with what it has: its own certificate, what it trusts, and certificates of its
    /// workloads. `control` is where the control plane is, `floor_on_disk` what a restart would find.
    ///
    /// # Errors
    /// When the roots are none.
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

    /// The control plane is reached.
    pub(crate) fn link_up(&mut self, now: Moment) {
        if !self.link.is_up {
            self.link.since = now.elapsed;
        }
        self.link.is_up = true;
        self.link.problem = None;
        self.link.refusal = None;
        self.problem("control", None);
    }

    /// The control plane is not reached, or no longer. Says why, and what was said before by who did not believe the
    /// other.
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

    /// The same, because one of the two does not believe the other: it stays a problem until they do.
    pub(crate) fn link_refused(&mut self, why: String, now: Moment) -> String {
        let problem = format!("nothing comes of the control plane: {why}");
        self.problem("control", Some(problem));
        self.link.refusal = Some(why.clone());
        self.link_down(why, now)
    }

    /// Whether the control plane that is connected is still to be believed.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_peer(&self, peer: &Peer) -> Result<(), Refusal> {
        self.trust.check(peer, self.clock.now())
    }

    /// Which identities to ask for now.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<SpiffeId> {
        self.keeper.due(now)
    }

    /// A certificate came. It is in force when it is for the identity that was asked for, and others believe it.
    ///
    /// # Errors
    /// Why it is refused; then the old one stays.
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
        // What was learned of the time just now counts.
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
        // As when we connect: a clock that is certainly behind learns the time from a certificate that we trust.
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

    /// A certificate did not come.
    pub(crate) fn failed(&mut self, id: &SpiffeId, why: String, now: Moment) {
        self.keeper.failed(id, why, now);
    }

    /// Trusts as an update says; what is not believed any more of our own is renewed at once.
    ///
    /// # Errors
    /// When a root is none; then nothing has changed.
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

    /// Looks which of our own certificates others do not believe.
    fn doubt(&mut self) {
        let now = self.clock.now();
        for (id, leaf) in &self.leaves {
            let verdict = leaf.verify(&self.trust, now);
            // For the others there is a time.
            if !matches!(
                verdict,
                Ok(()) | Err(Refusal::Expired | Refusal::NotYetValid)
            ) {
                self.keeper.renew(id);
            }
        }
        self.name_signers();
    }

    /// Finds out which root signed what came since, and forgets what is gone.
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

    /// Wants the identities of a mesh's workloads; returns those that are not wanted any more.
    pub(crate) fn want(&mut self, mesh: &Mesh) -> Vec<SpiffeId> {
        let domain = &self.trusted.domain;
        let accounts = mesh
            .workloads
            .iter()
            .map(|workload| &workload.service_account);
        let wanted: BTreeSet<SpiffeId> = accounts
            .map(|account| SpiffeId::workload(domain.clone(), account.clone()))
            .collect();
        let mut dropped = self.keeper.want(&wanted);
        // What was on the disk is held as soon as it is wanted.
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

    /// Time has passed: entries of the deny-list end, certificates expire.
    pub(crate) fn tick(&mut self, now: Moment) {
        self.learn_time(now);
        let unix_s = self.clock.now();
        if self.trust_until.is_some_and(|until| until <= unix_s) {
            // They were read before, so they can be read again.
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

    /// However wrong the system's clock is, the time that was certain lies back by what has passed since.
    fn learn_time(&mut self, now: Moment) {
        let (floor, since) = self.certain;
        let passed = floor + now.elapsed.saturating_sub(since).as_secs();
        if self.clock.floor() > passed || floor == 0 {
            self.certain = (self.clock.floor(), now.elapsed);
        } else {
            self.clock.raise(passed);
        }
    }

    /// Whether what to call and be called as has changed.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// What to call and be called as, when that has changed.
    ///
    /// # Errors
    /// When the library refuses, which only a fault of ours explains.
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

    /// The floor, when it should be written down.
    pub(crate) fn take_floor(&mut self) -> Option<u64> {
        let floor = self.clock.floor();
        if floor < self.floor_on_disk + FLOOR_STEP_S {
            return None;
        }
        self.floor_on_disk = floor;
        Some(floor)
    }

    /// How long until something is to be looked at. While the control plane is not reached, nothing is to
    /// be asked for.
    pub(crate) fn sleep(&self, now: Moment) -> Duration {
        let until = |unix_s: u64| Duration::from_secs(unix_s.saturating_sub(now.unix_s));
        let asking = self.keeper.next(now).filter(|_| self.link.is_up);
        let expiry = self.lasts_until.map(|until| until + 1);
        let ends = self.trust_until.into_iter().chain(expiry).map(until);
        let waits = asking.into_iter().chain(ends);
        waits.min().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    /// Something else is wrong, or is not any more.
    pub(crate) fn problem(&mut self, about: &'static str, what: Option<String>) {
        match what {
            Some(what) => self.problems.insert(about, what),
            None => self.problems.remove(about),
        };
    }

    /// Whether an identity is wanted.
    pub(crate) fn wants(&self, id: &SpiffeId) -> bool {
        self.keeper.wants(id)
    }

    /// The node's own certificate.
    pub(crate) fn own_leaf(&self) -> Option<&Arc<Leaf>> {
        self.leaves.get(&self.own)
    }

    /// What the node trusts, as it was told.
    pub(crate) fn trusted(&self) -> &Trusted {
        &self.trusted
    }

    /// What the node trusts now.
    pub(crate) fn in_force(&self) -> &Arc<Trust> {
        &self.trust
    }

    /// Whether every identity has a certificate.
    pub(crate) fn is_complete(&self) -> bool {
        self.keeper.is_complete(self.clock.now())
    }
}

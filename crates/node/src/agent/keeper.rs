//! Which identities a node wants, which it holds, and when it asks for another certificate.
//!
//! ```text
//!            due                    issued
//!  wanted ─────────► asking ───────────────────► held ── half of its life is over ─► due again
//!    ▲                 │ failed, or the link broke │
//!    └── after a wait ─┘                           └── no certificate came: held until it expires,
//!                                                      and asked for all the same
//! ```
//!
//! It has no clock, no keys and no network: it is told what happened, and says what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::SpiffeId;
use heddle_model::{Backoff, Random};

use super::moment::Moment;

#[cfg(test)]
mod tests;

/// Most certificate requests at the same time, so as not to flood a slow control plane.
const ASKED_AT_ONCE: usize = 4;
/// Back-off after a failed request.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Renewal is due at half of a certificate's life, less a random time of up to this part of the life: a tenth.
const JITTER_PART: u64 = 10;

/// Times of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// When this node received it; `not_before` if that is later, or if the time of receipt is unknown.
    pub(crate) obtained: u64,
    /// When it is to be renewed.
    pub(crate) renew_at: u64,
    /// When it expires.
    pub(crate) not_after: u64,
}

impl Lease {
    fn new(obtained: u64, not_after: u64, random: &mut Random) -> Lease {
        let life = not_after.saturating_sub(obtained);
        let early = random.below(life / JITTER_PART);
        Lease {
            obtained,
            renew_at: obtained + life / 2 - early,
            not_after,
        }
    }

    /// Whether renewal is late: no more than a quarter of the life is left.
    pub(crate) fn is_late(&self, unix_s: u64) -> bool {
        let life = self.not_after.saturating_sub(self.obtained);
        self.not_after.saturating_sub(unix_s) <= life / 4
    }

    /// Whether the certificate has expired.
    pub(crate) fn is_over(&self, unix_s: u64) -> bool {
        unix_s > self.not_after
    }
}

#[derive(Debug)]
pub(crate) struct KeptIdentity {
    /// Lease of the newest certificate; `None` before the first.
    pub(crate) lease: Option<Lease>,
    /// Why the last request failed; `None` after one that succeeded.
    pub(crate) failure: Option<String>,
    backoff: Backoff,
    asking: bool,
    /// Uptime of the process before which it is not requested again.
    retry_at: Duration,
}

impl KeptIdentity {
    fn new() -> KeptIdentity {
        KeptIdentity {
            lease: None,
            failure: None,
            backoff: Backoff::new(SHORTEST_WAIT, LONGEST_WAIT),
            asking: false,
            retry_at: Duration::ZERO,
        }
    }

    /// Time until it is due; `None` while a request is pending.
    fn due_in(&self, now: Moment) -> Option<Duration> {
        if self.asking {
            return None;
        }
        let renewal = self
            .lease
            .map_or(0, |lease| lease.renew_at.saturating_sub(now.unix_s));
        let retry = self.retry_at.saturating_sub(now.elapsed);
        Some(retry.max(Duration::from_secs(renewal)))
    }

    /// Whether there is a certificate that has not expired.
    fn holds(&self, unix_s: u64) -> bool {
        self.lease.is_some_and(|lease| !lease.is_over(unix_s))
    }

    /// Failed requests since the last success.
    pub(crate) fn failures(&self) -> u32 {
        self.backoff.failures()
    }
}

/// All identities of a node: its own, and those of its workloads.
#[derive(Debug)]
pub(crate) struct Keeper {
    own: SpiffeId,
    all: BTreeMap<SpiffeId, KeptIdentity>,
    random: Random,
    renewals: u64,
    failures: u64,
}

impl Keeper {
    /// Wants only the node's own identity at first. `random` spreads renewals and retries over time.
    pub(crate) fn new(own: SpiffeId, random: Random) -> Keeper {
        Keeper {
            all: BTreeMap::from([(own.clone(), KeptIdentity::new())]),
            own,
            random,
            renewals: 0,
            failures: 0,
        }
    }

    /// Sets the wanted identities, beside the node's own. Returns those that were dropped.
    pub(crate) fn want(&mut self, wanted: &BTreeSet<SpiffeId>) -> Vec<SpiffeId> {
        let own = &self.own;
        let dropped = self
            .all
            .extract_if(.., |id, _| id != own && !wanted.contains(id))
            .map(|(id, _)| id)
            .collect();
        for id in wanted {
            self.all.entry(id.clone()).or_insert_with(KeptIdentity::new);
        }
        dropped
    }

    /// Whether these are the wanted identities, beside the node's own.
    pub(crate) fn wants_only(&self, wanted: &BTreeSet<SpiffeId>) -> bool {
        let others = self.all.keys().filter(|id| **id != self.own);
        others.eq(wanted.iter().filter(|id| **id != self.own))
    }

    pub(crate) fn wants(&self, id: &SpiffeId) -> bool {
        self.all.contains_key(id)
    }

    /// Records a certificate with its validity, in seconds since 1970. `issued` is `None` for one that was found on
    /// disk: its time of receipt is unknown. An identity that is not wanted is ignored.
    pub(crate) fn hold(
        &mut self,
        id: &SpiffeId,
        (not_before, not_after): (u64, u64),
        issued: Option<Moment>,
    ) {
        let Some(kept) = self.all.get_mut(id) else {
            return;
        };
        // `not_before` lies in the past, for clocks that are behind: the life counts from the receipt.
        let obtained = issued.map_or(not_before, |now| now.unix_s.max(not_before));
        if issued.is_some() && kept.lease.is_some() {
            self.renewals += 1;
        }
        kept.lease = Some(Lease::new(obtained, not_after, &mut self.random));
        kept.failure = None;
        kept.asking = false;
        kept.retry_at = Duration::ZERO;
        kept.backoff.succeeded();
    }

    /// Makes renewal due now, however long the certificate lasts: other nodes refuse it.
    pub(crate) fn renew(&mut self, id: &SpiffeId) {
        if let Some(KeptIdentity {
            lease: Some(lease), ..
        }) = self.all.get_mut(id)
        {
            lease.renew_at = 0;
        }
    }

    /// Identities to request now, most urgent first. Each counts as pending until [`Keeper::hold`], [`Keeper::failed`]
    /// or [`Keeper::broken`].
    pub(crate) fn due(&mut self, now: Moment) -> Vec<SpiffeId> {
        let asking = self.all.values().filter(|kept| kept.asking).count();
        let mut due: Vec<(bool, u64, &SpiffeId)> = self
            .all
            .iter()
            .filter(|(_, kept)| kept.due_in(now) == Some(Duration::ZERO))
            .map(|(id, kept)| {
                let until = kept.lease.map_or(0, |lease| lease.not_after);
                // The node needs its own identity to request the others.
                (*id != self.own, until, id)
            })
            .collect();
        due.sort_unstable();
        due.truncate(ASKED_AT_ONCE.saturating_sub(asking));
        let due: Vec<SpiffeId> = due.into_iter().map(|(_, _, id)| id.clone()).collect();
        for id in &due {
            if let Some(kept) = self.all.get_mut(id) {
                kept.asking = true;
            }
        }
        due
    }

    /// A request failed; it is retried after the back-off.
    pub(crate) fn failed(&mut self, id: &SpiffeId, why: String, now: Moment) {
        self.failures += 1;
        if let Some(kept) = self.all.get_mut(id) {
            kept.asking = false;
            kept.failure = Some(why);
            kept.retry_at = now.elapsed + self.random.spread(kept.backoff.failed());
        }
    }

    /// The connection to the control plane is gone: pending requests are repeated on the next one.
    pub(crate) fn broken(&mut self) {
        for kept in self.all.values_mut() {
            kept.asking = false;
        }
    }

    /// Time until the next identity is due; `None` while all requests are pending.
    pub(crate) fn next(&self, now: Moment) -> Option<Duration> {
        self.all.values().filter_map(|kept| kept.due_in(now)).min()
    }

    /// The identities without a certificate that has not expired.
    pub(crate) fn missing(&self, unix_s: u64) -> BTreeSet<SpiffeId> {
        let missing = self.all.iter().filter(|(_, kept)| !kept.holds(unix_s));
        missing.map(|(id, _)| id.clone()).collect()
    }

    /// Whether every identity has a certificate that has not expired.
    pub(crate) fn is_complete(&self, unix_s: u64) -> bool {
        self.all.values().all(|kept| kept.holds(unix_s))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&SpiffeId, &KeptIdentity)> {
        self.all.iter()
    }

    pub(crate) fn get(&self, id: &SpiffeId) -> Option<&KeptIdentity> {
        self.all.get(id)
    }

    /// Renewals and failed requests, in this order.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.renewals, self.failures)
    }
}

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

/// Identities that are asked for at the same time: a control plane that is slow gets no pile of calls.
const ASKED_AT_ONCE: usize = 4;
/// Waits after an identity was not issued.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Renewal begins at half of a certificate's life, and earlier by up to this part of the life: a tenth.
const JITTER_PART: u64 = 10;

/// How long a certificate lasts, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// When it began to be useful to us.
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

    /// Whether it is late: a quarter of its life is left, and it was not renewed.
    pub(crate) fn is_late(&self, unix_s: u64) -> bool {
        let life = self.not_after.saturating_sub(self.obtained);
        self.not_after.saturating_sub(unix_s) <= life / 4
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_over(&self, unix_s: u64) -> bool {
        unix_s > self.not_after
    }
}

/// One identity.
#[derive(Debug)]
pub(crate) struct KeptIdentity {
    /// The newest certificate, if there was one yet.
    pub(crate) lease: Option<Lease>,
    /// Why the last attempt came to nothing; none after one that did not.
    pub(crate) failure: Option<String>,
    backoff: Backoff,
    asking: bool,
    /// Not before this is it asked for again, since the process started.
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

    /// How long until it is due; nothing while it is asked for.
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

    /// Attempts that failed since the last that did not.
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
    /// Wants the node's own identity. Random numbers spread what is done.
    pub(crate) fn new(own: SpiffeId, random: Random) -> Keeper {
        Keeper {
            all: BTreeMap::from([(own.clone(), KeptIdentity::new())]),
            own,
            random,
            renewals: 0,
            failures: 0,
        }
    }

    /// Wants exactly these beside the node's own from now on; returns those that are not wanted any more.
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

    /// Whether an identity is wanted.
    pub(crate) fn wants(&self, id: &SpiffeId) -> bool {
        self.all.contains_key(id)
    }

    /// Holds a certificate, valid from and until these seconds since 1970, that was just issued, or that
    /// was found on the disk: then it is not known since when. Those that are not wanted are ignored.
    pub(crate) fn hold(
        &mut self,
        id: &SpiffeId,
        (not_before, not_after): (u64, u64),
        issued: Option<Moment>,
    ) {
        let Some(kept) = self.all.get_mut(id) else {
            return;
        };
        // It begins in the past, for clocks that are behind: half of what we have of it is what counts.
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

    /// Another certificate is needed, however long this one lasts: no node believes it any more.
    pub(crate) fn renew(&mut self, id: &SpiffeId) {
        if let Some(KeptIdentity {
            lease: Some(lease), ..
        }) = self.all.get_mut(id)
        {
            lease.renew_at = 0;
        }
    }

    /// What to ask for now, most urgent first. Each is taken to be asked for until [`Keeper::hold`],
    /// [`Keeper::failed`] or [`Keeper::broken`].
    pub(crate) fn due(&mut self, now: Moment) -> Vec<SpiffeId> {
        let asking = self.all.values().filter(|kept| kept.asking).count();
        let mut due: Vec<(bool, u64, &SpiffeId)> = self
            .all
            .iter()
            .filter(|(_, kept)| kept.due_in(now) == Some(Duration::ZERO))
            .map(|(id, kept)| {
                let until = kept.lease.map_or(0, |lease| lease.not_after);
                // Without the node's own identity there are no others.
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

    /// An identity was not issued.
    pub(crate) fn failed(&mut self, id: &SpiffeId, why: String, now: Moment) {
        self.failures += 1;
        if let Some(kept) = self.all.get_mut(id) {
            kept.asking = false;
            kept.failure = Some(why);
            kept.retry_at = now.elapsed + self.random.spread(kept.backoff.failed());
        }
    }

    /// The connection to the control plane is gone: what was asked for is asked for again over the next one.
    pub(crate) fn broken(&mut self) {
        for kept in self.all.values_mut() {
            kept.asking = false;
        }
    }

    /// How long until something is due; nothing while all that is wanted is asked for.
    pub(crate) fn next(&self, now: Moment) -> Option<Duration> {
        self.all.values().filter_map(|kept| kept.due_in(now)).min()
    }

    /// Whether every identity has a certificate that has not expired.
    pub(crate) fn is_complete(&self, unix_s: u64) -> bool {
        let holds = |kept: &KeptIdentity| kept.lease.is_some_and(|lease| !lease.is_over(unix_s));
        self.all.values().all(holds)
    }

    /// All identities.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&SpiffeId, &KeptIdentity)> {
        self.all.iter()
    }

    /// One identity.
    pub(crate) fn get(&self, id: &SpiffeId) -> Option<&KeptIdentity> {
        self.all.get(id)
    }

    /// Certificates that took the place of others, and attempts that came to nothing.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.renewals, self.failures)
    }
}

//! What is in the registry, as far as is known: a state machine without a network or a clock.
//!
//! ```text
//!            connected            last page              compacted, too full before
//!    away ─────────────► listing ───────────► watching ─────────────────────────────► listing
//!     ▲                     │                     │
//!     └──────── lost ───────┴──────── lost ───────┘
//! ```
//!
//! What is held changes by what etcd says, never by its silence: while it is away everything goes on, and what
//! ended meanwhile goes with the last page of the next list. A list is read in pages of one revision, and the
//! watch begins with the revision after it, so that no change falls between.
//!
//! A store whose revisions have gone back, or that has become another cluster, has lost what it held: it was
//! emptied, or restored from a copy. Then what is missing in the list goes on for [`GRACE`], in which every
//! provider that lives registers anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_compile::registered::{Entry, Layout, MAX_VALUE_BYTES, Providers, judge, warning};
use heddle_model::printable;
use heddle_model::report::{Cause, Origin, Problem};

mod room;

#[cfg(test)]
mod tests;

use room::{Full, MOST, Room, Share};

/// Problems that are spelled out; of more only the number is.
const MAX_PROBLEMS: usize = 100;
/// Bytes of a key, and of what is said of what is wrong with its value, that are shown.
const MAX_SHOWN: usize = 256;
/// How long what a store has lost goes on. A registrar notices within a third of its time to live, and
/// within ten seconds.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// A key and what stands under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kv {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// 0: none.
    pub(super) lease: i64,
    /// The revisions at which the key came to be and at which its value did.
    pub(super) created: i64,
    pub(super) modified: i64,
}

/// Part of a list.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) cluster: u64,
    pub(super) revision: i64,
    pub(super) kvs: Vec<Kv>,
    /// Whether there are more keys after the last of these.
    pub(super) more: bool,
}

/// What a watch tells.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Put(Kv),
    Delete { key: Vec<u8>, modified: i64 },
}

/// What to ask etcd for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// The keys from this one on, as they were at a revision; 0 for now.
    List { from: Vec<u8>, revision: i64 },
    /// The changes from this revision on.
    Watch { revision: i64 },
}

/// What stands under a key, right or wrong.
#[derive(Debug, Default)]
struct Held {
    modified: i64,
    /// The last value that was right, with the lease under which it was written.
    good: Option<(Arc<Entry>, i64)>,
    /// What is wrong with the value that is there.
    problem: Option<Problem>,
    /// Until when it goes on though the store has lost it.
    lost_until: Option<Instant>,
}

impl Held {
    /// Whether that is what is held, and right.
    fn is(&self, kv: &Kv) -> bool {
        let is_good = self.good.as_ref().is_some_and(|(entry, lease)| {
            *lease == kv.lease && entry.created == kv.created && entry.value == kv.value
        });
        let goes_on = self.problem.is_none() && self.lost_until.is_none();
        is_good && goes_on && self.modified == kv.modified
    }

    /// What it takes under this key.
    fn bytes(&self, key: &[u8]) -> usize {
        key.len() + self.good.as_ref().map_or(0, |(entry, _)| entry.value.len())
    }
}

#[derive(Debug)]
enum Phase {
    Away,
    Listing {
        /// Keys on the pages so far that are held.
        seen: BTreeSet<Vec<u8>>,
        /// The revision of the list; 0 until its first page is there.
        revision: i64,
        /// The store is not the one that was known.
        has_lost: bool,
        /// Where there was no room for something on the pages so far.
        full: BTreeSet<Full>,
        /// It follows another one at once.
        is_again: bool,
    },
    Watching,
}

#[derive(Debug)]
pub(super) struct Core {
    layout: Layout,
    phase: Phase,
    held: BTreeMap<Vec<u8>, Held>,
    room: Room,
    /// Where there was no room for something that may still be there.
    full: BTreeSet<Full>,
    /// The store that was listed last.
    cluster: u64,
    /// Up to which revision everything is known.
    revision: i64,
    /// Whether a list was read to its end once.
    is_known: bool,
    has_changed: bool,
    version: u64,
}

impl Core {
    pub(super) fn new(layout: Layout) -> Self {
        Core {
            layout,
            phase: Phase::Away,
            held: BTreeMap::new(),
            room: Room::default(),
            full: BTreeSet::new(),
            cluster: 0,
            revision: 0,
            is_known: false,
            has_changed: false,
            version: 0,
        }
    }

    /// Up to which revision everything is known.
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// There is an endpoint to ask, or the watch cannot go on: everything is listed.
    pub(super) fn begin(&mut self) -> Next {
        self.list(false)
    }

    fn list(&mut self, is_again: bool) -> Next {
        self.phase = Phase::Listing {
            seen: BTreeSet::new(),
            revision: 0,
            has_lost: false,
            full: BTreeSet::new(),
            is_again,
        };
        Next::List {
            from: self.layout.providers().into_bytes(),
            revision: 0,
        }
    }

    /// No endpoint answers any more. Nothing is removed.
    pub(super) fn lost(&mut self) {
        self.phase = Phase::Away;
    }

    /// Takes a page of a list. One that was not asked for begins anew.
    pub(super) fn page(&mut self, now: Instant, page: Page) -> Next {
        let Phase::Listing {
            seen,
            revision,
            has_lost,
            full,
            is_again,
        } = &mut self.phase
        else {
            return self.begin();
        };
        if *revision == 0 {
            *revision = page.revision;
            let is_other = page.cluster != self.cluster || page.revision < self.revision;
            *has_lost = self.is_known && is_other;
        }
        let (at, has_lost, is_again) = (*revision, *has_lost, *is_again);
        let last = page.kvs.last().map(|kv| kv.key.clone());
        // What there is no room for is not kept in mind either.
        let (mut seen, mut full) = (std::mem::take(seen), std::mem::take(full));
        for kv in page.kvs {
            // A list counts whatever its revisions say: they may be another store's.
            let is_same = self.held.get(&kv.key).is_some_and(|held| held.is(&kv));
            let taken = if is_same { Ok(()) } else { self.put(&kv) };
            match taken {
                Ok(()) => seen.insert(kv.key),
                Err(lacking) => full.insert(lacking),
            };
        }
        self.phase = Phase::Listing {
            seen,
            revision: at,
            has_lost,
            full,
            is_again,
        };
        match last {
            // With an empty page that has more after it there would be no end.
            Some(mut from) if page.more => {
                from.push(0);
                Next::List { from, revision: at }
            }
            _ => {
                self.cluster = page.cluster;
                self.listed(now, at, has_lost)
            }
        }
    }

    /// The list is read to its end: what is not in it is gone. Where that makes room for what had none, everything
    /// is listed once more, and no more than once.
    fn listed(&mut self, now: Instant, revision: i64, has_lost: bool) -> Next {
        let phase = std::mem::replace(&mut self.phase, Phase::Watching);
        let mut has_room = false;
        if let Phase::Listing {
            seen,
            full,
            is_again,
            ..
        } = phase
        {
            self.has_changed |= self.full != full;
            self.full = full;
            self.held.retain(|key, held| {
                if seen.contains(key) {
                    return true;
                }
                if has_lost && held.good.is_some() {
                    held.lost_until.get_or_insert(now + GRACE);
                }
                // The revision of another store says nothing of what comes now.
                held.modified = 0;
                let stays = held.lost_until.is_some_and(|until| now < until);
                if !stays {
                    let share = Share::of(&self.layout, key);
                    self.room.give_back(&share, held.bytes(key));
                    has_room |= !is_again && makes_room(&self.full, &self.room, share);
                    self.has_changed = true;
                }
                stays
            });
        }
        self.revision = revision;
        self.has_changed |= !self.is_known;
        self.is_known = true;
        if has_room {
            return self.list(true);
        }
        Next::Watch {
            revision: revision.saturating_add(1),
        }
    }

    /// Takes what a watch tells, up to a revision. What has to be asked anew, if anything: something that there
    /// was no room for may have one now.
    pub(super) fn changed(&mut self, revision: i64, changes: Vec<Change>) -> Option<Next> {
        if !matches!(self.phase, Phase::Watching) {
            return None;
        }
        let mut has_room = false;
        for change in changes {
            match change {
                Change::Put(kv) => {
                    let known = self.held.get(&kv.key);
                    if known.is_none_or(|held| held.modified < kv.modified) {
                        // Where it has no room is kept in mind.
                        let _lacking = self.put(&kv);
                    }
                }
                Change::Delete { key, modified } => has_room |= self.delete(&key, modified),
            }
        }
        self.revision = self.revision.max(revision);
        has_room.then(|| self.begin())
    }

    /// Lets go what a store has lost and no provider has registered anew. Says when to ask again.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        self.held.retain(|key, held| match held.lost_until {
            Some(until) if until <= now => {
                let share = Share::of(&self.layout, key);
                self.room.give_back(&share, held.bytes(key));
                self.has_changed = true;
                false
            }
            Some(until) => {
                next = Some(next.map_or(until, |next| next.min(until)));
                true
            }
            None => true,
        });
        next
    }

    /// Whether there is something to pass on.
    pub(super) fn has_news(&self) -> bool {
        self.is_known && self.has_changed
    }

    /// What there is, if it is not what it was.
    pub(super) fn providers(&mut self) -> Option<Providers> {
        if !self.has_news() {
            return None;
        }
        self.has_changed = false;
        self.version += 1;
        let entries = self.held.values().filter_map(|held| held.good.as_ref());
        let mut problems: Vec<Problem> = Vec::new();
        let mut by_cause: BTreeMap<Cause, usize> = BTreeMap::new();
        let mut more = 0;
        for problem in self.held.values().filter_map(|held| held.problem.as_ref()) {
            if let Some(cause) = problem.cause {
                *by_cause.entry(cause).or_default() += 1;
            }
            match problems.len() < MAX_PROBLEMS {
                true => problems.push(problem.clone()),
                false => more += 1,
            }
        }
        let place = self.shown(self.layout.providers().as_bytes());
        if more > 0 {
            let reason = format!("{more} more values are wrong");
            problems.push(warning(&place, "", reason, "mend the others first"));
        }
        if !self.full.is_empty() {
            by_cause.insert(Cause::Room, self.full.len());
        }
        problems.extend(self.full.iter().map(|full| self.left_out(full)));
        let wrong = self.held.iter().filter(|(_, held)| held.good.is_none());
        let wrong = wrong.filter_map(|(key, _)| self.layout.provider(key).ok());
        Some(Providers {
            entries: entries.map(|(entry, _)| Arc::clone(entry)).collect(),
            problems,
            by_cause,
            wrong: wrong.collect(),
            version: self.version,
        })
    }

    /// Says that there was no room.
    fn left_out(&self, full: &Full) -> Problem {
        let most = match full {
            Full::All => MOST,
            Full::Share(share) => share.most(),
        };
        let (keys, mib) = (most.keys, most.bytes >> 20);
        let (namespace, reason, remedy) = match full {
            Full::All => (
                String::new(),
                format!("there is more than {keys} providers or {mib} MiB: the rest is left out"),
                "use a prefix for each mesh",
            ),
            Full::Share(Share::Namespace(namespace)) => (
                format!("{namespace}/"),
                format!(
                    "one namespace has more than {keys} providers or {mib} MiB: the rest of it is \
                     left out"
                ),
                "remove what is too much, or spread it over several namespaces",
            ),
            Full::Share(Share::Stray) => (
                String::new(),
                format!(
                    "more than {keys} keys, or {mib} MiB of them, are no provider's: the rest is not \
                     looked at"
                ),
                "remove them",
            ),
        };
        let place = format!("{}{namespace}", self.layout.providers());
        warning(&self.shown(place.as_bytes()), "", reason, remedy).because(Cause::Room)
    }

    /// Takes what stands under a key.
    ///
    /// # Errors
    /// Where there is no room for it.
    fn put(&mut self, kv: &Kv) -> Result<(), Full> {
        let share = Share::of(&self.layout, &kv.key);
        if let Some(before) = self.held.get(&kv.key) {
            self.room.give_back(&share, before.bytes(&kv.key));
        }
        // A value that is too large is not held.
        let value = Some(kv.value.len()).filter(|bytes| *bytes <= MAX_VALUE_BYTES);
        let bytes = kv.key.len() + value.unwrap_or(0);
        if let Some(full) = self.room.lacking(&share, bytes) {
            // What stood there before is not what stands there now.
            self.has_changed |= self.held.remove(&kv.key).is_some();
            self.has_changed |= self.full.insert(full.clone());
            return Err(full);
        }
        let verdict = self.judge(self.shown(&kv.key), kv);
        let held = self.held.entry(kv.key.clone()).or_default();
        held.modified = kv.modified;
        held.lost_until = None;
        match verdict {
            Ok(entry) => {
                let entry = Arc::new(entry);
                let before = held.good.replace((Arc::clone(&entry), kv.lease));
                let had_problem = held.problem.take().is_some();
                let is_same = before.is_some_and(|(before, _)| before == entry);
                self.has_changed |= had_problem || !is_same;
            }
            Err(problem) => {
                // The last good value has the lease's life, and that of its key.
                let stays = |(entry, lease): &(Arc<Entry>, i64)| {
                    *lease == kv.lease && entry.created == kv.created
                };
                held.good = held.good.take().filter(stays);
                held.problem = Some(shortened(*problem));
                self.has_changed = true;
            }
        }
        self.room.take(share, held.bytes(&kv.key));
        Ok(())
    }

    fn judge(&self, origin: Origin, kv: &Kv) -> Result<Entry, Box<Problem>> {
        let key = self.layout.provider(&kv.key);
        let key = key.map_err(|error| {
            let remedy = "remove it, or register under such a key";
            Box::new(warning(&origin, "", error.to_string(), remedy).because(Cause::Key))
        })?;
        if kv.lease == 0 {
            let reason = "it has no lease: it would stay when its provider is gone".to_owned();
            let remedy = "use heddle register, or write what stays into the folder";
            let problem = warning(&origin, "", reason, remedy).because(Cause::Lease);
            return Err(Box::new(problem));
        }
        judge(&origin, &key, &kv.value).map_err(|problem| problem.because(Cause::Value))?;
        Ok(Entry {
            origin,
            key,
            value: kv.value.clone(),
            created: kv.created,
        })
    }

    /// Whether that makes room for something that had none.
    fn delete(&mut self, key: &[u8], modified: i64) -> bool {
        let known = self.held.get(key);
        if known.is_some_and(|held| modified <= held.modified) {
            return false;
        }
        let share = Share::of(&self.layout, key);
        if let Some(held) = self.held.remove(key) {
            self.room.give_back(&share, held.bytes(key));
            self.has_changed = true;
        }
        makes_room(&self.full, &self.room, share)
    }

    /// A key as a place in which something is wrong.
    fn shown(&self, key: &[u8]) -> Origin {
        let key = key.get(..MAX_SHOWN).unwrap_or(key);
        Origin::etcd(&*printable(&String::from_utf8_lossy(key)))
    }

    /// What holds whatever happens.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn check_invariants(&self) {
        let mut room = Room::default();
        for (key, held) in &self.held {
            room.take(Share::of(&self.layout, key), held.bytes(key));
        }
        assert_eq!(self.room, room, "room is counted");
        room.check_invariants();
        for held in self.held.values() {
            assert!(
                held.good.is_some() || held.problem.is_some(),
                "something is held"
            );
            assert!(
                held.lost_until.is_none() || held.good.is_some(),
                "what was lost was good"
            );
        }
    }
}

/// Whether there may be room for what had none, now that something of a share is gone. That of stray keys has to be
/// empty: for them alone, not every one that goes is worth another list.
fn makes_room(full: &BTreeSet<Full>, room: &Room, share: Share) -> bool {
    match share {
        Share::Stray => room.is_free(&share) && full.contains(&Full::Share(share)),
        Share::Namespace(_) => full.contains(&Full::All) || full.contains(&Full::Share(share)),
    }
}

/// A problem as it is held: its words may be a value's.
fn shortened(problem: Problem) -> Problem {
    let short = |text: String| match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    };
    Problem {
        field: short(problem.field),
        reason: short(problem.reason),
        remedy: short(problem.remedy),
        ..problem
    }
}

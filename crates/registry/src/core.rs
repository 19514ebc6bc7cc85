//! The known content of the registry: a state machine without network or clock.
//!
//! ```text
//!            connected            last page              compacted, too full before
//!    away ─────────────► listing ───────────► watching ─────────────────────────────► listing
//!     ▲                     │                     │
//!     └──────── lost ───────┴──────── lost ───────┘
//! ```
//!
//! Only answers of etcd change what is held, never its silence: while etcd is away every provider stays, and providers
//! that ended meanwhile are removed with the last page of the next list. All pages of a list are of one revision, and
//! the watch begins with the next revision, so no change is missed.
//!
//! A store whose revision has gone back, or that is of another cluster, has lost its data: it was emptied, or restored
//! from a copy. Then providers missing in the list are kept for [`GRACE`], in which every live provider registers
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_compile::registered::{Entry, Layout, MAX_VALUE_BYTES, Providers, judge, warning};
use heddle_model::printable;
use heddle_model::report::{Cause, Origin, Problem};

mod pages;
mod room;

#[cfg(test)]
mod tests;

use pages::Pages;
use room::{Full, MOST, Room, Share};

/// How many problems are listed; of the others only the count is kept.
const MAX_PROBLEMS: usize = 100;
/// How many bytes of a key, and how many characters of a problem's text, are shown.
const MAX_SHOWN: usize = 256;
/// How long providers that the store has lost are kept. A registrar notices the loss within a third of its time to
/// live, and within ten seconds.
pub(super) const GRACE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kv {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// 0 for no lease.
    pub(super) lease: i64,
    /// The revision that created the key, and the one that last changed its value.
    pub(super) created: i64,
    pub(super) modified: i64,
}

/// One page of a list.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) cluster: u64,
    pub(super) revision: i64,
    pub(super) kvs: Vec<Kv>,
    /// Whether keys follow after the last one of this page.
    pub(super) more: bool,
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Put(Kv),
    Delete { key: Vec<u8>, modified: i64 },
}

/// The next request to etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// List the keys from `from` on, at a revision; 0 for the current one.
    List { from: Vec<u8>, revision: i64 },
    /// Watch the changes from this revision on.
    Watch { revision: i64 },
}

/// What is known of a key, valid or not.
#[derive(Debug, Default)]
struct Held {
    modified: i64,
    /// The last valid value, with the lease under which it was written.
    good: Option<(Arc<Entry>, i64)>,
    /// The fault of the current value, which few have.
    problem: Option<Box<Problem>>,
    /// When the entry is removed, if the store has lost it.
    lost_until: Option<Instant>,
}

impl Held {
    /// Whether `kv` equals the held value, and that value is valid and not lost.
    fn is(&self, kv: &Kv) -> bool {
        let is_good = self.good.as_ref().is_some_and(|(entry, lease)| {
            *lease == kv.lease && entry.created == kv.created && entry.value == kv.value
        });
        let goes_on = self.problem.is_none() && self.lost_until.is_none();
        is_good && goes_on && self.modified == kv.modified
    }

    /// The bytes that count against the room of the key's share.
    fn bytes(&self, key: &[u8]) -> usize {
        key.len() + self.good.as_ref().map_or(0, |(entry, _)| entry.value.len())
    }
}

#[derive(Debug)]
enum Phase {
    Away,
    Listing {
        /// Held keys on the pages so far.
        seen: BTreeSet<Vec<u8>>,
        /// The revision of the list; 0 until its first page.
        revision: i64,
        /// Whether the store has lost its data, or is another one.
        has_lost: bool,
        /// Where keys on the pages so far found no room.
        full: BTreeSet<Full>,
        /// Whether this list directly follows another, because room became free.
        is_again: bool,
    },
    Watching,
}

#[derive(Debug)]
pub(super) struct Core {
    layout: Layout,
    phase: Phase,
    held: BTreeMap<Vec<u8>, Held>,
    /// The valid entries of those, as they are passed on.
    pages: Pages,
    /// The keys of which the newest value, or every one, is wrong.
    wrong: BTreeSet<Vec<u8>>,
    room: Room,
    /// Where a key that may still exist found no room.
    full: BTreeSet<Full>,
    /// The cluster id of the last list.
    cluster: u64,
    /// The revision up to which every change is known.
    revision: i64,
    /// Whether there may be entries that the store has lost.
    has_lost: bool,
    /// Whether a list was completed once.
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
            pages: Pages::default(),
            wrong: BTreeSet::new(),
            room: Room::default(),
            full: BTreeSet::new(),
            cluster: 0,
            revision: 0,
            has_lost: false,
            is_known: false,
            has_changed: false,
            version: 0,
        }
    }

    /// The revision up to which every change is known.
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// How many keys are held, wrong ones included.
    pub(super) fn keys(&self) -> usize {
        self.held.len()
    }

    /// Starts a list: an endpoint is connected, or the watch cannot continue.
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

    /// The connection was lost. Nothing is removed.
    pub(super) fn lost(&mut self) {
        self.phase = Phase::Away;
    }

    /// Takes a page of a list. A page that was not asked for starts a new list.
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
        // A key without room is not remembered in `seen` either, so that memory stays bounded.
        let (mut seen, mut full) = (std::mem::take(seen), std::mem::take(full));
        for kv in page.kvs {
            // A listed key is taken whatever its revisions: they may be those of another store.
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
            // An empty page with `more` set would repeat for ever, and counts as the last.
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

    /// Ends a list: held keys that are not in it are removed. If that makes room for keys that had none, one more list
    /// follows, and never more than one.
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
                    self.has_lost = true;
                }
                // Revisions of another store do not compare with coming ones.
                held.modified = 0;
                let stays = held.lost_until.is_some_and(|until| now < until);
                if !stays {
                    let share = Share::of(&self.layout, key);
                    self.room.give_back(&share, held.bytes(key));
                    has_room |= !is_again && makes_room(&self.full, &self.room, share);
                    self.has_changed = true;
                    self.pages.changed(key);
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

    /// Takes the events of a watch, up to a revision. Returns a list request if a deletion may have made room for a key
    /// that had none.
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
                        // `put` itself records where room is lacking.
                        let _lacking = self.put(&kv);
                    }
                }
                Change::Delete { key, modified } => has_room |= self.delete(&key, modified),
            }
        }
        self.revision = self.revision.max(revision);
        has_room.then(|| self.begin())
    }

    /// Removes entries that the store has lost and no provider has registered again. Returns when to call it again.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        // Called at each event.
        if !self.has_lost {
            return None;
        }
        let mut next: Option<Instant> = None;
        self.held.retain(|key, held| match held.lost_until {
            Some(until) if until <= now => {
                let share = Share::of(&self.layout, key);
                self.room.give_back(&share, held.bytes(key));
                self.has_changed = true;
                self.pages.changed(key);
                false
            }
            Some(until) => {
                next = Some(next.map_or(until, |next| next.min(until)));
                true
            }
            None => true,
        });
        self.has_lost = next.is_some();
        next
    }

    /// Whether [`Core::providers`] would return something.
    pub(super) fn has_news(&self) -> bool {
        self.is_known && self.has_changed
    }

    /// The current providers, if they changed since the last call.
    pub(super) fn providers(&mut self) -> Option<Providers> {
        if !self.has_news() {
            return None;
        }
        self.has_changed = false;
        self.version += 1;
        let (entries, changed) = self.pages.refresh(&self.held);
        for key in changed {
            let held = self.held.get(&key);
            match held.is_some_and(|held| held.problem.is_some() || held.good.is_none()) {
                true => self.wrong.insert(key),
                false => self.wrong.remove(&key),
            };
        }
        let (mut problems, mut wrong) = (Vec::new(), Vec::new());
        let mut by_cause: BTreeMap<Cause, usize> = BTreeMap::new();
        let mut more = 0;
        for key in &self.wrong {
            let Some(held) = self.held.get(key) else {
                continue;
            };
            if held.good.is_none() {
                wrong.extend(self.layout.provider(key));
            }
            let Some(problem) = &held.problem else {
                continue;
            };
            if let Some(cause) = problem.cause {
                *by_cause.entry(cause).or_default() += 1;
            }
            match problems.len() < MAX_PROBLEMS {
                true => problems.push(Problem::clone(problem)),
                false => more += 1,
            }
        }
        let place = self.shown(self.layout.providers().as_bytes());
        if more > 0 {
            let reason = format!("{more} more values are wrong");
            problems.push(warning(&place, "", reason, "correct the others first"));
        }
        if !self.full.is_empty() {
            by_cause.insert(Cause::Room, self.full.len());
        }
        problems.extend(self.full.iter().map(|full| self.left_out(full)));
        Some(Providers {
            entries,
            problems,
            by_cause,
            wrong,
            version: self.version,
        })
    }

    /// The problem for a share or registry that is full.
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
                "remove some of them, or spread them over several namespaces",
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

    /// Takes the value of a key.
    ///
    /// # Errors
    /// [`Full`], where room is lacking.
    fn put(&mut self, kv: &Kv) -> Result<(), Full> {
        let share = Share::of(&self.layout, &kv.key);
        if let Some(before) = self.held.get(&kv.key) {
            self.room.give_back(&share, before.bytes(&kv.key));
        }
        // A value above the limit is not held, and counts no bytes.
        let value = Some(kv.value.len()).filter(|bytes| *bytes <= MAX_VALUE_BYTES);
        let bytes = kv.key.len() + value.unwrap_or(0);
        if let Some(full) = self.room.lacking(&share, bytes) {
            // The held value is outdated, so it is removed.
            if self.held.remove(&kv.key).is_some() {
                self.has_changed = true;
                self.pages.changed(&kv.key);
            }
            self.has_changed |= self.full.insert(full.clone());
            return Err(full);
        }
        let verdict = self.judge(self.shown(&kv.key), kv);
        self.pages.changed(&kv.key);
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
                // The last valid value stays only while its lease is the key's lease, and the key was not created anew.
                let stays = |(entry, lease): &(Arc<Entry>, i64)| {
                    *lease == kv.lease && entry.created == kv.created
                };
                held.good = held.good.take().filter(stays);
                held.problem = Some(Box::new(shortened(*problem)));
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
            let remedy = "use heddle register, or put a permanent workload into the folder";
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

    /// Removes a key; returns whether that makes room for a key that had none.
    fn delete(&mut self, key: &[u8], modified: i64) -> bool {
        let known = self.held.get(key);
        if known.is_some_and(|held| modified <= held.modified) {
            return false;
        }
        let share = Share::of(&self.layout, key);
        if let Some(held) = self.held.remove(key) {
            self.room.give_back(&share, held.bytes(key));
            self.has_changed = true;
            self.pages.changed(key);
        }
        makes_room(&self.full, &self.room, share)
    }

    /// A key as the origin of a problem, printable and shortened.
    fn shown(&self, key: &[u8]) -> Origin {
        let key = key.get(..MAX_SHOWN).unwrap_or(key);
        Origin::etcd(&*printable(&String::from_utf8_lossy(key)))
    }

    /// Checks what must be true after every step.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn check_invariants(&self) {
        let mut room = Room::default();
        for (key, held) in &self.held {
            room.take(Share::of(&self.layout, key), held.bytes(key));
        }
        assert_eq!(self.room, room, "room is counted");
        let mut wrong = self.wrong.iter();
        assert!(
            wrong.all(|key| self.pages.has_changed(key) || self.held.contains_key(key)),
            "what is wrong is held"
        );
        room.check_invariants();
        for (key, held) in &self.held {
            let is_wrong = held.problem.is_some() || held.good.is_none();
            assert!(
                self.pages.has_changed(key) || self.wrong.contains(key) == is_wrong,
                "wrong keys are known"
            );
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

/// Whether removing a key of a share may make room for a key that had none. The share of stray keys has to be empty for
/// that: stray keys alone do not justify another list after every removal.
fn makes_room(full: &BTreeSet<Full>, room: &Room, share: Share) -> bool {
    match share {
        Share::Stray => room.is_free(&share) && full.contains(&Full::Share(share)),
        Share::Namespace(_) => full.contains(&Full::All) || full.contains(&Full::Share(share)),
    }
}

/// A problem with bounded texts: they may quote a value.
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

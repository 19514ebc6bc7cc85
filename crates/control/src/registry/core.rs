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
//! emptied, or restored from a copy. Then what is missing in the list goes on for [`GRACE`], in which whoever
//! lives registers anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::value::judge;
use super::{Entry, Layout, Providers, warning};
use crate::problem::{IN_REGISTRY, Problem, printable};

#[cfg(test)]
mod tests;

/// Keys that are held, right or wrong.
pub(super) const MAX_HELD: usize = 10_000;
/// Bytes of all keys and right values that are held.
pub(super) const MAX_BYTES: usize = 32 << 20;
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
        /// There was no room for something on the pages so far.
        is_full: bool,
    },
    Watching,
}

#[derive(Debug)]
pub(super) struct Core {
    layout: Layout,
    phase: Phase,
    held: BTreeMap<Vec<u8>, Held>,
    bytes: usize,
    /// There was no room for something that may still be there.
    is_full: bool,
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
            bytes: 0,
            is_full: false,
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

    /// There is somebody to ask, or the watch cannot go on: everything is listed.
    pub(super) fn begin(&mut self) -> Next {
        self.phase = Phase::Listing {
            seen: BTreeSet::new(),
            revision: 0,
            has_lost: false,
            is_full: false,
        };
        Next::List {
            from: self.layout.providers().into_bytes(),
            revision: 0,
        }
    }

    /// Nobody answers any more. Nothing is removed.
    pub(super) fn lost(&mut self) {
        self.phase = Phase::Away;
    }

    /// Takes a page of a list. One that was not asked for begins anew.
    pub(super) fn page(&mut self, now: Instant, page: Page) -> Next {
        let Phase::Listing {
            seen,
            revision,
            has_lost,
            is_full,
        } = &mut self.phase
        else {
            return self.begin();
        };
        if *revision == 0 {
            *revision = page.revision;
            let is_other = page.cluster != self.cluster || page.revision < self.revision;
            *has_lost = self.is_known && is_other;
        }
        let (at, has_lost, mut is_full) = (*revision, *has_lost, *is_full);
        let last = page.kvs.last().map(|kv| kv.key.clone());
        // What there is no room for is not kept in mind either.
        let mut seen = std::mem::take(seen);
        for kv in page.kvs {
            // A list counts whatever its revisions say: they may be another store's.
            let is_same = self.held.get(&kv.key).is_some_and(|held| held.is(&kv));
            if is_same || self.put(&kv) {
                seen.insert(kv.key);
            } else {
                is_full = true;
            }
        }
        self.phase = Phase::Listing {
            seen,
            revision: at,
            has_lost,
            is_full,
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

    /// The list is read to its end: what is not in it is gone.
    fn listed(&mut self, now: Instant, revision: i64, has_lost: bool) -> Next {
        let phase = std::mem::replace(&mut self.phase, Phase::Watching);
        if let Phase::Listing { seen, is_full, .. } = phase {
            self.has_changed |= self.is_full != is_full;
            self.is_full = is_full;
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
                    self.bytes -= held.bytes(key);
                    self.has_changed = true;
                }
                stays
            });
        }
        self.revision = revision;
        self.has_changed |= !self.is_known;
        self.is_known = true;
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
        let was_full = self.is_full;
        let mut has_room = false;
        for change in changes {
            match change {
                Change::Put(kv) => {
                    let known = self.held.get(&kv.key);
                    if known.is_none_or(|held| held.modified < kv.modified) {
                        self.put(&kv);
                    }
                }
                Change::Delete { key, modified } => has_room |= self.delete(&key, modified),
            }
        }
        self.revision = self.revision.max(revision);
        (was_full && has_room).then(|| self.begin())
    }

    /// Lets go what a store has lost and nobody has registered anew. Says when to ask again.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        self.held.retain(|key, held| match held.lost_until {
            Some(until) if until <= now => {
                self.bytes -= held.bytes(key);
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
        let mut more = 0;
        for problem in self.held.values().filter_map(|held| held.problem.as_ref()) {
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
        if self.is_full {
            let reason = format!(
                "there is more than {MAX_HELD} providers or {} MiB: the rest is left out",
                MAX_BYTES >> 20
            );
            problems.push(warning(&place, "", reason, "use a prefix for each mesh"));
        }
        Some(Providers {
            entries: entries.map(|(entry, _)| Arc::clone(entry)).collect(),
            problems,
            version: self.version,
        })
    }

    /// Whether there was room for it.
    fn put(&mut self, kv: &Kv) -> bool {
        let known = self.held.get(&kv.key).map(|held| held.bytes(&kv.key));
        let others = self.bytes - known.unwrap_or(0);
        let room = others + kv.key.len() + kv.value.len();
        if (known.is_none() && self.held.len() >= MAX_HELD) || room > MAX_BYTES {
            // What stood there before is not what stands there now.
            self.remove(&kv.key);
            self.has_changed |= !std::mem::replace(&mut self.is_full, true);
            return false;
        }
        let place = self.shown(&kv.key);
        let verdict = self.judge(&place, kv);
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
        self.bytes = others + held.bytes(&kv.key);
        true
    }

    fn judge(&self, place: &str, kv: &Kv) -> Result<Entry, Box<Problem>> {
        let key = self.layout.provider(&kv.key);
        let key = key.map_err(|error| {
            let remedy = "remove it, or register under such a key";
            Box::new(warning(place, "", error.to_string(), remedy))
        })?;
        if kv.lease == 0 {
            let reason = "it has no lease: it would stay when its provider is gone".to_owned();
            let remedy = "use heddle register, or write what stays into the folder";
            return Err(Box::new(warning(place, "", reason, remedy)));
        }
        judge(place, &key, &kv.value)?;
        Ok(Entry {
            place: place.to_owned(),
            key,
            value: kv.value.clone(),
            created: kv.created,
        })
    }

    /// Whether something went.
    fn delete(&mut self, key: &[u8], modified: i64) -> bool {
        let is_newer = self
            .held
            .get(key)
            .is_none_or(|held| held.modified < modified);
        is_newer && (self.remove(key) || self.is_full)
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(held) = self.held.remove(key) else {
            return false;
        };
        self.bytes -= held.bytes(key);
        self.has_changed = true;
        true
    }

    /// A key as a place in which something is wrong.
    fn shown(&self, key: &[u8]) -> String {
        let key = key.get(..MAX_SHOWN).unwrap_or(key);
        format!("{IN_REGISTRY}{}", printable(&String::from_utf8_lossy(key)))
    }

    /// What holds whatever happens.
    #[cfg(test)]
    fn check_invariants(&self) {
        let held = self.held.iter();
        let bytes: usize = held.map(|(key, held)| held.bytes(key)).sum();
        assert_eq!(self.bytes, bytes, "bytes are counted");
        assert!(self.held.len() <= MAX_HELD && bytes <= MAX_BYTES, "bounds");
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

//! The only writer of control groups: it remembers what it found, writes in an order that the kernel accepts, and puts
//! everything back.
//!
//! Before a value is written, the [`journal`] has what was there and what is about to be there. So after a kill at any
//! point the next start knows which values are its own. A value that is none of these was written by another program,
//! such as the kubelet after a resize: it is left alone, and counts as the original from then on.

mod held;
pub mod journal;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

use heddle_model::Class;

pub use self::held::{Held, Key};
use self::journal::{Record, Store};
use crate::cgroup::{ControlGroup, Groups, Knob, Value};
use crate::counts::Counts;

/// One value to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The group and its knob.
    pub key: Key,
    /// What shall be there.
    pub value: Value,
}

/// Values that are written together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The pod for which they are written, as in output.
    pub pod: String,
    /// Its class.
    pub class: Class,
    /// The reason, as in output.
    pub why: String,
    /// The values; each knob once.
    pub steps: Vec<Step>,
}

/// Why a change was not made.
#[derive(Debug)]
pub enum Refusal {
    /// Another program wrote this knob since we did. Its value stays.
    Foreign(Key, Value),
    /// The group is gone.
    Gone(ControlGroup),
    /// The kernel or the journal refused; what was written before of this change is put back.
    Failed(Key, io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Foreign(key, value) => {
                let value = key.knob.shown(*value);
                write!(f, "another program set the {key} to {value}, which stays")
            }
            Refusal::Gone(group) => write!(f, "the control group {group} is gone"),
            Refusal::Failed(key, error) => write!(f, "cannot set the {key}: {error}"),
        }
    }
}

/// What is said of a value that is written.
#[derive(Debug, Clone, Copy)]
struct About<'a> {
    pod: &'a str,
    class: Class,
    why: &'a str,
    since_s: u64,
}

impl<'a> About<'a> {
    fn of(held: &'a Held) -> Self {
        About {
            pod: &held.pod,
            class: held.class,
            why: &held.why,
            since_s: held.since_s,
        }
    }
}

/// What became of a knob that should be put back.
#[derive(Debug)]
pub enum Restored {
    /// The original value is there.
    Done,
    /// Another program's value is there, and stays.
    Foreign(Value),
    /// The group is gone.
    Gone,
    /// Still to be done: the kernel refused.
    Failed(io::Error),
}

/// Writes control groups. One process has one, under the lock of its journal.
#[derive(Debug)]
pub struct Arbiter<G, S> {
    groups: G,
    store: S,
    held: BTreeMap<Key, Held>,
    /// What was read in this sweep; `None` between sweeps. Plans are made of it; before a value is written, the file
    /// itself is read again.
    seen: RefCell<Option<BTreeMap<Key, Value>>>,
    counts: Counts,
}

impl<G: Groups, S: Store> Arbiter<G, S> {
    /// Continues with what an earlier process held. Writes nothing yet.
    pub fn new(groups: G, store: S, held: BTreeMap<Key, Held>) -> Self {
        Arbiter {
            groups,
            store,
            held,
            seen: RefCell::new(None),
            counts: Counts::default(),
        }
    }

    /// The groups, to read from.
    pub fn groups(&self) -> &G {
        &self.groups
    }

    /// Everything that is not as it was found.
    pub fn held(&self) -> &BTreeMap<Key, Held> {
        &self.held
    }

    /// What was written and refused.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The value that a knob has when we do not change it.
    ///
    /// # Errors
    /// When the knob cannot be read.
    pub fn original(&self, key: &Key) -> io::Result<Value> {
        let now = self.value(key)?;
        let held = self.held.get(key);
        let ours = held.filter(|held| held.ours.contains(&now));
        Ok(ours.map_or(now, |held| held.original))
    }

    /// The value of a knob, which within a sweep is read once.
    ///
    /// # Errors
    /// When the knob cannot be read.
    pub fn value(&self, key: &Key) -> io::Result<Value> {
        let seen = &mut *self.seen.borrow_mut();
        if let Some(value) = seen.as_ref().and_then(|seen| seen.get(key)) {
            return Ok(*value);
        }
        let value = self.groups.read(&key.group, key.knob)?;
        if let Some(seen) = seen {
            seen.insert(key.clone(), value);
        }
        Ok(value)
    }

    /// Begins a sweep: gives up what is no longer ours, which are knobs that another program wrote, and groups that are
    /// gone.
    pub fn begin_sweep(&mut self) -> Vec<(Key, Restored)> {
        let mut seen = BTreeMap::new();
        let mut given_up = Vec::new();
        let keys: Vec<Key> = self.held.keys().cloned().collect();
        for key in keys {
            match self.current(&key) {
                Ok(value) => drop(seen.insert(key, value)),
                Err(Refusal::Foreign(_, value)) => {
                    given_up.push((key, Restored::Foreign(value)));
                }
                Err(Refusal::Gone(_)) => {
                    let done = self.dropped(&key, Restored::Gone);
                    given_up.push((key, done));
                }
                Err(Refusal::Failed(..)) => {}
            }
        }
        *self.seen.get_mut() = Some(seen);
        given_up
    }

    /// Ends a sweep.
    pub fn end_sweep(&mut self) {
        *self.seen.get_mut() = None;
    }

    /// Writes all values of a change, or none. `now_s` is the time in seconds since 1970.
    ///
    /// A quota may not be above the parent's (version 1), so lower quotas go first from the leaves up, then higher ones
    /// from the root down.
    ///
    /// # Errors
    /// See [`Refusal`]. Nothing has changed then, unless the kernel also refuses the way back.
    pub fn apply(&mut self, change: &Change, now_s: u64) -> Result<(), Refusal> {
        let is_there = |step: &Step| self.value(&step.key).is_ok_and(|now| now == step.value);
        if change.steps.iter().all(is_there) {
            return Ok(());
        }
        let done = self.apply_or_take_back(change, now_s);
        self.counts.failed += u64::from(matches!(done, Err(Refusal::Failed(..))));
        done
    }

    fn apply_or_take_back(&mut self, change: &Change, now_s: u64) -> Result<(), Refusal> {
        let mut steps = Vec::with_capacity(change.steps.len());
        for step in &change.steps {
            steps.push((step, self.current(&step.key)?));
        }
        steps.sort_by_key(|(step, before)| order(&step.key.group, *before, step.value));
        let about = About {
            pod: &change.pod,
            class: change.class,
            why: &change.why,
            since_s: now_s,
        };
        for (done, (step, _)) in steps.iter().enumerate() {
            if let Err(refusal) = self.put(&step.key, step.value, about) {
                for (step, before) in steps[..done].iter().rev() {
                    if let Err(error) = self.put(&step.key, *before, about) {
                        tracing::warn!("a change that failed could not be taken back: {error}");
                    }
                }
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Puts a knob back as it was found.
    pub fn restore(&mut self, key: &Key) -> Restored {
        let done = self.put_back(key);
        self.counts.failed += u64::from(matches!(done, Restored::Failed(_)));
        done
    }

    fn put_back(&mut self, key: &Key) -> Restored {
        let Some(held) = self.held.get(key).cloned() else {
            return Restored::Done;
        };
        let now = match self.is_same_group(key, &held) {
            Ok(true) => self.groups.read(&key.group, key.knob),
            Ok(false) => return self.dropped(key, Restored::Gone),
            Err(error) => Err(error),
        };
        match now {
            Ok(now) if now == held.original => self.dropped(key, Restored::Done),
            Ok(now) if held.ours.contains(&now) => {
                match self.put(key, held.original, About::of(&held)) {
                    Ok(()) => Restored::Done,
                    Err(Refusal::Gone(_)) => self.dropped(key, Restored::Gone),
                    Err(Refusal::Foreign(_, value)) => Restored::Foreign(value),
                    Err(Refusal::Failed(_, error)) => Restored::Failed(error),
                }
            }
            Ok(now) => {
                self.counts.foreign += 1;
                self.dropped(key, Restored::Foreign(now))
            }
            // A file that the kernel takes away, as with a controller of version 2 or a module of a scheduler, comes back
            // with the kernel's own value.
            Err(error) if is_gone(&error) => self.dropped(key, Restored::Gone),
            Err(error) => Restored::Failed(error),
        }
    }

    /// Puts everything back, and tells what became of each knob.
    pub fn restore_all(&mut self) -> Vec<(Key, Held, Restored)> {
        let mut all: Vec<(Key, Held)> = self.held.clone().into_iter().collect();
        all.sort_by_key(|(key, held)| {
            let now = held.ours.last().copied().unwrap_or(held.original);
            // What may be saved up is at most the quota: less of it is put back before quotas, more of it after them.
            let turn = match (key.knob, held.original > now) {
                (Knob::CpuBurst, false) => 0,
                (Knob::CpuBurst, true) => 2,
                _ => 1,
            };
            (turn, order(&key.group, now, held.original))
        });
        let mut restored = Vec::new();
        for (key, held) in all {
            let done = self.restore(&key);
            restored.push((key, held, done));
        }
        restored
    }

    /// The value now, which is ours or was never touched.
    fn current(&mut self, key: &Key) -> Result<Value, Refusal> {
        let read = self.groups.read(&key.group, key.knob);
        let now = read.map_err(|error| refused(key, error))?;
        let Some(held) = self.held.get(key) else {
            return Ok(now);
        };
        let is_same = self.is_same_group(key, held);
        if !is_same.map_err(|error| refused(key, error))? {
            // Another group of this path: nothing of it was changed.
            self.forget(key);
            return Ok(now);
        }
        if held.ours.contains(&now) {
            return Ok(now);
        }
        self.counts.foreign += 1;
        self.forget(key);
        Err(Refusal::Foreign(key.clone(), now))
    }

    fn is_same_group(&self, key: &Key, held: &Held) -> io::Result<bool> {
        Ok(self.groups.inode(&key.group, key.knob)? == held.inode)
    }

    /// Writes one value.
    fn put(&mut self, key: &Key, value: Value, about: About<'_>) -> Result<(), Refusal> {
        let now = self.current(key)?;
        if now == value {
            return Ok(());
        }
        let failed = |error: io::Error| refused(key, error);
        let before = self.held.get(key);
        let original = before.map_or(now, |held| held.original);
        let mut held = Held {
            pod: about.pod.to_owned(),
            class: about.class,
            why: about.why.to_owned(),
            since_s: before.map_or(about.since_s, |held| held.since_s),
            inode: self.groups.inode(&key.group, key.knob).map_err(failed)?,
            original,
            ours: vec![now, value],
        };
        if now == Value::Idle {
            held.ours.push(self.groups.weight_after_idle());
        }
        match self.keep(key, held.clone()) {
            // A full disk does not hold up the way back: the original value is known as such without a record.
            Err(error) if value != original => return Err(Refusal::Failed(key.clone(), error)),
            Ok(()) | Err(_) => {}
        }
        if let Some(seen) = self.seen.get_mut() {
            seen.remove(key);
        }
        let written = self.groups.write(&key.group, key.knob, value);
        let there = match &written {
            Ok(()) => Some(value),
            // It may have been done in part.
            Err(_) => self.groups.read(&key.group, key.knob).ok(),
        };
        match there {
            Some(there) if there == original => self.forget(key),
            Some(there) => {
                held.ours = vec![there];
                let kept = self.keep(key, held);
                kept.map_err(|error| Refusal::Failed(key.clone(), error))?;
            }
            None => {}
        }
        written.map_err(failed)?;
        self.counts.writes += 1;
        let pod = about.pod;
        let why = match value == original {
            true => "as it was found",
            false => about.why,
        };
        let (now, value) = (key.knob.shown(now), key.knob.shown(value));
        match (key.knob, self.groups.is_rehearsal()) {
            (_, true) => tracing::info!(pod, "the {key} would go from {now} to {value}: {why}"),
            // Turbo writes several times a second.
            (Knob::CpuQuota, false) => tracing::debug!(pod, "the {key}: {now} to {value}: {why}"),
            (_, false) => tracing::info!(pod, "the {key}: {now} to {value}: {why}"),
        }
        Ok(())
    }

    fn keep(&mut self, key: &Key, held: Held) -> io::Result<()> {
        self.store.append(&Record::Set(key.clone(), held.clone()))?;
        self.held.insert(key.clone(), held);
        self.compact()
    }

    /// This knob is no longer ours.
    fn forget(&mut self, key: &Key) {
        if self.held.remove(key).is_some() {
            journal::dropped(&mut self.store, key, &self.held);
        }
    }

    fn dropped(&mut self, key: &Key, done: Restored) -> Restored {
        self.forget(key);
        done
    }

    fn compact(&mut self) -> io::Result<()> {
        match self.store.is_long(self.held.len()) {
            true => self.store.replace(&self.held),
            false => Ok(()),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, Unsupported};
    matches!(error.kind(), NotFound | Unsupported)
}

fn refused(key: &Key, error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::Gone(key.group.clone()),
        _ => Refusal::Failed(key.clone(), error),
    }
}

/// Place in the order of writing: lower values from the leaves up, then higher ones from the root down.
fn order(group: &ControlGroup, before: Value, after: Value) -> (bool, isize) {
    let depth = isize::try_from(group.depth()).unwrap_or(isize::MAX);
    match after > before {
        true => (true, depth),
        false => (false, -depth),
    }
}

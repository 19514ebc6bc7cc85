//! The only writer of the network: it remembers what it found, and puts it back.
//!
//! A part of an interface goes through these states. The journal says *held* before the kernel is asked.
//!
//! ```text
//!            journal: held            kernel: done
//!   found ─────────────────► asked ─────────────────► ours
//!     ▲                        │                       │ another program changes it
//!     │  journal: dropped      │ put back              ▼
//!     └────────────────────────┴─────────────────── foreign: stays, and is dropped
//! ```
//!
//! After a kill in any state the next start looks at the kernel: what has our handle is ours and is removed, all else
//! stays. The kernel itself compares the handle once more when a root is removed, and refuses to replace a root that another
//! program has put there, so that no time passes between the look and the change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;

use heddle_model::{Class, PacketMark};

use super::held::{Held, Key, Part};
use super::kernel::{Hook, Kernel, Limited, Link, Qdisc, Qdiscs, ROOT};
use crate::arbiter::journal::{self, Record, Store};

#[cfg(test)]
mod tests;

/// Kinds that can be put back from what the kernel tells of them: they have no classes, and their options are read as
/// they are written.
const PUT_BACK: [&str; 6] = ["mq", "fq", "fq_codel", "pfifo", "bfifo", "pfifo_fast"];

/// Why something was not done.
#[derive(Debug)]
pub enum Refusal {
    /// Another program's is there, and stays: what it is.
    Foreign(Key, String),
    /// The interface is gone.
    Gone(Key),
    /// The kernel or the journal refused.
    Failed(Key, io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Foreign(key, what) if key.part == Part::Root => write!(
                f,
                "{} has the queueing discipline {what} of another program, which stays: pods are not limited there. If it \
                 may be replaced until the agent stops, add {} to qos.network.replace",
                key.link, key.link
            ),
            Refusal::Foreign(key, what) => {
                write!(f, "another program has {what} as the {key}, which stays")
            }
            Refusal::Gone(key) => write!(f, "the interface {} is gone", key.link),
            Refusal::Failed(key, error) => write!(f, "cannot change the {key}: {error}"),
        }
    }
}

/// What became of a part that should be put back.
#[derive(Debug)]
pub enum Restored {
    /// It is as it was found.
    Done,
    /// Another program has changed it: what is there stays.
    Foreign(String),
    /// The interface is gone.
    Gone,
    /// Still to be done: the kernel refused.
    Failed(io::Error),
}

/// For what a part is changed.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The pod, or the interface of the node.
    pub pod: &'a str,
    /// The reason, as in output.
    pub why: &'a str,
    /// Seconds since 1970.
    pub since_s: u64,
}

/// Changes the network. One process has one, under the lock of its journal.
#[derive(Debug)]
pub struct Keeper<K, S> {
    kernel: K,
    store: S,
    held: BTreeMap<Key, Held>,
    /// Interfaces whose root may be replaced, whatever it is.
    replace: BTreeSet<String>,
    /// Whether nothing is changed, only said.
    is_rehearsal: bool,
}

impl<K: Kernel, S: Store<Key, Held>> Keeper<K, S> {
    /// Continues with what an earlier process held. Changes nothing yet. `replace` names the interfaces whose root may be
    /// replaced, even if another program has put it there.
    pub fn new(kernel: K, store: S, held: BTreeMap<Key, Held>, replace: BTreeSet<String>) -> Self {
        Keeper {
            kernel,
            store,
            held,
            replace,
            is_rehearsal: false,
        }
    }

    /// Changes nothing from now on, and says what would be changed.
    pub fn rehearse(&mut self) {
        self.is_rehearsal = true;
    }

    /// Whether nothing is changed.
    pub fn is_rehearsal(&self) -> bool {
        self.is_rehearsal
    }

    /// The kernel, to read from.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Everything that is not as it was found.
    pub fn held(&self) -> &BTreeMap<Key, Held> {
        &self.held
    }

    /// The parts that are held and still there as of a look at all queueing disciplines: nothing is to be done for them. A
    /// filter is taken to be there while its hook is.
    pub fn unchanged(&self, seen: &Qdiscs) -> BTreeSet<Key> {
        let is_there = |key: &&Key| {
            let found = seen.get(&(key.link.index, key.part.hook()));
            match key.part {
                Part::Root => found.is_some_and(is_our_root),
                Part::Clsact | Part::Marker => found.is_some(),
            }
        };
        let held = self.held.keys().filter(|_| !self.is_rehearsal);
        held.filter(is_there).cloned().collect()
    }

    /// The key of a part.
    pub fn key(&self, link: &Link, part: Part) -> Key {
        Key {
            namespace: self.kernel.namespace(),
            link: link.clone(),
            part,
        }
    }

    /// Gives an interface our root. `rate` is in bytes per second. Returns whether it is new.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn shape(
        &mut self,
        link: &Link,
        limited: Limited,
        rate: u64,
        about: About<'_>,
    ) -> Result<bool, Refusal> {
        let key = self.key(link, Part::Root);
        if self.is_rehearsal {
            return self.rehearsed(key, "htb 4ed1:", about);
        }
        let found = self.kernel.qdisc(link.index, Hook::Root);
        let found = found.map_err(|error| refused(&key, error))?;
        let is_ours = found.as_ref().is_some_and(is_our_root);
        match (is_ours, self.held.contains_key(&key)) {
            (true, true) => return Ok(false),
            // The journal was lost. The root is made anew, since parts of it may be missing.
            (true, false) => {
                let deleted = self.kernel.delete_root(link.index);
                deleted.map_err(|error| refused(&key, error))?;
                return self.shape(link, limited, rate, about);
            }
            (false, true) => {
                let what = shown(found.as_ref());
                self.forget(&key);
                return Err(Refusal::Foreign(key, what));
            }
            (false, false) => {}
        }
        let is_default = found.as_ref().is_none_or(is_chosen_by_kernel);
        let may_be_replaced = self.replace.contains(&link.name)
            && found
                .as_ref()
                .is_some_and(|root| PUT_BACK.contains(&root.kind.as_str()));
        if !is_default && !may_be_replaced {
            return Err(Refusal::Foreign(key, shown(found.as_ref())));
        }
        self.keep(&key, held(found, "htb 4ed1:", about))
            .map_err(|error| refused(&key, error))?;
        let added = self.kernel.add_root(link.index, limited, !is_default);
        let done = added.and_then(|()| self.kernel.fill_root(link.index, limited, rate));
        self.or_back(&key, done)
    }

    /// Marks what an interface receives. Returns whether that is new.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn mark(
        &mut self,
        link: &Link,
        mark: PacketMark,
        about: About<'_>,
    ) -> Result<bool, Refusal> {
        let key = self.key(link, Part::Marker);
        if self.is_rehearsal {
            return self.rehearsed(key, &mark.to_string(), about);
        }
        self.hook(link, about)?;
        let filters = self.kernel.filters(link.index);
        let filters = filters.map_err(|error| refused(&key, error))?;
        let is_there = filters.iter().any(super::kernel::Filter::is_ours);
        match (is_there, self.held.contains_key(&key)) {
            (true, true) => return Ok(false),
            // The journal was lost; the mark may be another one by now.
            (true, false) => {
                let deleted = self.kernel.delete_marker(link.index);
                deleted.map_err(|error| refused(&key, error))?;
            }
            (false, true) => {
                self.forget(&key);
                return Err(Refusal::Foreign(key, "no filter of ours".to_owned()));
            }
            (false, false) => {}
        }
        self.keep(&key, held(None, &mark.to_string(), about))
            .map_err(|error| refused(&key, error))?;
        let done = self.kernel.add_marker(link.index, mark);
        self.or_back(&key, done)
    }

    /// Adds a hook for filters, unless there is one.
    fn hook(&mut self, link: &Link, about: About<'_>) -> Result<(), Refusal> {
        let key = self.key(link, Part::Clsact);
        let found = self.kernel.qdisc(link.index, Hook::Ingress);
        let found = found.map_err(|error| refused(&key, error))?;
        match (found, self.held.contains_key(&key)) {
            // One of another program does as well.
            (Some(_), _) => return Ok(()),
            (None, true) => self.forget(&key),
            (None, false) => {}
        }
        self.keep(&key, held(None, "clsact", about))
            .map_err(|error| refused(&key, error))?;
        match self.kernel.add_clsact(link.index) {
            // Another program was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.forget(&key);
                Ok(())
            }
            done => self.or_back(&key, done).map(drop),
        }
    }

    /// Puts a part back as it was found.
    pub fn restore(&mut self, key: &Key) -> Restored {
        let Some(held) = self.held.get(key).cloned() else {
            return Restored::Done;
        };
        if self.is_rehearsal {
            self.held.remove(key);
            return Restored::Done;
        }
        if key.namespace != self.kernel.namespace() {
            return Restored::Failed(io::Error::other(format!(
                "it is of another network namespace, {}: run heddle qos restore there",
                key.namespace
            )));
        }
        let done = match key.part {
            Part::Marker => self.restore_marker(key),
            Part::Clsact => self.restore_clsact(key),
            Part::Root => self.restore_root(key, held.original.as_ref()),
        };
        let done = done.unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Restored::Gone,
            _ => Restored::Failed(error),
        });
        if !matches!(done, Restored::Failed(_)) {
            self.forget(key);
        }
        done
    }

    /// Puts everything back, and tells what became of each part.
    pub fn restore_all(&mut self) -> Vec<(Key, Held, Restored)> {
        let mut all: Vec<(Key, Held)> = self.held.clone().into_iter().collect();
        all.sort_by_key(|(key, _)| key.part);
        let mut restored = Vec::new();
        for (key, held) in all {
            let done = self.restore(&key);
            restored.push((key, held, done));
        }
        restored
    }

    fn restore_marker(&mut self, key: &Key) -> io::Result<Restored> {
        if self.kernel.qdisc(key.link.index, Hook::Ingress)?.is_none() {
            return Ok(Restored::Done);
        }
        let filters = self.kernel.filters(key.link.index)?;
        if filters.iter().any(super::kernel::Filter::is_ours) {
            self.kernel.delete_marker(key.link.index)?;
        }
        Ok(Restored::Done)
    }

    fn restore_clsact(&mut self, key: &Key) -> io::Result<Restored> {
        let index = key.link.index;
        match self.kernel.qdisc(index, Hook::Ingress)? {
            Some(qdisc) if qdisc.kind == "clsact" => {}
            None => return Ok(Restored::Done),
            Some(other) => return Ok(Restored::Foreign(other.to_string())),
        }
        let filters = self.kernel.filters(index)?;
        let mut theirs = filters.iter().filter(|filter| !filter.is_ours());
        if let Some(filter) = theirs.next() {
            let what = format!(
                "a filter of kind {}, priority {}",
                filter.kind, filter.priority
            );
            return Ok(Restored::Foreign(what));
        }
        self.kernel.delete_clsact(index)?;
        Ok(Restored::Done)
    }

    fn restore_root(&mut self, key: &Key, original: Option<&Qdisc>) -> io::Result<Restored> {
        let index = key.link.index;
        let found = self.kernel.qdisc(index, Hook::Root)?;
        match found {
            Some(root) if is_our_root(&root) => {}
            found
                if found.as_ref().is_none_or(is_chosen_by_kernel) || found.as_ref() == original =>
            {
                return Ok(Restored::Done);
            }
            found => return Ok(Restored::Foreign(shown(found.as_ref()))),
        }
        match original {
            // The kernel chooses the same again.
            Some(root) if root.handle != 0 => self.kernel.put_back_root(index, root)?,
            Some(_) | None => self.kernel.delete_root(index)?,
        }
        Ok(Restored::Done)
    }

    /// Takes back what was done in part.
    fn or_back(&mut self, key: &Key, done: io::Result<()>) -> Result<bool, Refusal> {
        let Err(error) = done else {
            if let Some(held) = self.held.get(key) {
                tracing::info!(
                    pod = held.pod,
                    "the {key}: {} to {}: {}",
                    held.original(),
                    held.now,
                    held.why
                );
            }
            return Ok(true);
        };
        if let Restored::Failed(back) = self.restore(key) {
            tracing::warn!("a change of the {key} that failed could not be taken back: {back}");
        }
        Err(refused(key, error))
    }

    fn rehearsed(&mut self, key: Key, to: &str, about: About<'_>) -> Result<bool, Refusal> {
        if self.held.contains_key(&key) {
            return Ok(false);
        }
        let found = self.kernel.qdisc(key.link.index, key.part.hook());
        let found = found.map_err(|error| refused(&key, error))?;
        let held = held(found, to, about);
        tracing::info!(
            pod = about.pod,
            "the {key} would go from {} to {to}: {}",
            held.original(),
            about.why
        );
        self.held.insert(key, held);
        Ok(true)
    }

    fn keep(&mut self, key: &Key, held: Held) -> io::Result<()> {
        self.store.append(&Record::Set(key.clone(), held.clone()))?;
        self.held.insert(key.clone(), held);
        match self.store.is_long(self.held.len()) {
            true => self.store.replace(&self.held),
            false => Ok(()),
        }
    }

    fn forget(&mut self, key: &Key) {
        if self.held.remove(key).is_some() {
            journal::dropped(&mut self.store, key, &self.held);
        }
    }
}

fn held(original: Option<Qdisc>, now: &str, about: About<'_>) -> Held {
    Held {
        pod: about.pod.to_owned(),
        class: Class::Offline,
        why: about.why.to_owned(),
        since_s: about.since_s,
        original,
        now: now.to_owned(),
    }
}

fn refused(key: &Key, error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::Gone(key.clone()),
        _ => Refusal::Failed(key.clone(), error),
    }
}

fn is_our_root(root: &Qdisc) -> bool {
    root.handle == ROOT && root.kind == "htb"
}

/// Whether the kernel chose this root itself, and will choose it again. It also chooses `mq` for an interface with
/// several queues, but to replace that costs their independence, so it takes consent.
fn is_chosen_by_kernel(root: &Qdisc) -> bool {
    root.handle == 0 && root.kind != "mq"
}

fn shown(root: Option<&Qdisc>) -> String {
    root.map_or_else(|| "none".to_owned(), ToString::to_string)
}

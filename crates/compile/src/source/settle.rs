//! Decides which version of each object is in force, so that one with a fault is refused by itself.
//!
//! ```text
//!            an error in it                an error in that, too
//!   as it is ──────────────► last good version ──────────────► stand-in ──────► left out
//!   written        │ none                         │ none          (see manifest::closed)
//!                  └──────────────────────────────┴───────────────────▲
//! ```
//!
//! All objects are compiled together. Those in which compilation finds an error go one step further, and all are compiled
//! again, until there is no error: an object that refers to one that is left out may follow it. Each round takes at
//! least one object a step further.
//!
//! The name, the namespace and the kind of an object with an error may be what is wrong with it. So where no good version
//! of such an object is known, it may be any object of its file: what the file had, and the folder does not have any
//! more, stays in force.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_model::report::{InForce, Origin, Problem, Refused};
use heddle_model::{Namespace, PolicyName};

use super::good::Good;
use super::words::{closing_words, namespaces_in};
use crate::findings::{Findings, Key, ObjectId};
use crate::manifest::{Kind, Object, Written, closed};

mod folder;
mod slot;

pub(super) use folder::{Folder, UnreadableFile};
use slot::{Slot, Version, follows, seniors, unreadable_name, words_of};

/// Most rounds. References lead over a few objects only.
const MAX_ROUNDS: usize = 16;
/// The round from which on no last good version is tried: chains end.
const LATE: usize = 12;
/// What a file has that cannot be read, as a report names it.
const UNREADABLE: &str = "unreadable text";
/// Most namespaces that a report names of a file.
const MAX_NAMED: usize = 10;

/// What is in force.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) objects: Vec<Arc<Object>>,
    /// The objects that are not in force as they are written.
    pub(super) refused: Vec<Refused>,
    /// Errors that follow from others: an object that refers to one that is refused.
    pub(super) further: Vec<Problem>,
    /// The last good version of each object from now on.
    pub(super) good: BTreeMap<Key, Arc<Object>>,
    /// Policies that are not in force as they are written.
    pub(super) held: BTreeSet<PolicyName>,
}

/// Finds the objects that compile together. Of those in `reported` an error is known already. `compile` compiles objects,
/// of which those policies are not as they are written.
///
/// `None` if there is no such choice: then nothing of the folder changes.
pub(super) fn settle(
    folder: Folder,
    good: &Good,
    reported: &BTreeSet<ObjectId>,
    compile: impl Fn(&[Arc<Object>], &BTreeSet<PolicyName>) -> Findings,
) -> Option<Settled> {
    let mut settling = Settling {
        good,
        of_file: good.by_file(),
        slots: Vec::new(),
        named: BTreeSet::new(),
        numbers: BTreeMap::new(),
        kept: BTreeSet::new(),
        unreadable: Vec::new(),
    };
    settling.fill(folder);
    let mut further = Vec::new();
    for round in 0..MAX_ROUNDS {
        let objects = settling.objects();
        let findings = compile(&objects, &settling.held());
        if !findings.report.has_errors() {
            // A folder of which nothing can be used is most likely not the one that was meant.
            let is_used = settling.slots.iter().any(|slot| slot.version.is_written());
            return is_used.then(|| settling.settled(objects, further));
        }
        if findings.is_general || findings.blamed.is_empty() {
            return None;
        }
        let refused = settling.advance(&findings, round >= LATE)?;
        let unreported = refused.iter().filter(|one| !reported.contains(&one.id()));
        further.extend(unreported.map(|one| follows(one, &findings)));
    }
    None
}

/// What an unreadable file is about.
#[derive(Default)]
struct About {
    /// Whether the last good version of something in it was taken.
    is_kept: bool,
    /// Namespaces for which it may have policies that are not known.
    closed: BTreeSet<Namespace>,
}

struct Settling<'g> {
    good: &'g Good,
    /// The last good versions of each file.
    of_file: BTreeMap<&'g Path, Vec<(&'g Key, &'g Arc<Object>)>>,
    slots: Vec<Slot>,
    /// The names of all objects in the folder.
    named: BTreeSet<Key>,
    /// How often each name was looked for by [`Settling::free_name`].
    numbers: BTreeMap<Key, usize>,
    /// Those of which the last good version was taken.
    kept: BTreeSet<Key>,
    /// The files that cannot be read.
    unreadable: Vec<Refused>,
}

impl Settling<'_> {
    fn fill(&mut self, folder: Folder) {
        let valid = folder.valid.into_iter().map(|object| Slot {
            written: Some(object.written.clone()),
            key: object.written.key.clone(),
            version: Version::New(object),
        });
        self.slots = valid.collect();
        self.named = self.slots.iter().map(|slot| slot.key.clone()).collect();
        let valid = seniors(&self.slots);
        let read: BTreeMap<PathBuf, usize> = match folder.unreadable.is_empty() {
            true => BTreeMap::new(),
            false => words_of(&self.slots, &folder.faulty),
        };
        let faulty = folder.faulty.iter().map(|one| one.key.clone());
        self.named.extend(faulty);
        let (mut suspects, mut shut) = (BTreeSet::new(), BTreeSet::new());
        for written in folder.faulty {
            let version = self.of_faulty(&written, &valid, &mut suspects);
            let namesake = valid.get(&written.key);
            let is_junior = namesake.is_some_and(|one| one.seniority() < written.seniority());
            if matches!(version, Version::StandIn(_)) && written.key.name.is_some() && !is_junior {
                shut.insert(written.key.clone());
            }
            self.slots.push(Slot {
                key: written.key.clone(),
                version,
                written: Some(written),
            });
        }
        // The senior one of two of one name is closed, and the junior one does not open it.
        let is_shut = |slot: &&mut Slot| shut.contains(&slot.key);
        for slot in self.slots.iter_mut().filter(is_shut) {
            if slot.version.is_written() {
                slot.version = Version::LeftOut;
            }
        }
        let mut closed = BTreeMap::new();
        if !folder.unreadable.is_empty() {
            let (namespaces, told) = (self.namespaces(), self.told());
            for file in folder.unreadable {
                let read = read.get(&*file.path).copied().unwrap_or_default();
                let about = self.keep_unreadable(&file, read, &valid, &namespaces);
                let is_told = told.contains(&*file.path);
                self.tell_unreadable(&file, &about, is_told);
                let origin = Origin::file(Arc::clone(&file.path));
                for one in about.closed {
                    closed.entry(one).or_insert_with(|| origin.clone());
                }
            }
        }
        self.close(closed);
        suspects.iter().for_each(|file| self.keep_vanished(file));
    }

    /// What is in force instead of an object with faults. `valid` objects may have the same name.
    fn of_faulty(
        &mut self,
        written: &Written,
        valid: &BTreeMap<Key, Written>,
        suspects: &mut BTreeSet<PathBuf>,
    ) -> Version {
        let is_named = written.key.name.is_some();
        let namesake = valid.get(&written.key).filter(|_| is_named);
        let good = self.good.objects.get(&written.key).filter(|_| is_named);
        // Its namesake was the junior one, and does not take its place.
        let was_in_force = |good: &&Arc<Object>| {
            namesake.is_none() || good.written.origin.path() == written.origin.path()
        };
        if let Some(good) = good.filter(was_in_force) {
            return match self.kept.insert(written.key.clone()) {
                true => Version::Good(Arc::clone(good)),
                false => Version::LeftOut,
            };
        }
        if namesake.is_some_and(|namesake| namesake.seniority() < written.seniority()) {
            return self.beside_namesake(written);
        }
        if good.is_none() {
            suspects.extend(written.origin.path().map(Path::to_owned));
        }
        self.stand_in(&[written])
    }

    /// The namespaces of all workloads, as they are written and as they were.
    fn namespaces(&self) -> BTreeSet<Namespace> {
        let good = self.good.objects.values();
        let objects = self.slots.iter().filter_map(|slot| slot.version.object());
        let all = good.chain(objects);
        let workloads = all.filter(|object| object.kind == Kind::LocalWorkload);
        workloads.map(|object| object.namespace.clone()).collect()
    }

    /// The files of objects that are told by themselves, such as one of a kind that is misspelt.
    fn told(&self) -> BTreeSet<PathBuf> {
        let told = self.slots.iter().filter(|slot| !slot.version.is_written());
        let told = told.filter_map(|slot| slot.written.as_ref()?.origin.path());
        told.map(Path::to_owned).collect()
    }

    /// Keeps the last good versions of what a file had that cannot be read any more. If it may have more that protects
    /// something than is known of it, it is about those of the `namespaces` that occur in it, which are to be closed. `read`
    /// is how many words that protect something the objects have that can be read.
    fn keep_unreadable(
        &mut self,
        file: &UnreadableFile,
        read: usize,
        valid: &BTreeMap<Key, Written>,
        namespaces: &BTreeSet<Namespace>,
    ) -> About {
        let mut about = About::default();
        for (key, good) in self.of_file.get(&*file.path).into_iter().flatten() {
            // What moved into another file is there, too, as it is written now: the senior one is in force.
            let own = valid.get(*key).and_then(|written| written.origin.path());
            if own != Some(&*file.path) && self.kept.insert((*key).clone()) {
                about.is_kept = true;
                self.slots.push(Slot::kept(key, good));
            }
        }
        let known = self.good.words.get(&*file.path).copied();
        if closing_words(&file.bytes) > known.unwrap_or_default().max(read) {
            about.closed = namespaces_in(&file.bytes, namespaces);
        }
        about
    }

    /// Tells what became of a file that cannot be read. `is_told`: an object of it is told by itself.
    fn tell_unreadable(&mut self, file: &UnreadableFile, about: &About, is_told: bool) {
        let in_force = match (about.closed.is_empty(), about.is_kept) {
            (false, _) => InForce::Closed,
            (true, true) => InForce::LastGood,
            (true, false) => InForce::Nothing,
        };
        if is_told && in_force != InForce::Closed {
            return;
        }
        let mut object = UNREADABLE.to_owned();
        let names = about.closed.iter().take(MAX_NAMED).map(Namespace::as_str);
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            object += &format!(" about {}", names.join(", "));
        }
        let more = about.closed.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            object += &format!(" and {more} namespaces more");
        }
        self.unreadable.push(Refused {
            object,
            origin: Origin::file(Arc::clone(&file.path)),
            in_force,
        });
    }

    /// Denies every call to these namespaces, each because of that file.
    fn close(&mut self, namespaces: BTreeMap<Namespace, Origin>) {
        for (namespace, file) in namespaces {
            let name = self.free_name(Kind::AuthorizationPolicy, &namespace, &file);
            let object = name.and_then(|name| closed::close(namespace, name, &file));
            self.slots.extend(object.map(|object| Slot {
                written: None,
                key: object.written.key.clone(),
                version: Version::StandIn(Arc::new(object)),
            }));
        }
    }

    /// Keeps the last good versions of what a file had and the folder does not have any more.
    fn keep_vanished(&mut self, file: &Path) {
        for (key, good) in self.of_file.get(file).into_iter().flatten() {
            if !self.named.contains(*key) && self.kept.insert((*key).clone()) {
                self.slots.push(Slot::kept(key, good));
            }
        }
    }

    /// What stands for an object in all of these versions.
    fn stand_in(&mut self, versions: &[&Written]) -> Version {
        let Some(file) = versions.last().map(|written| written.origin.clone()) else {
            return Version::LeftOut;
        };
        let mut named = |key: &Key| {
            let namespace = Namespace::parse(&key.namespace).ok()?;
            self.free_name(key.kind, &namespace, &file)
        };
        match closed::stand_in(versions, &mut named) {
            Some(object) => Version::StandIn(Arc::new(object)),
            None => Version::LeftOut,
        }
    }

    /// A name that no object of that kind and namespace has, and from which the file can be told.
    fn free_name(&mut self, kind: Kind, namespace: &Namespace, file: &Origin) -> Option<String> {
        let mut key = Key {
            kind,
            namespace: namespace.to_string(),
            name: Some(unreadable_name(file)),
        };
        let number = self.numbers.entry(key.clone()).or_default();
        let name = key.name.clone()?;
        loop {
            *number += 1;
            if *number > 1 {
                key.name = Some(format!("{name}-{number}"));
            }
            if self.named.insert(key.clone()) {
                return key.name;
            }
        }
    }

    /// The objects in force, in the order in which they are written.
    fn objects(&self) -> Vec<Arc<Object>> {
        let objects = self.slots.iter().filter_map(|slot| slot.version.object());
        let mut objects: Vec<Arc<Object>> = objects.cloned().collect();
        objects.sort_by_key(|object| object.written.begins());
        objects
    }

    /// The policies that are not in force as they are written.
    fn held(&self) -> BTreeSet<PolicyName> {
        let held = self
            .slots
            .iter()
            .filter(|slot| slot.version.in_force().is_some());
        let objects = held.filter_map(|slot| slot.version.object());
        objects.filter_map(|object| object.policy_name()).collect()
    }

    /// Takes objects with errors one step further, and returns those that were in force as they are written. `None` if a
    /// stand-in has an error: without it something might open. `is_late`: no last good version is tried any more.
    fn advance(&mut self, findings: &Findings, is_late: bool) -> Option<Vec<Written>> {
        let mut taken = BTreeSet::new();
        let mut blamed = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            match slot.is_blamed(findings) {
                true => blamed.push((slot.version.object().map(|one| one.written.begins()), at)),
                false if slot.version.object().is_some() => drop(taken.insert(slot.key.clone())),
                false => {}
            }
        }
        blamed.sort();
        let (mut refused, mut suspects) = (Vec::new(), BTreeSet::new());
        for (_, at) in blamed {
            let slot = &mut self.slots[at];
            let key = slot.key.clone();
            let before = std::mem::replace(&mut slot.version, Version::LeftOut);
            let written = slot.written.clone();
            let now = match &before {
                Version::New(object) => {
                    refused.push(object.written.clone());
                    self.after_new(&object.written, &taken, is_late, &mut suspects)
                }
                _ if taken.contains(&key) => Version::LeftOut,
                Version::Good(good) => match &written {
                    Some(written) => self.stand_in(&[&good.written, written]),
                    None => self.stand_in(&[&good.written]),
                },
                Version::StandIn(_) | Version::LeftOut => return None,
            };
            if now.object().is_some() {
                taken.insert(key);
            }
            self.slots[at].version = now;
        }
        suspects.iter().for_each(|file| self.keep_vanished(file));
        Some(refused)
    }

    /// What is in force instead of an object that cannot be as it is written. `taken` names are in force.
    fn after_new(
        &mut self,
        written: &Written,
        taken: &BTreeSet<Key>,
        is_late: bool,
        suspects: &mut BTreeSet<PathBuf>,
    ) -> Version {
        if taken.contains(&written.key) {
            return self.beside_namesake(written);
        }
        match self.good.objects.get(&written.key) {
            Some(good) if !is_late && self.kept.insert(written.key.clone()) => {
                Version::Good(Arc::clone(good))
            }
            Some(good) => self.stand_in(&[&good.written, written]),
            None => {
                suspects.extend(written.origin.path().map(Path::to_owned));
                self.stand_in(&[written])
            }
        }
    }

    /// What is in force instead of an object beside that of its name: nothing, but what a policy would have concerned is
    /// closed, unless the two say the same.
    fn beside_namesake(&mut self, written: &Written) -> Version {
        let mut slots = self.slots.iter();
        let is_said = slots.any(|slot| {
            let in_force = slot.version.object().map(|object| &object.written);
            slot.key == written.key
                && in_force.is_some_and(|one| one.tree().has_content_of(written.tree()))
        });
        if !is_said && written.key.kind == Kind::Namespace {
            self.close_namesakes(&written.key);
        }
        if is_said || !written.key.kind.is_policy() {
            return Version::LeftOut;
        }
        let mut nameless = written.clone();
        nameless.key.name = None;
        self.stand_in(&[&nameless])
    }

    /// Closes the Namespace of that name, of which there are several: one of them may have had the mode strict.
    fn close_namesakes(&mut self, key: &Key) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let written = slot.version.object().map(|object| object.written.clone());
            if let Some(written) = written.filter(|_| slot.key == *key && slot.version.is_written())
            {
                self.slots[at].version = self.stand_in(&[&written]);
            }
        }
    }

    fn settled(self, objects: Vec<Arc<Object>>, further: Vec<Problem>) -> Settled {
        let held = self.held();
        let mut good = BTreeMap::new();
        let mut refused = self.unreadable;
        for slot in self.slots {
            let last = self.good.objects.get(&slot.key);
            let in_force = match (&slot.version, slot.version.in_force()) {
                (Version::New(object), _) => {
                    good.insert(slot.key.clone(), Arc::clone(object));
                    continue;
                }
                (_, in_force) => in_force.unwrap_or(InForce::Nothing),
            };
            // It may compile again when others are mended. One that is there twice has the version that is in force.
            if let Some(last) = last {
                good.entry(slot.key.clone())
                    .or_insert_with(|| Arc::clone(last));
            }
            // A namespace that is closed for a file is told with the file.
            let is_of_file = slot.written.is_none() && matches!(slot.version, Version::StandIn(_));
            if let Some(written) = slot.written().filter(|_| !is_of_file) {
                refused.push(Refused {
                    object: written.label.clone(),
                    origin: written.begins(),
                    in_force,
                });
            }
        }
        refused.sort_by(|a, b| a.origin.cmp(&b.origin));
        Settled {
            objects,
            refused,
            further,
            good,
            held,
        }
    }
}

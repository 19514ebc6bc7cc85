//! What of a folder is served: all objects as they are written, or as many as can be.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_model::Mesh;
use heddle_model::report::{InForce, Origin, Problem, Report, Severity};

use super::good::Good;
use super::settle::{Folder, Settled, settle};
use super::words::closing_words;
use super::{Compiled, Compiling, Scan, holds_nothing, objects_of};
use crate::compile::Pins;
use crate::findings::Findings;
use crate::manifest::Object;
use crate::registered::Providers;
use crate::registered::admit::Tried;
use crate::registered::replicas::{self, Replicas};
use crate::{Addresses, Options, compile};

#[cfg(test)]
mod tests;

/// Most bytes that are saved.
const MAX_SAVED: usize = 256 << 20;

/// Follows what of a folder is served, from one state of the folder to the next.
#[derive(Default)]
pub(super) struct Serving {
    good: Good,
    /// What is in force; `None` before the first.
    in_force: Option<Current>,
    save: Option<Box<Save>>,
    /// Whether the last good versions have changed since they were saved.
    is_unsaved: bool,
    tried: Tried,
}

/// What is in force of a folder.
struct Current {
    /// The content of the folder; `None` once that was refused as a whole.
    digest: Option<u64>,
    objects: Vec<Arc<Object>>,
    pins: Pins,
    /// Follows replicas among the providers; `None` while they cannot be followed.
    replicas: Option<Replicas>,
    /// What is to be said of that content, whatever the registry has.
    report: Report,
}

/// Keeps a text where it outlives the process.
pub(super) type Save = dyn Fn(&[u8]) -> io::Result<()> + Send;

/// What a folder is compiled with.
#[derive(Clone, Copy)]
pub(super) struct Beside<'b> {
    pub(super) dir: &'b Path,
    pub(super) options: &'b Options,
    /// The providers of a registry, if one is followed.
    pub(super) providers: Option<&'b Providers>,
}

impl Serving {
    /// Goes on with the last good versions that an earlier process has saved. What is not valid is not used.
    /// Returns how many lines that are.
    pub(super) fn recall(&mut self, saved: &[u8], dir: &Path) -> usize {
        let (good, wrong) = Good::recall(saved, dir);
        self.good = good;
        wrong
    }

    /// Saves the last good versions now, and whenever they change.
    pub(super) fn save_by(&mut self, save: Box<Save>, dir: &Path) -> io::Result<()> {
        self.save = Some(save);
        self.is_unsaved = true;
        self.save(dir)
    }

    /// Whether a provider is left out whose current entry was not tried.
    pub(super) fn is_unfinished(&self) -> bool {
        self.tried.is_unfinished()
    }

    /// Compiles a state of the folder, and its digest. `had_content`: something was served, which an empty folder does not
    /// end.
    ///
    /// There is no mesh when nothing of it changes, unless a registry is followed, whose providers may have.
    pub(super) fn read(
        &mut self,
        (scan, digest): (&Scan, u64),
        beside: Beside<'_>,
        had_content: bool,
    ) -> (Option<Mesh>, Report) {
        if let Some(read) = self.read_beside(digest, beside) {
            return read;
        }
        let (mesh, report) = self.read_anew(scan, digest, beside, had_content);
        (mesh, self.saved(report, beside))
    }

    /// Compiles what is in force once more, if it is of a folder with this digest: only providers have changed.
    pub(super) fn read_beside(
        &mut self,
        digest: u64,
        beside: Beside<'_>,
    ) -> Option<(Option<Mesh>, Report)> {
        let known = self.in_force.as_ref();
        let known = known.filter(|known| known.digest == Some(digest))?;
        let mut report = known.report.clone();
        report.is_same_folder = true;
        let (mesh, served) = self.again(beside);
        let report = and_served(report, served);
        Some((mesh, self.saved(report, beside)))
    }

    /// The sorted report, after the last good versions are saved.
    fn saved(&mut self, mut report: Report, beside: Beside<'_>) -> Report {
        if let Err(error) = self.save(beside.dir) {
            report.push(not_saved(beside.dir, &error));
        }
        report.sort();
        report
    }

    fn read_anew(
        &mut self,
        scan: &Scan,
        digest: u64,
        beside: Beside<'_>,
        had_content: bool,
    ) -> (Option<Mesh>, Report) {
        // Those that were followed are let in first, as those that were compiled.
        let replicas = self
            .in_force
            .as_mut()
            .and_then(|known| known.replicas.take());
        if let Some(replicas) = replicas {
            self.tried.all_fit(replicas.admitted());
        }
        let (mut folder, found) = objects_of(scan);
        folder.note_in_force(&self.good);
        let is_empty = found.is_empty();
        let read = found.report.problems.clone();
        let compiled = self.compile(&folder.valid, &Pins::new(), found, beside);
        let replicas = self.replicas(&folder.valid, &Pins::new(), &compiled, beside);
        let Compiled {
            mesh, mut findings, ..
        } = compiled;
        findings.report.left_aside = scan.left_aside.clone();
        if is_empty && had_content {
            findings.push_general(holds_nothing(beside.dir, Severity::Error));
        } else if is_empty {
            findings.push(holds_nothing(beside.dir, Severity::Warning));
        }
        let words = words(scan, &folder);
        if findings.report.has_errors() {
            let said = said_of_folder(&findings.report, &read);
            return self.part_of(folder, (digest, words), (&findings, said), beside);
        }
        // A folder that is not mounted yet is no reason to forget.
        if !is_empty || self.good.is_empty() {
            self.good = Good::of(&folder.valid, &mesh, words);
            self.is_unsaved = true;
        }
        self.in_force = Some(Current {
            digest: Some(digest),
            objects: folder.valid,
            pins: Pins::new(),
            replicas: replicas.map(|replicas| replicas.without(&read)),
            report: said_of_folder(&findings.report, &read),
        });
        (Some(mesh), findings.report)
    }

    /// Compiles what of a folder with errors can be served.
    fn part_of(
        &mut self,
        folder: Folder,
        (digest, mut words): (u64, BTreeMap<PathBuf, usize>),
        (findings, mut report): (&Findings, Report),
        beside: Beside<'_>,
    ) -> (Option<Mesh>, Report) {
        let good = &self.good;
        let settled = match findings.is_general {
            true => None,
            false => settle(folder, good, &findings.blamed, |objects, held| {
                let mut findings = Findings::default();
                let objects: Vec<&Object> = objects.iter().map(AsRef::as_ref).collect();
                let (dir, options) = (beside.dir, beside.options);
                let pins = good.pins_of(held);
                compile::compile(&objects, dir, options, &pins, &mut findings);
                findings
            }),
        };
        let Some(settled) = settled else {
            report.is_refused = true;
            // Nothing of the folder changes, but the registry may have.
            if let Some(in_force) = &mut self.in_force {
                in_force.digest = None;
            }
            let has_registry = beside.providers.is_some();
            if !has_registry || self.in_force.is_none() {
                return (None, report);
            }
            let (mesh, served) = self.again(beside);
            return (mesh, and_served(report, served));
        };
        let Settled {
            objects,
            refused,
            further,
            good,
            held,
        } = settled;
        further.into_iter().for_each(|problem| report.push(problem));
        // What a file has that is closed is not known, and nothing that the file had before counts for it: once the file
        // cannot be read, it has to be closed still.
        for one in refused.iter().filter(|one| one.in_force == InForce::Closed) {
            let known = one.origin.path().and_then(|file| words.get_mut(file));
            known.into_iter().for_each(|known| *known = 0);
        }
        report.refused = refused;
        self.in_force = Some(Current {
            digest: Some(digest),
            objects,
            pins: self.good.pins_of(&held),
            replicas: None,
            report: report.clone(),
        });
        let (mesh, served) = self.again(beside);
        if let Some(mesh) = &mesh {
            self.good.next(good, &held, mesh, words);
            self.is_unsaved = true;
        }
        (mesh, and_served(report, served))
    }

    /// Compiles what is in force once more, beside the providers of now.
    fn again(&mut self, beside: Beside<'_>) -> (Option<Mesh>, Report) {
        let Some(mut in_force) = self.in_force.take() else {
            return (None, Report::default());
        };
        in_force.replicas = self.followed(in_force.replicas, beside);
        if let Some(replicas) = &in_force.replicas {
            let (mesh, report) = replicas.compiled();
            self.in_force = Some(in_force);
            return (Some(mesh), report);
        }
        let found = Findings::default();
        let compiled = self.compile(&in_force.objects, &in_force.pins, found, beside);
        in_force.replicas = self.replicas(&in_force.objects, &in_force.pins, &compiled, beside);
        self.in_force = Some(in_force);
        (Some(compiled.mesh), compiled.findings.report)
    }

    /// The replicas that were followed, with the providers of now; `None` if everything has to be compiled.
    fn followed(&mut self, replicas: Option<Replicas>, beside: Beside<'_>) -> Option<Replicas> {
        let (replicas, providers) = replicas.zip(beside.providers)?;
        let followed = replicas.follow(providers, beside.dir, beside.options);
        followed
            .map_err(|admitted| self.tried.all_fit(admitted))
            .ok()
    }

    /// Follows the replicas of what was compiled, where they are all that decides.
    fn replicas(
        &self,
        objects: &[Arc<Object>],
        pins: &Pins,
        compiled: &Compiled,
        beside: Beside<'_>,
    ) -> Option<Replicas> {
        let providers = beside.providers?;
        let report = &compiled.findings.report;
        let is_written = beside.options.addresses == Addresses::Written;
        let is_plain = pins.is_empty() && !self.tried.has_unfit();
        let can_be_followed = is_written && is_plain && !report.has_errors();
        can_be_followed.then(|| {
            Replicas::of(&replicas::Compilation {
                objects,
                registered: &compiled.registered,
                providers,
                mesh: &compiled.mesh,
                report,
            })
        })
    }

    fn compile(
        &mut self,
        objects: &[Arc<Object>],
        pins: &Pins,
        findings: Findings,
        beside: Beside<'_>,
    ) -> Compiled {
        let none = Providers::default();
        let compiling = Compiling {
            dir: beside.dir,
            options: beside.options,
            findings,
            objects,
            pins,
        };
        compiling.with(beside.providers.unwrap_or(&none), &mut self.tried)
    }

    /// Saves the last good versions if they have changed.
    fn save(&mut self, dir: &Path) -> io::Result<()> {
        let Some(save) = self.save.as_ref().filter(|_| self.is_unsaved) else {
            return Ok(());
        };
        let text = self.good.text(dir);
        if text.len() > MAX_SAVED {
            let mib = MAX_SAVED >> 20;
            return Err(io::Error::other(format!("they have more than {mib} MiB")));
        }
        save(text.as_bytes())?;
        self.is_unsaved = false;
        Ok(())
    }
}

/// How many words that protect something each file has that can be read.
fn words(scan: &Scan, folder: &Folder) -> BTreeMap<PathBuf, usize> {
    let unreadable = folder.unreadable.iter().map(|file| &*file.path);
    let unreadable: BTreeSet<&Path> = unreadable.collect();
    let readable = scan.files.iter();
    let readable = readable.filter(|file| !unreadable.contains(file.path.as_path()));
    readable
        .map(|file| (file.path.clone(), closing_words(&file.bytes)))
        .filter(|(_, words)| *words > 0)
        .collect()
}

fn not_saved(dir: &Path, error: &io::Error) -> Problem {
    Problem {
        severity: Severity::Warning,
        origin: Origin::file(dir),
        object: None,
        field: String::new(),
        reason: format!("the last good versions of its objects cannot be saved: {error}"),
        remedy: "until they are, an object with an error has none after a restart".to_owned(),
        cause: None,
    }
}

/// What a report says of the folder, whatever providers there are: its errors, and what was found when it was `read`.
fn said_of_folder(report: &Report, read: &[Problem]) -> Report {
    let mut report = report.clone();
    let is_said = |one: &Problem| one.severity == Severity::Error || read.contains(one);
    report.problems.retain(is_said);
    // What is said of providers is of another moment each time, and much.
    (report.registered, report.registry) = Default::default();
    report
}

/// The report of a folder, with what is to be said of the objects and the providers that are served. The lines of a
/// refused object are those of another version.
fn and_served(mut report: Report, served: Report) -> Report {
    report.registered = served.registered;
    report.registry = served.registry;
    let refused = report.refused.iter().map(|one| one.object.clone());
    let refused: BTreeSet<String> = refused.collect();
    let is_said = |one: &Problem| one.object.as_ref().is_none_or(|one| !refused.contains(one));
    let problems = served.problems.into_iter().filter(is_said);
    problems.for_each(|problem| report.push(problem));
    report
}

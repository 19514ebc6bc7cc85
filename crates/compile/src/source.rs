//! The sources of manifests.
//!
//! A [`folder`] is read once by [`load`] or followed by a [`Watcher`]. Both go through [`read`], so that `heddle
//! validate` and `heddle up` report the same about the same files. Beside the folder a watcher may follow a
//! [registry](crate::registered), whose providers are compiled together with the folder's objects.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use heddle_model::report::{Origin, Problem, Report, Severity};
use heddle_model::{Mesh, WorkloadName};

use crate::compile::Pins;
use crate::findings::Findings;
use crate::manifest::Object;
use crate::registered::Providers;
use crate::registered::admit::{Candidate, Tried, candidates};
use crate::registered::tally::tally;
use crate::{Options, compile, manifest};

mod folder;
mod good;
mod serve;
mod settle;
mod watcher;
mod words;

pub use watcher::Watcher;

use folder::Scan;
use settle::{Folder, UnreadableFile};

/// Limit of objects in one folder.
const MAX_OBJECTS: usize = 50_000;
/// Limit of YAML values in all files of one folder together.
const MAX_VALUES: usize = 4_000_000;

/// Reads a folder of manifests.
///
/// Reads files named `*.yaml`, `*.yml` and `*.json`, in subfolders too, except hidden files and editors' temporary
/// files. Returns the mesh unless the report holds an error. This call reads from disk and blocks.
pub fn load(dir: &Path) -> (Option<Mesh>, Report) {
    load_with(dir, &Options::default())
}

/// As [`load`], with other options than the default.
pub fn load_with(dir: &Path, options: &Options) -> (Option<Mesh>, Report) {
    let (unregistered, mut tried) = (Providers::default(), Tried::default());
    let scan = folder::scan(dir);
    let (mesh, mut findings) = read(dir, &scan, &unregistered, &mut tried, options);
    if findings.is_empty() {
        findings.push(holds_nothing(dir, Severity::Warning));
    }
    (mesh, findings.report)
}

/// Compiles the text of one manifest file outside of any folder, as [`load`] compiles a folder's.
///
/// Problems name `file`; relative commands start from its folder.
pub fn load_text(file: &Path, text: &[u8]) -> (Option<Mesh>, Report) {
    let base = file.parent().unwrap_or(file);
    let (unregistered, mut tried) = (Providers::default(), Tried::default());
    let scan = Scan::of_text(file, text);
    let (mesh, findings) = read(base, &scan, &unregistered, &mut tried, &Options::default());
    (mesh, findings.report)
}

/// Compiles the text of one manifest file and the providers beside it.
#[cfg(test)]
pub(crate) fn load_beside(
    file: &Path,
    text: &[u8],
    providers: &Providers,
    tried: &mut Tried,
) -> (Option<Mesh>, Report) {
    let base = file.parent().unwrap_or(file);
    let scan = Scan::of_text(file, text);
    let (mesh, findings) = read(base, &scan, providers, tried, &Options::default());
    (mesh, findings.report)
}

fn holds_nothing(dir: &Path, severity: Severity) -> Problem {
    let (reason, remedy) = match severity {
        Severity::Warning => (
            "this folder holds no manifest",
            "put *.yaml, *.yml or *.json files in it",
        ),
        Severity::Error => (
            "this folder holds no manifest any more",
            "put the manifests back; to serve nothing on purpose, leave a file with \
             {apiVersion: v1, kind: List, items: []}, or stop heddle",
        ),
    };
    Problem {
        severity,
        origin: Origin::file(dir),
        object: None,
        field: String::new(),
        reason: reason.to_owned(),
        remedy: remedy.to_owned(),
        cause: None,
    }
}

/// Warns about an empty file: its objects are no longer served, and a failed copy may have emptied it.
fn holds_no_byte(file: &Path) -> Problem {
    Problem {
        severity: Severity::Warning,
        origin: Origin::file(file),
        object: None,
        field: String::new(),
        reason: "this file is empty: whatever was in it is not served".to_owned(),
        remedy: "put its content back, or remove it".to_owned(),
        cause: None,
    }
}

/// Compiles the objects that a scan found, and the providers that fit beside them. `tried` carries the results of
/// trials from one call to the next. With an error there is no mesh.
fn read(
    dir: &Path,
    scan: &Scan,
    providers: &Providers,
    tried: &mut Tried,
    options: &Options,
) -> (Option<Mesh>, Findings) {
    let (folder, findings) = objects_of(scan);
    let compiling = Compiling {
        dir,
        options,
        findings,
        objects: &folder.valid,
        pins: &Pins::new(),
    };
    let Compiled {
        mesh, mut findings, ..
    } = compiling.with(providers, tried);
    findings.report.left_aside = scan.left_aside.clone();
    findings.report.sort();
    ((!findings.report.has_errors()).then_some(mesh), findings)
}

/// Reads every object that a scan found.
fn objects_of(scan: &Scan) -> (Folder, Findings) {
    let mut findings = Findings::default();
    for problem in &scan.problems {
        match problem.severity {
            Severity::Error => {
                findings.refused.unknown = true;
                findings.push_general(problem.clone());
            }
            Severity::Warning => findings.push(problem.clone()),
        }
    }
    let mut folder = Folder::default();
    let mut values_left = MAX_VALUES;
    for file in &scan.files {
        if file.bytes.is_empty() {
            findings.push(holds_no_byte(&file.path));
        }
        let of_file = manifest::read(&file.path, &file.bytes, &mut values_left, &mut findings);
        folder.valid.extend(of_file.valid.into_iter().map(Arc::new));
        folder.faulty.extend(of_file.faulty);
        if of_file.is_unreadable {
            folder.unreadable.push(UnreadableFile {
                path: file.path.as_path().into(),
                bytes: file.bytes.clone(),
            });
        }
        if folder.valid.len() > MAX_OBJECTS {
            findings.push_general(Problem {
                severity: Severity::Error,
                origin: Origin::file(file.path.as_path()),
                object: None,
                field: String::new(),
                reason: format!("with this file there are more than {MAX_OBJECTS} objects"),
                remedy: "split the mesh over several folders".to_owned(),
                cause: None,
            });
            break;
        }
    }
    (folder, findings)
}

/// What came of compiling a folder.
struct Compiled {
    mesh: Mesh,
    findings: Findings,
    /// The providers that were compiled beside it.
    registered: Vec<Object>,
}

/// A folder's objects, before any provider is compiled beside them.
struct Compiling<'c> {
    dir: &'c Path,
    options: &'c Options,
    /// The findings of reading the folder.
    findings: Findings,
    objects: &'c [Arc<Object>],
    /// The workloads that policies concern, whatever they select.
    pins: &'c Pins,
}

impl Compiling<'_> {
    /// Compiles the folder and every provider that fits. If the folder does not compile alone, no provider is tried.
    fn with(&self, providers: &Providers, tried: &mut Tried) -> Compiled {
        let (fit, mut problems) = candidates(self.objects, &providers.entries, self.options);
        let (entries, mut objects): (Vec<_>, Vec<_>) =
            fit.into_iter().map(|one| (one.entry, one.object)).unzip();
        let (mut mesh, mut findings) = self.beside(&objects);
        if !findings.report.has_errors() {
            tried.all_fit(entries);
        } else if !objects.is_empty() {
            (mesh, findings) = self.beside(&[]);
            let candidates = std::mem::take(&mut objects);
            if !findings.report.has_errors() {
                let fit = entries.into_iter().zip(candidates);
                let fit = fit.map(|(entry, object)| Candidate { entry, object });
                let admitted = tried.admit(fit.collect(), |objects| {
                    let (_, findings) = self.beside(&objects);
                    (objects, first_error(findings))
                });
                problems.extend(admitted.problems);
                objects = admitted.objects;
                (mesh, findings) = self.beside(&objects);
            }
        }
        let of_registry = findings
            .report
            .problems
            .iter()
            .filter(|one| one.cause.is_some());
        let found: Vec<Problem> = problems.iter().chain(of_registry).cloned().collect();
        let served = (!findings.report.has_errors()).then_some(&mesh);
        let (tally, uncalled) = tally(providers, &found, (served, &findings.report.registered));
        findings.report.registry = tally;
        let of_values = providers.problems.iter().cloned();
        let all = problems.into_iter().chain(of_values).chain(uncalled);
        all.for_each(|problem| findings.push(problem));
        Compiled {
            mesh,
            findings,
            registered: objects,
        }
    }

    /// Compiles the folder with these objects beside it.
    fn beside(&self, more: &[Object]) -> (Mesh, Findings) {
        let mut findings = self.findings.clone();
        let objects = self.objects.iter().map(AsRef::as_ref);
        let objects: Vec<&Object> = objects.chain(more).collect();
        let (dir, options) = (self.dir, self.options);
        let mesh = compile::compile(&objects, dir, options, self.pins, &mut findings);
        let names = more.iter().map(|object| WorkloadName {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        });
        findings.report.registered = names.collect::<BTreeSet<_>>().into();
        (mesh, findings)
    }
}

fn first_error(findings: Findings) -> Option<Problem> {
    let mut problems = findings.report.problems.into_iter();
    problems.find(|problem| problem.severity == Severity::Error)
}

//! Where manifests come from.
//!
//! Today that is a [`folder`], read once by [`load`] or followed by a [`Watcher`]. Both go through
//! [`read`], so that `heddle validate` and `heddle up` say the same of the same files.

use std::path::Path;

use heddle_model::Mesh;

use crate::problem::{Problem, Report, Severity};
use crate::{Options, compile, manifest};

mod folder;
mod watcher;

pub use watcher::Watcher;

use folder::Scan;

/// Objects in one folder.
const MAX_OBJECTS: usize = 50_000;
/// Values in all files of one folder together.
const MAX_VALUES: usize = 4_000_000;

/// Reads a folder of manifests.
///
/// Files named `*.yaml`, `*.yml` and `*.json` are read, those of subfolders too; hidden files and
/// editors' temporary files are not. The mesh is there unless the report holds an error. This call
/// reads from disk and blocks.
pub fn load(dir: &Path) -> (Option<Mesh>, Report) {
    load_with(dir, &Options::default())
}

/// Reads a folder of manifests, as [`load`] does, where what they leave open is not the default.
pub fn load_with(dir: &Path, options: &Options) -> (Option<Mesh>, Report) {
    let (mesh, mut report) = read(dir, &folder::scan(dir), options);
    if is_empty(&report) {
        report.push(holds_nothing(dir, Severity::Warning));
    }
    (mesh, report)
}

/// Compiles the text of one manifest file that is in no folder, as [`load`] compiles a folder's.
///
/// `file` is what problems name; relative commands start from its folder.
pub fn load_text(file: &Path, text: &[u8]) -> (Option<Mesh>, Report) {
    let base = file.parent().unwrap_or(file);
    read(base, &Scan::of_text(file, text), &Options::default())
}

/// Whether there is nothing in a folder that could be right or wrong.
fn is_empty(report: &Report) -> bool {
    report.documents == 0 && !report.has_errors()
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
        file: dir.to_path_buf(),
        line: None,
        object: None,
        field: String::new(),
        reason: reason.to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// Compiles what a scan of a folder found.
fn read(dir: &Path, scan: &Scan, options: &Options) -> (Option<Mesh>, Report) {
    let mut report = Report::default();
    for problem in &scan.problems {
        report.refused.unknown |= problem.severity == Severity::Error;
        report.push(problem.clone());
    }
    let mut objects = Vec::new();
    let mut values_left = MAX_VALUES;
    for file in &scan.files {
        objects.extend(manifest::read(
            &file.path,
            &file.bytes,
            &mut values_left,
            &mut report,
        ));
        if objects.len() > MAX_OBJECTS {
            report.push(Problem {
                severity: Severity::Error,
                file: file.path.clone(),
                line: None,
                object: None,
                field: String::new(),
                reason: format!("with this file there are more than {MAX_OBJECTS} objects"),
                remedy: "split the mesh over several folders".to_owned(),
            });
            break;
        }
    }
    let mesh = compile::compile(&objects, dir, options, &mut report);
    report.left_aside = scan.left_aside.clone();
    report.sort();
    ((!report.has_errors()).then_some(mesh), report)
}

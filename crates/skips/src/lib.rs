//! Reports tests that skip themselves because this machine lacks something.
//!
//! The test harness knows only passed, failed and ignored, and hides the output of a test that passes. So a test that
//! finds out at run time that it needs root, or a program that is not installed, calls [`skipped`] and returns. The
//! skip is printed past the harness, and appended to the file in which `scripts/test.sh` counts skips.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(test)]
mod tests;

/// Environment variable with the path of the file to which skips are appended, one per line: test, tab, reason.
pub const FILE: &str = "HEDDLE_SKIPS";

/// Reports that the test on this thread is skipped, wholly or in part, and why.
///
/// The test's name is the name of its thread. A thread that the test spawned has none, nor has the only thread of
/// `--test-threads 1`: the report then names the caller's source line.
///
/// # Panics
/// When the file cannot be written: a skip that is not counted would look like a passed test.
#[track_caller]
pub fn skipped(why: &str) {
    let name = name(std::thread::current().name(), Location::caller());
    // Not `eprintln!`: the harness captures what it prints.
    let _closed = writeln!(io::stderr(), "SKIPPED: {name}: {why}");
    if let Some(file) = env::var_os(FILE) {
        let path = Path::new(&file);
        record(path, &name, why).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// The full name of the test, with the name of its test binary in front.
fn name(thread: Option<&str>, caller: &Location<'_>) -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo appends a dash and a hash of the build.
    let program = program
        .rsplit_once('-')
        .map_or(&*program, |(program, _)| program);
    match thread {
        Some(test) if test != "main" => format!("{program}::{test}"),
        _ => format!("{program} at {}:{}", caller.file(), caller.line()),
    }
}

/// One write per line, so that lines of test binaries that run in parallel do not mix.
fn record(path: &Path, name: &str, why: &str) -> io::Result<()> {
    let line = format!("{name}\t{}\n", why.replace(['\n', '\t'], " "));
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

/// The stock Envoy that tests run, where `scripts/setup.sh test` puts it; reports the skip if there is none.
#[track_caller]
pub fn envoy() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/envoy.sh");
    let said = Command::new(script).arg("--path").output().ok();
    let path = said.and_then(|said| String::from_utf8(said.stdout).ok());
    let path = path.map(|path| PathBuf::from(path.trim()));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        skipped("there is no Envoy (scripts/setup.sh test)");
    }
    found
}

//! How a test that cannot be made here says so, for tests.
//!
//! The harness knows passed, failed and ignored only, and hides what a test that passes has printed. So a test that finds
//! out while it runs that it needs root, or a program that is not installed, calls [`skipped`] and returns: that is
//! printed past the harness, and written to the file that `scripts/test.sh` counts skips in.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::Location;
use std::path::Path;

#[cfg(test)]
mod tests;

/// Names the file that skips are appended to, a line each: the test, a tab, and why.
pub const FILE: &str = "HEDDLE_SKIPS";

/// Says that the test that runs on this thread proves nothing here, or less than it would elsewhere, and why.
///
/// On a thread that has no test's name (one of the test's own, or the only one of `--test-threads 1`) the line of the
/// caller takes its place.
///
/// # Panics
/// When the file cannot be written: a skip that is not counted would be a test that passed.
#[track_caller]
pub fn skipped(why: &str) {
    let name = name(std::thread::current().name(), Location::caller());
    // By no macro: the harness keeps what they print.
    let _closed = writeln!(io::stderr(), "SKIPPED: {name}: {why}");
    if let Some(file) = env::var_os(FILE) {
        let path = Path::new(&file);
        record(path, &name, why).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// The test's whole name, after that of its program.
fn name(thread: Option<&str>, caller: &Location<'_>) -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Behind the last dash is what cargo tells builds apart by.
    let program = program
        .rsplit_once('-')
        .map_or(&*program, |(program, _)| program);
    match thread {
        Some(test) if test != "main" => format!("{program}::{test}"),
        _ => format!("{program} at {}:{}", caller.file(), caller.line()),
    }
}

/// One write for a line, so that those of several programs do not mix.
fn record(path: &Path, name: &str, why: &str) -> io::Result<()> {
    let line = format!("{name}\t{}\n", why.replace(['\n', '\t'], " "));
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

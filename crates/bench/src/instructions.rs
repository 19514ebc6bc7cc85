//! User instructions per request, counted by cachegrind: it only counts, so that signals do not disturb it as they do
//! callgrind.
//!
//! Wall-clock time varies from machine to machine and hour to hour; instruction counts do not. Two runs
//! that differ only in the number of requests give the cost of one: start and stop cancel out.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;

use super::child::{Child, Confinement};
use super::systems::{ProxyKind, System, Work};

/// Requests of the shorter and the longer run.
const REQUESTS: [u64; 2] = [2_000, 6_000];
const WITHIN: Duration = Duration::from_secs(180);

/// Counts the instructions that one more request costs. `load` makes the command line of the load
/// generator for some targets and a number of requests.
///
/// # Errors
/// When cachegrind or the system under it fails.
pub(super) fn per_request(
    system: &System,
    work: &Work,
    proxy: &Confinement,
    client: &Confinement,
    load: impl Fn(&[String], u64) -> Vec<std::ffi::OsString>,
) -> anyhow::Result<f64> {
    let mut totals = Vec::new();
    for requests in REQUESTS {
        let dir = tempfile::tempdir()?;
        let mut running = counted(system, dir.path())?.start(work, proxy, &[])?;
        let command = load(&running.targets, requests);
        let client = Child::start("load", client, &command, &dir.path().join("load.log"), true)?;
        client.finish(WITHIN)?;
        for proxy in &mut running.proxies {
            proxy.stop_within(Signal::TERM, Duration::from_secs(60));
        }
        let files = running
            .pids()
            .into_iter()
            .map(|pid| out_file(dir.path(), pid));
        totals.push(
            files
                .map(|file| read_total(&file))
                .sum::<anyhow::Result<u64>>()?,
        );
    }
    let difference = totals[1]
        .checked_sub(totals[0])
        .context("more requests cost less")?;
    Ok(difference as f64 / (REQUESTS[1] - REQUESTS[0]) as f64)
}

/// The same system with a script in place of its program: commands that carry requests run under cachegrind.
fn counted(system: &System, dir: &Path) -> anyhow::Result<System> {
    // The control plane of a pair, and commands of operators, are not counted.
    let pattern = match system.kind {
        ProxyKind::Heddle => "up | node",
        _ => "*",
    };
    let program = dir.join("counted");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n{pattern}) exec valgrind --tool=cachegrind --cache-sim=no --quiet \
         --cachegrind-out-file='{}' '{program}' \"$@\" ;;\nesac\nexec '{program}' \"$@\"\n",
        out_file(dir, "%p").display(),
        program = system.program.display(),
    );
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    Ok(System {
        program,
        ..system.clone()
    })
}

/// The file into which a process writes its counts.
fn out_file(dir: &Path, pid: impl Display) -> PathBuf {
    dir.join(format!("cachegrind.{pid}"))
}

fn read_total(file: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(file).context("cachegrind wrote nothing")?;
    total(&text).context("cachegrind wrote no total")
}

/// The instruction total of a cachegrind file: `summary:` or `totals:`, whichever it has.
fn total(text: &str) -> Option<u64> {
    let line = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name));
    line("totals:")
        .or_else(|| line("summary:"))?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;

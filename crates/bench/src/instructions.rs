//! User instructions per request, counted by cachegrind: it only counts, and so does not trip over signals, as callgrind does.
//!
//! Wall-clock time varies from machine to machine and hour to hour; instruction counts do not. Two runs
//! that differ only in the number of requests give the cost of one: start and stop cancel out.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;

use super::child::{Child, Confinement, words};
use super::systems::{System, Work};

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
        let out = dir.path().join("cachegrind");
        let mut wrapper = words(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--quiet"]);
        wrapper.push(format!("--cachegrind-out-file={}", out.display()).into());
        let mut running = system.start(work, proxy, &wrapper)?;
        let command = load(&running.targets, requests);
        let client = Child::start("load", client, &command, &dir.path().join("load.log"), true)?;
        client.finish(WITHIN)?;
        for proxy in &mut running.proxies {
            proxy.stop_within(Signal::TERM, Duration::from_secs(60));
        }
        totals.push(read_total(&out)?);
    }
    let difference = totals[1]
        .checked_sub(totals[0])
        .context("more requests cost less")?;
    Ok(difference as f64 / (REQUESTS[1] - REQUESTS[0]) as f64)
}

fn read_total(file: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(file).context("cachegrind wrote nothing")?;
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

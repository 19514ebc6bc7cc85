//! System calls per request, counted by one method for all systems.
//!
//! Preferred is the kernel's own counter (`perf stat -e raw_syscalls:sys_enter`), which hardly slows the counted
//! processes; otherwise `strace -c`, which slows them a lot but counts the same calls. Either is attached while a fixed
//! number of requests runs, so nothing depends on two clocks agreeing.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;

use super::account;
use super::child::{Child, Confinement, words};

/// A timeout that is long enough for strace at a tenth of the speed.
const WITHIN: Duration = Duration::from_secs(240);

/// How system calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Perf,
    Strace,
}

impl Method {
    /// The best method that works on this machine.
    pub(super) fn probe() -> Option<Method> {
        let dir = tempfile::tempdir().ok()?;
        let file = dir.path().join("count");
        let works = |mut command: Command, count: fn(&str) -> Option<u64>| {
            let ran = command.output().is_ok_and(|output| output.status.success());
            ran && fs::read_to_string(&file)
                .ok()
                .and_then(|text| count(&text))
                .is_some()
        };
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o"])
            .arg(&file);
        perf.args(["--", "true"]);
        if works(perf, perf_count) {
            return Some(Method::Perf);
        }
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-o"]).arg(&file).arg("true");
        works(strace, strace_count).then_some(Method::Strace)
    }

    /// The name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Perf => "perf stat -e raw_syscalls:sys_enter",
            Method::Strace => "strace -f -c",
        }
    }

    /// The number of requests that gives a good figure in acceptable time.
    pub(super) fn requests(self) -> u64 {
        match self {
            Method::Perf => 100_000,
            Method::Strace => 10_000,
        }
    }

    /// Counts the system calls of process trees while `load` runs to its end; returns them with what
    /// the load printed.
    ///
    /// # Errors
    /// When the tool fails or prints no count.
    pub(super) fn count(
        self,
        roots: &[u32],
        load: &[OsString],
        place: &Confinement,
        dir: &Path,
    ) -> anyhow::Result<(u64, String)> {
        let file = dir.join("syscalls");
        let trees = roots.iter().flat_map(|&root| account::tree(root));
        let pids: Vec<String> = trees.map(|pid| pid.to_string()).collect();
        match self {
            Method::Perf => {
                let mut command =
                    words(["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o"]);
                command.push(file.clone().into());
                command.extend(words(["-p", &pids.join(","), "--"]));
                command.extend_from_slice(load);
                let counter = Child::start("perf", place, &command, &dir.join("perf.log"), true)?;
                let printed = counter.finish(WITHIN)?;
                let text = fs::read_to_string(&file).context("perf wrote nothing")?;
                Ok((
                    perf_count(&text).with_context(|| format!("perf: {text}"))?,
                    printed,
                ))
            }
            Method::Strace => {
                let mut command = words(["strace", "-f", "-c", "-o"]);
                command.push(file.clone().into());
                command.extend(pids.iter().flat_map(|pid| words(["-p", pid])));
                let log = dir.join("strace.log");
                let mut counter = Child::start("strace", place, &command, &log, false)?;
                counter.wait_until(WITHIN, || {
                    let text = fs::read_to_string(&log).ok()?;
                    (text.matches(" attached").count() >= pids.len()).then_some(())
                })?;
                let load = Child::start("load", place, load, &dir.join("load.log"), true)?;
                let printed = load.finish(WITHIN)?;
                counter.stop(Signal::INT);
                let text = fs::read_to_string(&file).context("strace wrote nothing")?;
                Ok((
                    strace_count(&text).with_context(|| format!("strace: {text}"))?,
                    printed,
                ))
            }
        }
    }
}

/// The count of `perf stat -x,`: the first column of the line that names the event.
fn perf_count(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.trim().parse().ok()
}

/// The count of `strace -c`: calls in its last line, `100.00 0.1 2 CALLS [ERRORS] total`.
fn strace_count(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .rev()
        .find(|line| line.trim_end().ends_with(" total"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests;

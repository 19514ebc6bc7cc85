//! CPU in nanoseconds, memory and the use of each core, as the kernel counts them for a process tree.
//!
//! CPU comes from `/proc/PID/task/*/schedstat`, which counts nanoseconds, for every thread of the
//! process and its descendants. The split into user and system time comes from `/proc/PID/stat`,
//! which counts ticks of 10 ms; it also covers for threads that ended between two readings.
//! Time spent in interrupts is charged to the process that was running, the same for all systems, unless the
//! kernel accounts for interrupts apart (`Machine::irq_time_accounting`): then it is in no process's time.

use std::collections::BTreeMap;
use std::fs;
use std::iter::Sum;
use std::ops::AddAssign;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Ticks per second of `/proc`, fixed by the kernel's ABI (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// The CPU time of a process tree up to one moment.
#[derive(Debug, Default, Clone)]
pub(super) struct Reading {
    /// Nanoseconds by thread.
    threads: BTreeMap<u32, u64>,
    user_ticks: u64,
    system_ticks: u64,
}

/// The CPU time of a process tree between two moments.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Nanoseconds on a CPU.
    pub(super) cpu_ns: u64,
    /// The part of it spent in user space, 0 to 1.
    pub(super) user_share: f64,
}

/// The resident memory of a process tree.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// Sum of the resident sets; pages that two processes share count twice.
    pub(super) rss_kib: u64,
    /// Sum of the proportional sets: a shared page is divided among the processes that share it.
    pub(super) pss_kib: u64,
    /// Sum of the pages that no other process maps, file pages included: what stopping the processes would free.
    pub(super) private_kib: u64,
    /// Sum of the anonymous pages: what the processes have written, however many others run the same program.
    pub(super) anonymous_kib: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        let of_user = |usage: &Usage| usage.user_share * usage.cpu_ns as f64;
        let user_ns = of_user(self) + of_user(&other);
        self.cpu_ns += other.cpu_ns;
        self.user_share = if self.cpu_ns == 0 {
            0.0
        } else {
            user_ns / self.cpu_ns as f64
        };
    }
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Memory) {
        self.rss_kib += other.rss_kib;
        self.pss_kib += other.pss_kib;
        self.private_kib += other.private_kib;
        self.anonymous_kib += other.anonymous_kib;
    }
}

impl Sum for Memory {
    fn sum<Memories: Iterator<Item = Memory>>(all: Memories) -> Memory {
        all.fold(Memory::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// The process and its descendants, itself first.
pub(super) fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for tid in threads(parent) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{tid}/children"));
            let children = children.unwrap_or_default();
            found.extend(
                children
                    .split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    found
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Reads the CPU time that the tree has used so far.
///
/// # Errors
/// When the process is gone or `/proc` does not read as expected.
pub(super) fn read(pid: u32) -> anyhow::Result<Reading> {
    let mut reading = Reading::default();
    for pid in tree(pid) {
        for tid in threads(pid) {
            // A thread may end between the listing and the reading.
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")) else {
                continue;
            };
            reading
                .threads
                .insert(tid, parse_schedstat(&text).context("schedstat")?);
        }
        // So may a descendant.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let (user, system) = parse_stat(&stat).context("/proc/PID/stat")?;
        reading.user_ticks += user;
        reading.system_ticks += system;
    }
    anyhow::ensure!(!reading.threads.is_empty(), "process {pid} is gone");
    Ok(reading)
}

/// Usage from `start` to `end`. When a thread ended in between, its nanoseconds are lost: then the ticks of the process
/// count if they are more.
pub(super) fn between(start: &Reading, end: &Reading) -> Usage {
    let user = end.user_ticks.saturating_sub(start.user_ticks);
    let ticks = user + end.system_ticks.saturating_sub(start.system_ticks);
    let counted = end
        .threads
        .iter()
        .map(|(tid, ns)| ns.saturating_sub(start.threads.get(tid).copied().unwrap_or(0)))
        .sum();
    let a_thread_ended = start
        .threads
        .keys()
        .any(|tid| !end.threads.contains_key(tid));
    let by_ticks = (ticks as f64 / TICKS_PER_S * 1e9) as u64;
    Usage {
        cpu_ns: if a_thread_ended {
            by_ticks.max(counted)
        } else {
            counted
        },
        user_share: if ticks == 0 {
            0.0
        } else {
            user as f64 / ticks as f64
        },
    }
}

/// CPU time of each thread of a process from `start` to `end` in nanoseconds, with the thread's name.
pub(super) fn by_thread(pid: u32, start: &Reading, end: &Reading) -> Vec<(String, u64)> {
    let name = |tid: &u32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok();
    let used = |tid: &u32, ns: u64| ns - start.threads.get(tid).copied().unwrap_or(0).min(ns);
    let threads = end.threads.iter();
    threads
        .filter_map(|(tid, ns)| Some((name(tid)?.trim().to_owned(), used(tid, *ns))))
        .collect()
}

/// Resident memory of the tree.
///
/// # Errors
/// When the process is gone.
pub(super) fn memory(pid: u32) -> anyhow::Result<Memory> {
    let descendants = tree(pid).into_iter().skip(1);
    // A descendant may end between the listing and the reading.
    let descendants: Memory = descendants.flat_map(memory_alone).sum();
    Ok([memory_alone(pid)?, descendants].into_iter().sum())
}

/// Nanoseconds that a process has used so far, without its descendants.
///
/// # Errors
/// When the process is gone.
pub(super) fn cpu_ns_alone(pid: u32) -> anyhow::Result<u64> {
    let read = |tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok();
    let used = threads(pid).into_iter().filter_map(read);
    let used: Vec<u64> = used.filter_map(|text| parse_schedstat(&text)).collect();
    anyhow::ensure!(!used.is_empty(), "process {pid} is gone");
    Ok(used.iter().sum())
}

/// Memory of a process without its descendants.
///
/// # Errors
/// When the process is gone.
pub(super) fn memory_alone(pid: u32) -> anyhow::Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .with_context(|| format!("process {pid} is gone"))?;
    parse_smaps_rollup(&text).context("smaps_rollup")
}

fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// User and system ticks: fields 14 and 15. The second field, the name, may hold anything but ends
/// at the last parenthesis.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn parse_smaps_rollup(text: &str) -> Option<Memory> {
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(Memory {
        rss_kib: kib("Rss:")?,
        pss_kib: kib("Pss:")?,
        private_kib: kib("Private_Clean:")? + kib("Private_Dirty:")?,
        anonymous_kib: kib("Anonymous:")?,
    })
}

/// Busy and total ticks of each core up to one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cores(Vec<(u64, u64)>);

/// Reads `/proc/stat`.
///
/// # Errors
/// When it cannot be read.
pub(super) fn cores() -> anyhow::Result<Cores> {
    let text = fs::read_to_string(Path::new("/proc/stat")).context("/proc/stat")?;
    Ok(parse_cores(&text))
}

fn parse_cores(text: &str) -> Cores {
    let mut cores = Vec::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "))
    {
        let ticks: Vec<u64> = line
            .split_ascii_whitespace()
            .skip(1)
            .take(8) // guest time is already part of user time
            .filter_map(|field| field.parse().ok())
            .collect();
        let total: u64 = ticks.iter().sum();
        // not busy: idle, iowait and steal, which the hypervisor gave to other guests
        let steal = ticks.get(7).copied().unwrap_or(0);
        let rest: u64 = ticks.iter().skip(3).take(2).sum();
        cores.push((total - rest - steal, total));
    }
    Cores(cores)
}

impl Cores {
    /// How busy each core has been since `start`, 0 to 1.
    pub(super) fn busy_since(&self, start: &Cores) -> Vec<f64> {
        let pairs = self.0.iter().zip(&start.0);
        pairs
            .map(|(end, start)| {
                let total = end.1.saturating_sub(start.1);
                let busy = end.0.saturating_sub(start.0);
                if total == 0 {
                    0.0
                } else {
                    busy as f64 / total as f64
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;

//! Ensures that only one holder has the pods of a node, and that the earlier holder and its proxy are gone.
//!
//! ```text
//!   lock ──▶ what ran here before ─┬─ has ended ──────────────────────────────────────┬──▶ ours
//!                                  └─ is still there ─▶ waits ─▶ kills the proxy ─▶ waits ┘
//! ```
//!
//! When a holder is killed, the kernel kills its proxy, too. Both take some milliseconds to release listeners,
//! sockets and locks, one after the other, and a service manager may start the next holder before that. So the
//! process IDs of both are stored beside the file of pods; when these processes have ended, everything is free.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::HolderError;
use super::memory::{put, read_own};

#[cfg(test)]
mod tests;

/// How long to wait for the lock: time for a killed holder to release it. If it is still held then, that holder
/// lives.
const LETS_GO_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which the lock is tried.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time for an earlier process to end by itself, and to end after it was killed.
const ENDS_WITHIN: Duration = Duration::from_millis(500);
const DIES_WITHIN: Duration = Duration::from_secs(5);
/// Limit of the file with the process IDs, in bytes.
const MAX_BYTES: u64 = 4_096;
/// ID of this boot of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The PID namespace, within which process IDs are valid.
const NUMBERS: &str = "/proc/self/ns/pid";

/// The exclusive right to the pods stored in one file, while this lives. It is a file lock, which the kernel releases
/// however we end.
#[derive(Debug)]
pub struct Claim {
    memory: PathBuf,
    _lock: File,
}

impl Claim {
    /// Claims the pods of the file `memory`. An earlier holder and its proxy have ended when this returns.
    ///
    /// # Errors
    /// When a living holder has the pods ([`HolderError::is_busy`]), or an earlier process does not end.
    pub fn take(memory: PathBuf) -> Result<Claim, HolderError> {
        let claim = Claim::quietly(memory)?;
        let before = claim.before();
        if let Some(holder) = before.holder {
            // Its lock is free, so it has ended or is about to.
            holder.ends("the holder before", false)?;
        }
        if let Some(proxy) = before.proxy {
            proxy.ends("the proxy of the holder before", true)?;
        }
        Ok(claim)
    }

    /// As [`Claim::take`], but without waiting for earlier processes.
    ///
    /// # Errors
    /// When a holder has the pods.
    pub(super) fn quietly(memory: PathBuf) -> Result<Claim, HolderError> {
        let lock = lock(&memory, Instant::now() + LETS_GO_WITHIN)?;
        Ok(Claim {
            memory,
            _lock: lock,
        })
    }

    /// The file in which pods are stored.
    pub(super) fn memory(&self) -> &Path {
        &self.memory
    }

    /// Stores the process IDs of this holder and its proxy, for which the next holder has to wait. If that fails, a
    /// warning is logged, and the next holder does not wait.
    pub(super) fn note(&self, proxy: Pid) {
        let running = Running {
            machine: machine(),
            holder: Process::of(getpid()),
            proxy: Process::of(proxy),
        };
        let bytes = serde_json::to_vec(&running).map_err(io::Error::from);
        let path = self.processes();
        if let Err(error) = bytes.and_then(|bytes| put(&path, &bytes, |_| Ok(()))) {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }

    /// Removes the stored process IDs: at an orderly end no process is left.
    pub(super) fn clear(&self) {
        let _never_written = fs::remove_file(self.processes());
    }

    fn before(&self) -> Running {
        let path = self.processes();
        let whose = "another user could have written it: remove it";
        let found = read_own(&path, MAX_BYTES, whose).and_then(|bytes| {
            let running: Running = serde_json::from_slice(&bytes)?;
            Ok(running)
        });
        match found {
            // Process IDs from before a reboot, or of another container, mean other processes.
            Ok(running) if running.machine == machine() => running,
            Ok(_) => Running::default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Running::default(),
            Err(error) => {
                tracing::warn!("{}: {error}", path.display());
                Running::default()
            }
        }
    }

    fn processes(&self) -> PathBuf {
        with(&self.memory, ".running")
    }
}

/// The stored processes of a holder.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Running {
    /// Boot and PID namespace in which the process IDs are valid.
    machine: String,
    holder: Option<Process>,
    proxy: Option<Process>,
}

/// A process, told from later ones with the same ID by its start time.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    pid: i32,
    /// Start time in clock ticks since boot (proc_pid_stat(5), field 22).
    started: u64,
}

impl Process {
    fn of(pid: Pid) -> Option<Process> {
        let pid = pid.as_raw_nonzero().get();
        let started = started(pid)?;
        Some(Process { pid, started })
    }

    /// Waits until the process has ended. One that does not end is killed if it `may` be killed.
    fn ends(&self, what: &str, may: bool) -> Result<(), HolderError> {
        let number = Some(self.pid).filter(|pid| *pid > 0);
        let Some(pid) = number.and_then(Pid::from_raw) else {
            return Ok(());
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // It has ended; its ID may by now be that of a thread of another process (pidfd_open(2)).
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => {
                return Err(HolderError::new(
                    format!("{what}, process {pid:?}"),
                    error.into(),
                ));
            }
        };
        // The start time is checked after the pidfd was opened. So from here on the pidfd refers to this process or
        // to none.
        if started(self.pid) != Some(self.started) || has_ended(&pidfd, ENDS_WITHIN) {
            return Ok(());
        }
        let number = self.pid;
        if may {
            tracing::warn!("{what}, process {number}, is still there: it is killed");
            let _gone = pidfd_send_signal(&pidfd, Signal::KILL);
        }
        match has_ended(&pidfd, DIES_WITHIN) {
            true => Ok(()),
            false => Err(HolderError {
                what: format!(
                    "{what}, process {number}, does not end, and blocks this holder: find out what keeps it"
                ),
                source: None,
                is_busy: true,
            }),
        }
    }
}

/// Identifies boot and PID namespace, within which process IDs are valid.
fn machine() -> String {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let numbers = fs::read_link(NUMBERS).unwrap_or_default();
    format!("{} {}", boot.trim(), numbers.display())
}

fn has_ended(pidfd: impl std::os::fd::AsFd, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return count > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn started(pid: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The command name may contain anything, and ends at the last `)`; field 3 follows.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

fn lock(path: &Path, deadline: Instant) -> Result<File, HolderError> {
    let name = with(path, ".lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&name)
        .map_err(|error| HolderError::new(format!("cannot open {}", name.display()), error))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => pause(LOOK_EVERY),
            Err(Errno::WOULDBLOCK) => {
                return Err(HolderError {
                    what: format!(
                        "{}: another holder has these pods; stop it, or choose another folder with --state",
                        path.display()
                    ),
                    source: None,
                    is_busy: true,
                });
            }
            Err(error) => {
                let what = format!("cannot lock {}", name.display());
                return Err(HolderError::new(what, error.into()));
            }
        }
    }
}

fn with(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

/// Sleeps for `time`, or less if a signal arrives.
fn pause(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        let _interrupted = poll(&mut [], Some(&time));
    }
}

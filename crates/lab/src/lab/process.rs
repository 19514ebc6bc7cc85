//! Processes that outlive the process that started them. They are ended by their notes, never by name.
//!
//! A note holds a process's id and start time, so a later process with the same id is left alone. The children of
//! these processes are found in their control group.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::cgroup::Group;

#[cfg(test)]
mod tests;

/// Timeout between SIGTERM and SIGKILL.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// How long the kernel may take to end killed processes.
const KILL_WITHIN: Duration = Duration::from_secs(5);
/// Size limit for reading a note.
const MAX_NOTE_BYTES: u64 = 64 << 10;

/// The record of a started process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    /// Description for users.
    pub what: String,
    /// Its process id, which the kernel may have given to another process since.
    pub pid: i32,
    /// When it started, in clock ticks since boot (proc_pid_stat(5), field 22).
    pub started: u64,
    /// The file of its output, standard output and standard error.
    pub log: PathBuf,
    /// Number of restarts, after it died or by `heddle-lab restart`.
    #[serde(default)]
    pub restarts: u32,
}

impl Note {
    /// Starts a service with its output in `LOGS/NAME.log`, and writes its note to `NOTES/NAME.json` with this number
    /// of restarts.
    ///
    /// # Errors
    /// The process cannot be started, or the note cannot be written.
    pub(super) fn start(
        what: &str,
        mut command: Command,
        (name, restarts): (&str, u32),
        (logs, notes): (&Path, &Path),
    ) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let output = fs::OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| log.display().to_string())?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| {
                let program = command.get_program().display();
                format!("cannot start {what}: {program}")
            })?;
        let pid = i32::try_from(child.id())?;
        let Some(started) = started(pid) else {
            let _reaped = child.wait();
            bail!("{what} ended at once");
        };
        let note = Self {
            what: what.to_owned(),
            pid,
            started,
            log,
            restarts,
        };
        let file = file_of(notes, name);
        // A reader finds either the old note or the complete new one.
        let next = file.with_extension("next");
        fs::write(&next, serde_json::to_vec(&note)?).with_context(|| next.display().to_string())?;
        fs::rename(&next, &file).with_context(|| file.display().to_string())?;
        Ok(note)
    }

    pub(super) fn read(notes: &Path, name: &str) -> Option<Self> {
        read(&file_of(notes, name))
    }

    /// Every note of a folder, sorted by file name. Unreadable notes are skipped, since control groups list the
    /// processes too.
    pub(super) fn all(notes: &Path) -> Vec<Self> {
        let entries = fs::read_dir(notes).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        paths.sort();
        paths.iter().filter_map(|path| read(path)).collect()
    }

    /// Whether this very process still runs.
    pub fn runs(&self) -> bool {
        started(self.pid) == Some(self.started) && !is_zombie(self.pid)
    }

    /// The last `count` lines of its output.
    pub fn last_words(&self, count: usize) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// A handle of the process, unless it has ended.
    pub(super) fn open(&self) -> Option<Process> {
        let process = Process::open(self.pid)?;
        // Checked after opening: from here on the descriptor stands for this process or for none.
        (started(self.pid) == Some(self.started)).then_some(process)
    }
}

fn file_of(notes: &Path, name: &str) -> PathBuf {
    notes.join(format!("{name}.json"))
}

fn read(note: &Path) -> Option<Note> {
    let size = fs::metadata(note).ok()?.len();
    let text = (size <= MAX_NOTE_BYTES).then(|| fs::read(note).ok())??;
    serde_json::from_slice(&text).ok()
}

/// A pidfd keeps signals from reaching another process that gets the same id.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    fd: OwnedFd,
}

impl Process {
    fn open(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Self { pid, fd })
    }

    pub(super) fn id(&self) -> Pid {
        self.pid
    }

    /// A pidfd is readable once the process has ended.
    pub(super) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // An error means that it has already ended.
        let _ended = pidfd_send_signal(&self.fd, signal);
    }

    /// Waits for it to end, and reaps it if it is our child.
    pub(super) fn ends_by(&self, deadline: Instant) -> bool {
        let ended = readable_by(self.fd.as_fd(), deadline);
        if ended {
            let _not_our_child = rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG);
        }
        ended
    }
}

/// Sends SIGTERM to all of them, and SIGKILL to those that do not end.
pub(super) fn end(notes: &[Note]) {
    let processes: Vec<Process> = notes.iter().filter_map(Note::open).collect();
    for process in &processes {
        process.signal(Signal::TERM);
    }
    let deadline = Instant::now() + STOP_WITHIN;
    for process in &processes {
        if !process.ends_by(deadline) {
            process.signal(Signal::KILL);
        }
    }
    let deadline = Instant::now() + KILL_WITHIN;
    for process in &processes {
        process.ends_by(deadline);
    }
}

/// Kills every process of a group, also those that start meanwhile.
///
/// # Errors
/// Some still run at the deadline.
pub(super) fn kill_members(group: &Group) -> anyhow::Result<()> {
    let deadline = Instant::now() + KILL_WITHIN;
    loop {
        let members = group.members();
        let opened = members.iter().filter_map(|pid| Process::open(*pid));
        // Checked after opening: an id that now belongs to another process is not in the group.
        let held: Vec<Process> = opened
            .filter(|process| group.holds(process.pid.as_raw_nonzero().get()))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("processes of the lab do not end: {members:?}");
        }
        for process in &held {
            process.signal(Signal::KILL);
        }
        for process in &held {
            process.ends_by(deadline);
        }
    }
}

/// The start time of a process in clock ticks since boot.
pub(super) fn started(pid: i32) -> Option<u64> {
    field_of(&stat(pid)?, 22)?.parse().ok()
}

/// Whether a process has ended, and its parent has not reaped it yet.
fn is_zombie(pid: i32) -> bool {
    stat(pid).is_none_or(|stat| field_of(&stat, 3) == Some("Z"))
}

fn stat(pid: i32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// A field after the program's name, numbered from 3. The name may contain any character, but ends with the last `)`.
fn field_of(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3)
}

fn readable_by(fd: std::os::fd::BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Sleeps before polling again for something that has no event to wait for.
pub(super) fn pause(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        // A signal shortens the pause, which does no harm.
        let _interrupted = rustix::event::poll(&mut [], Some(&time));
    }
}

/// Polls until the condition holds.
///
/// # Errors It does not hold in time.
pub(super) fn wait_until(within: Duration, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + within;
    while !is_so() {
        if Instant::now() > deadline {
            bail!("not ready after {within:?}");
        }
        pause(Duration::from_millis(10));
    }
    Ok(())
}

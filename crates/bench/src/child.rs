//! A process of the experiment: started confined, stopped by its id, ended when the lab ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long a process may take to stop before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// The core and the control groups that a process runs in; unconfined by default.
#[derive(Debug, Clone, Default)]
pub(super) struct Confinement {
    pub(super) core: Option<usize>,
    pub(super) groups: Vec<PathBuf>,
}

/// A running process; dropping it stops it.
pub(super) struct Child {
    process: std::process::Child,
    pidfd: OwnedFd,
    name: String,
    log: PathBuf,
}

impl Child {
    /// Starts a program. Its standard error goes to `log`, its standard output too unless `piped`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(
        name: &str,
        place: &Confinement,
        command: &[OsString],
        log: &Path,
        piped: bool,
    ) -> anyhow::Result<Child> {
        let errors =
            File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let output = if piped {
            Stdio::piped()
        } else {
            Stdio::from(errors.try_clone()?)
        };
        let process = confined(place, command)?
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = i32::try_from(process.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("process id")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child {
            process,
            pidfd,
            name: name.to_owned(),
            log: log.to_owned(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Takes the pipe of its standard output: possible once.
    pub(super) fn output(&mut self) -> anyhow::Result<std::process::ChildStdout> {
        self.process
            .stdout
            .take()
            .context("its output is not piped")
    }

    /// Calls `ready` until it returns a value.
    ///
    /// # Errors
    /// When the process ends or the time is up; the end of its log is quoted.
    pub(super) fn wait_until<T>(
        &mut self,
        within: Duration,
        mut ready: impl FnMut() -> Option<T>,
    ) -> anyhow::Result<T> {
        let end = Instant::now() + within;
        loop {
            if let Some(found) = ready() {
                return Ok(found);
            }
            if self.ends_within(Duration::from_millis(20))? {
                let status = self.process.wait()?;
                bail!("{} ended ({status}): {}", self.name, self.last_words());
            }
            if Instant::now() > end {
                bail!(
                    "{} is not ready after {within:?}: {}",
                    self.name,
                    self.last_words()
                );
            }
        }
    }

    /// Waits until it ends by itself and returns what it printed.
    ///
    /// # Errors
    /// When it fails or the time is up.
    pub(super) fn finish(mut self, within: Duration) -> anyhow::Result<String> {
        let mut output = self.output()?;
        let end = Instant::now() + within;
        let mut bytes = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !readable(output.as_fd(), left)? {
                bail!("{} takes longer than {within:?}", self.name);
            }
            let mut chunk = [0; 4096];
            match output.read(&mut chunk)? {
                0 => break,
                count => bytes.extend_from_slice(&chunk[..count]),
            }
        }
        let status = self.process.wait()?;
        if !status.success() {
            bail!("{} failed ({status}): {}", self.name, self.last_words());
        }
        String::from_utf8(bytes).with_context(|| format!("{} printed no UTF-8", self.name))
    }

    /// Sends `signal`, and kills the process if it has not ended after [`STOP_WITHIN`].
    pub(super) fn stop(&mut self, signal: Signal) {
        self.stop_within(signal, STOP_WITHIN);
    }

    /// Sends `signal`, and kills the process if it has not ended after `time`.
    pub(super) fn stop_within(&mut self, signal: Signal, time: Duration) {
        if matches!(self.process.try_wait(), Ok(Some(_))) {
            return;
        }
        let asked = pidfd_send_signal(&self.pidfd, signal).is_ok();
        let stopped = asked && self.ends_within(time).unwrap_or(false);
        if !stopped {
            // Either way it is reaped below; an error only means that it is gone already.
            let _gone = self.process.kill();
        }
        let _reaped = self.process.wait();
    }

    fn ends_within(&self, time: Duration) -> anyhow::Result<bool> {
        readable(self.pidfd.as_fd(), time)
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
    }
}

fn readable(fd: std::os::fd::BorrowedFd<'_>, within: Duration) -> anyhow::Result<bool> {
    let end = Instant::now() + within;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))?;
        match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The command that runs another one confined. The thread that starts it has to outlive it, as the main thread does:
/// the kernel sends the parent-death signal when the *thread* that started the process ends.
fn confined(place: &Confinement, command: &[OsString]) -> anyhow::Result<Command> {
    let mut confined = Command::new(std::env::current_exe()?);
    confined
        .arg("confine")
        .arg("--parent")
        .arg(std::process::id().to_string());
    if let Some(core) = place.core {
        confined.arg("--core").arg(core.to_string());
    }
    for group in &place.groups {
        confined.arg("--group").arg(group);
    }
    confined.arg("--").args(command);
    Ok(confined)
}

/// A command line from words of any kind.
pub(super) fn words<Word: AsRef<OsStr>>(words: impl IntoIterator<Item = Word>) -> Vec<OsString> {
    words
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect()
}

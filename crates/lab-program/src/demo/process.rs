//! A process of the mesh: starting, watching and stopping it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::program::Program;

/// Timeout between SIGTERM and the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Lines of a log quoted in an error.
const LAST_LINES: usize = 15;

/// A running process whose output goes to a file.
pub(super) struct LoggedProcess {
    what: String,
    log: PathBuf,
    child: Child,
}

impl LoggedProcess {
    /// Starts `heddle` with these arguments.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start<S: AsRef<OsStr>>(
        program: &Program,
        what: &str,
        arguments: impl IntoIterator<Item = S>,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let output = File::create(&log)?;
        // Started through `confine`, which makes the kernel end it when this process ends, even after a crash.
        let child = Command::new(env::current_exe()?)
            .args(["confine", "--parent", &std::process::id().to_string(), "--"])
            .arg(program.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // In a process group of its own, so Ctrl-C reaches only the demo, which stops the mesh after the shopper.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.path().display()))?;
        let what = what.to_owned();
        Ok(Self { what, log, child })
    }

    /// # Errors
    /// It has ended.
    pub(super) fn is_there(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended by itself: {status}", self.what),
            None => Ok(()),
        }
    }

    /// The end of its log, and its exit status if it has ended.
    pub(super) fn last_words(&mut self) -> String {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!(", which ended: {status}"),
            _ => String::new(),
        };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        format!("-- {}{ended}\n{}", self.what, last.join("\n"))
    }

    /// Sends SIGTERM, and waits until it has ended.
    ///
    /// # Errors
    /// It had already ended, does not end in time, or ends with an error.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.is_there()?;
        let what = &self.what;
        terminate(&self.child).with_context(|| format!("cannot stop {what}"))?;
        let status = timeout(STOP_LIMIT, self.child.wait())
            .await
            .with_context(|| format!("{what} did not stop within {STOP_LIMIT:?}"))??;
        if !status.success() {
            bail!("{what} did not stop cleanly: {status}");
        }
        Ok(())
    }
}

fn terminate(child: &Child) -> io::Result<()> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let pid = pid
        .and_then(rustix::process::Pid::from_raw)
        .ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::kill_process(
        pid,
        rustix::process::Signal::TERM,
    )?)
}

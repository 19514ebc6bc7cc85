//! One run of a command, as the operating system sees it.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use heddle_model::WorkloadName;
use rustix::process::{self as sys, Pid, Signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::Output;
use crate::console::Console;
use crate::serving::limits;

/// Longest piece of output that is passed on as one line, in bytes.
const MAX_LINE: usize = 8 * 1024;

/// Longest wait for the last output: a process that left the group can hold the pipes open for ever.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) name: WorkloadName,
    pub(super) command: heddle_model::Command,
    /// Variables that the mesh adds. The workload's own variables take precedence.
    pub(super) environment: BTreeMap<String, String>,
}

impl Spec {
    pub(super) fn program(&self) -> &str {
        self.command.argv.first().map_or("", String::as_str)
    }

    /// Names the working directory if it is missing: the kernel's error is the same as for a missing program.
    fn explain(&self, error: io::Error) -> io::Error {
        match &self.command.working_dir {
            Some(dir) if !dir.is_dir() => {
                let what = format!("its workingDir {} is no directory: {error}", dir.display());
                io::Error::new(error.kind(), what)
            }
            _ => error,
        }
    }
}

/// A running process that leads a process group of its own. Dropping it kills the group.
pub(super) struct Process {
    child: Child,
    group: Pid,
    /// Tasks that copy its output until the pipes are closed.
    copies: JoinSet<()>,
}

impl Process {
    /// Starts the process. Each line of its output goes to `output`, prefixed by the workload's name.
    ///
    /// The process is killed when ours dies, however that happens (`PR_SET_PDEATHSIG`).
    ///
    /// # Errors
    /// The error of `fork` or `exec`.
    pub(super) fn start(spec: &Spec, output: &Output, cpus: Option<CpuSet>) -> io::Result<Process> {
        let mut command = Command::new(spec.program());
        command
            .args(spec.command.argv.iter().skip(1))
            .envs(&spec.environment)
            .envs(&spec.command.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(dir) = &spec.command.working_dir {
            command.current_dir(dir);
        }
        before_exec(&mut command, cpus);
        let mut child = command.spawn().map_err(|error| spec.explain(error))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = group.ok_or_else(|| io::Error::other("the process has no id"))?;
        let prefix = format!("[{}] ", spec.name);
        let mut copies = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            copies.spawn(pass_on(stdout, output.stdout.clone(), prefix.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            copies.spawn(pass_on(stderr, output.stderr.clone(), prefix));
        }
        Ok(Process {
            child,
            group,
            copies,
        })
    }

    /// The process id, which is also the group's.
    pub(super) fn id(&self) -> u32 {
        self.group.as_raw_nonzero().get().cast_unsigned()
    }

    /// Waits for its end, kills the rest of its group, and describes how it ended.
    pub(super) async fn wait(&mut self) -> String {
        let ended = self.child.wait().await;
        self.signal(Signal::KILL);
        // Its last output is still in the pipes.
        let copied = async { while self.copies.join_next().await.is_some() {} };
        let _held_open_elsewhere = tokio::time::timeout(LAST_OUTPUT, copied).await;
        match ended {
            Ok(status) => describe(status),
            Err(error) => error.to_string(),
        }
    }

    /// Sends SIGTERM to the group, and SIGKILL after `grace` if the process is still there.
    pub(super) async fn stop(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            tracing::warn!(pid = self.id(), "did not stop in time, killing it");
            self.signal(Signal::KILL);
            self.wait().await;
        }
    }

    /// Signals the group; an error means that no process of it is left.
    fn signal(&self, signal: Signal) {
        let _none_left = sys::kill_process_group(self.group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only before it has been waited for: later, another process may have its id.
        if self.child.id().is_some() {
            self.signal(Signal::KILL);
        }
    }
}

#[allow(
    unsafe_code,
    reason = "there is no safe way to act between fork and exec"
)]
fn before_exec(command: &mut Command, cpus: Option<CpuSet>) {
    let parent = sys::getpid();
    let limit = limits::original();
    let in_child = move || {
        sys::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that took effect.
        if sys::getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::CHILD));
        }
        // Our limit was raised; programs that use select(2) need the original one.
        if let Some(limit) = limit {
            sys::setrlimit(sys::Resource::Nofile, limit)?;
        }
        if let Some(cpus) = &cpus {
            sched_setaffinity(None, cpus)?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the forked child and makes only four system calls; it takes no lock and allocates
    // nothing.
    unsafe {
        command.pre_exec(in_child);
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Copies lines, each with `prefix`, until the pipe is closed. A line longer than [`MAX_LINE`] is split.
async fn pass_on(mut from: impl AsyncRead + Unpin, to: Console, prefix: String) {
    let mut buffer = Vec::new();
    loop {
        let read = from.read_buf(&mut buffer).await;
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(end + 1);
            write_line(&to, &prefix, &buffer[..end]);
            buffer = rest;
        }
        let ended = !matches!(read, Ok(1..));
        if buffer.len() >= MAX_LINE || (ended && !buffer.is_empty()) {
            write_line(&to, &prefix, &buffer);
            buffer.clear();
        }
        if ended {
            return;
        }
    }
}

fn write_line(to: &Console, prefix: &str, line: &[u8]) {
    let line = shown(line, to.is_terminal());
    to.line([prefix.as_bytes(), &line, b"\n"].concat());
}

/// A workload's line as it is shown. Control characters that could overwrite the prefix are written as `cat -v` does;
/// on a terminal, all others too, so colours are lost.
fn shown(line: &[u8], is_terminal: bool) -> Vec<u8> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut shown = Vec::with_capacity(line.len());
    let mut before = 0;
    for &byte in line {
        match byte {
            b'\t' => shown.push(byte),
            0x7f if is_terminal => shown.extend(b"^?"),
            0..0x20 if is_terminal || matches!(byte, b'\r' | 0 | 0x08) => {
                shown.extend([b'^', byte + b'@']);
            }
            // In UTF-8, the control characters beyond ASCII begin with the byte C2.
            0x80..0xa0 if is_terminal && before == 0xc2 => {
                shown.pop();
                shown.extend([b'M', b'-', b'^', byte - 0x40]);
            }
            _ => shown.push(byte),
        }
        before = byte;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn output_cannot_write_over_the_name_of_its_workload() {
        for (line, elsewhere, terminal) in [
            (
                &b"plain\ttext \xc3\xa9"[..],
                &b"plain\ttext \xc3\xa9"[..],
                &b"plain\ttext \xc3\xa9"[..],
            ),
            (b"dos\r", b"dos", b"dos"),
            (b"10 %\r20 %", b"10 %^M20 %", b"10 %^M20 %"),
            (b"a\0b\x08", b"a^@b^H", b"a^@b^H"),
            (
                b"\x1b[31mred\x1b[0m",
                b"\x1b[31mred\x1b[0m",
                b"^[[31mred^[[0m",
            ),
            (b"\x07\x7f", b"\x07\x7f", b"^G^?"),
            (b"\xc2\x9b2J\x9b", b"\xc2\x9b2J\x9b", b"M-^[2J\x9b"),
        ] {
            assert_eq!(shown(line, false), elsewhere);
            assert_eq!(shown(line, true), terminal);
        }
    }
}

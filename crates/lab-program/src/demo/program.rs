//! The `heddle` program, called as an operator does.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use tokio::process::Command;

#[derive(Clone)]
pub(super) struct Program(PathBuf);

/// Output of a successful command.
pub(super) struct Said {
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Program {
    /// Searches `PATH` like a shell, unless `program` has a folder.
    ///
    /// # Errors
    /// It is not in `PATH`.
    pub(super) fn find(program: &Path) -> anyhow::Result<Self> {
        if program.components().count() > 1 {
            return Ok(Self(program.to_owned()));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path)
            .map(|dir| dir.join(program))
            .find(|found| found.is_file())
            .map(Self)
            .with_context(|| format!("there is no {} in PATH", program.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The command to type in this folder for the process at `socket`.
    pub(super) fn typed(&self, command: &str, socket: &Path) -> String {
        let here = env::current_dir().unwrap_or_default();
        let program = match self.0.strip_prefix(here) {
            Ok(below) => Path::new(".").join(below),
            Err(_) => self.0.clone(),
        };
        let (program, socket) = (program.display(), socket.display());
        format!("{program} {command} --socket {socket}")
    }

    /// Runs a command against the process at `socket`. The exit codes in `taken` are not errors: some commands report
    /// problems by them.
    ///
    /// # Errors
    /// The command fails.
    pub(super) async fn ask(
        &self,
        words: &[&str],
        socket: &Path,
        taken: &[i32],
    ) -> anyhow::Result<Said> {
        let mut command = Command::new(&self.0);
        command.args(words).arg("--socket").arg(socket);
        // In a process group of its own, so Ctrl-C reaches only the demo.
        command.process_group(0).kill_on_drop(true);
        let output = command.output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code().unwrap_or(-1);
        if !output.status.success() && !taken.contains(&code) {
            bail!("heddle {}: {}", words.join(" "), stderr.trim());
        }
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Said { stdout, stderr })
    }

    /// As [`Program::ask`], for JSON output.
    ///
    /// # Errors
    /// The command fails, or its output cannot be parsed.
    pub(super) async fn answer<T: DeserializeOwned>(
        &self,
        words: &[&str],
        socket: &Path,
        taken: &[i32],
    ) -> anyhow::Result<T> {
        let words = [words, &["--output", "json"]].concat();
        let said = self.ask(&words, socket, taken).await?;
        serde_json::from_str(&said.stdout)
            .with_context(|| format!("cannot parse the output of heddle {}", words.join(" ")))
    }
}

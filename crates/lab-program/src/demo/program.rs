//! The `heddle` program, used as an operator uses it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use tokio::process::Command;

/// Where the program is.
#[derive(Clone)]
pub(super) struct Program(PathBuf);

/// What a command that succeeded has written.
pub(super) struct Said {
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Program {
    /// Looks for a program as a shell does.
    ///
    /// # Errors
    /// It is not there.
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

    /// What to type, from this folder, to ask the process at `socket`.
    pub(super) fn typed(&self, command: &str, socket: &Path) -> String {
        let here = env::current_dir().unwrap_or_default();
        let program = match self.0.strip_prefix(here) {
            Ok(below) => Path::new(".").join(below),
            Err(_) => self.0.clone(),
        };
        let (program, socket) = (program.display(), socket.display());
        format!("{program} {command} --socket {socket}")
    }

    /// Runs a command, which asks the process at `socket`. Some say by their exit code that something is
    /// not well; those in `taken` are no errors.
    ///
    /// # Errors
    /// It fails.
    pub(super) async fn ask(
        &self,
        words: &[&str],
        socket: &Path,
        taken: &[i32],
    ) -> anyhow::Result<Said> {
        let mut command = Command::new(&self.0);
        command.args(words).arg("--socket").arg(socket);
        // Ctrl-C is for the demo alone.
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

    /// The same for an answer in JSON.
    ///
    /// # Errors
    /// It fails, or the answer is not understood.
    pub(super) async fn answer<T: DeserializeOwned>(
        &self,
        words: &[&str],
        socket: &Path,
        taken: &[i32],
    ) -> anyhow::Result<T> {
        let words = [words, &["--output", "json"]].concat();
        let said = self.ask(&words, socket, taken).await?;
        serde_json::from_str(&said.stdout)
            .with_context(|| format!("the answer to heddle {} is not understood", words.join(" ")))
    }
}

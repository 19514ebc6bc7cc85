//! Exit codes and failures of commands.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::AnsiColor;
use heddle_model::printable;

/// Exit code of a command. The codes are part of the interface: scripts read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// A failure that no other code stands for.
    Failed = 1,
    /// The command line is wrong; clap also exits with this code.
    Usage = 2,
    /// Manifests or settings were refused.
    Refused = 3,
    /// No running heddle answers on the admin socket.
    Unreachable = 4,
    /// Another heddle uses the admin socket or the state folder.
    Busy = 5,
    /// Heddle runs, but `heddle check` found a problem for the operator.
    Degraded = 6,
}

/// Help text about exit codes, for `heddle --help`.
pub const HELP: &str = "Exit codes:
  0  done
  1  failed
  2  wrong command line
  3  manifests or settings refused
  4  no running heddle answers on the admin socket, or no holder of pods
  5  another heddle has the admin socket or the state folder
  6  degraded: it goes on, but an operator should look (check)";

impl Exit {
    /// The exit code that another heddle process ended with; an unknown one counts as [`Exit::Failed`].
    pub fn of(code: i32) -> Exit {
        let all = [
            Exit::Ok,
            Exit::Usage,
            Exit::Refused,
            Exit::Unreachable,
            Exit::Busy,
            Exit::Degraded,
        ];
        let found = all.into_iter().find(|exit| *exit as i32 == code);
        found.unwrap_or(Exit::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Exit code of a program. A failure is reported on standard error, after the program's name.
pub fn ended(program: &str, done: Result<ExitCode, Failure>) -> ExitCode {
    done.unwrap_or_else(|failure| {
        let red = AnsiColor::Red.on_default().bold();
        say(format_args!(
            "{red}{program}:{red:#} {}",
            printable(&failure.to_string())
        ));
        failure.exit.into()
    })
}

/// Writes a line to standard error, without its colours where they would not be shown, and ignores errors: unlike
/// `eprintln!`, it does not panic when the reader is gone.
pub fn say(line: impl fmt::Display) {
    let mut to = anstream::AutoStream::auto(io::stderr().lock());
    let _unread = writeln!(to, "{line}");
}

/// Why a command failed, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code for this failure.
    pub exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// Combines an exit code with the error to report.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Failure {
            exit,
            error: error.into(),
        }
    }
}

impl Failure {
    /// Replaces the message and keeps the exit code.
    pub fn instead(self, why: &str) -> Self {
        Failure {
            exit: self.exit,
            error: anyhow::anyhow!("{why}"),
        }
    }

    /// Adds `more` in parentheses to the message.
    pub fn with(self, more: &str) -> Self {
        Failure {
            exit: self.exit,
            error: anyhow::anyhow!("{} ({more})", on_one_line(&self.error)),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure {
            exit: Exit::Failed,
            error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&on_one_line(&self.error))
    }
}

/// An error and all its causes on one line, without causes that the text already contains.
fn on_one_line(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::on_one_line;

    #[test]
    fn every_cause_is_said_once() {
        let error = anyhow!("denied")
            .context("a: denied")
            .context("cannot start");
        assert_eq!(on_one_line(&error), "cannot start: a: denied");
    }
}

//! How a command ends.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use heddle_model::printable;

/// What a command's exit code says. The codes are part of the interface: scripts read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Something went wrong that none of the others names.
    Failed = 1,
    /// The command line is wrong; clap exits with it, too.
    Usage = 2,
    /// Manifests or settings were refused.
    Refused = 3,
    /// No running heddle answers on the admin socket.
    Unreachable = 4,
    /// Another heddle has the admin socket, or the state folder.
    Busy = 5,
    /// All goes on, but an operator should look: `heddle check` found something.
    Degraded = 6,
}

/// What `heddle --help` says about them.
pub const HELP: &str = "Exit codes:
  0  done
  1  failed
  2  wrong command line
  3  manifests or settings refused
  4  no running heddle answers on the admin socket, or no holder of pods
  5  another heddle has the admin socket or the state folder
  6  degraded: it goes on, but an operator should look (check)";

impl Exit {
    /// What another process of ours ended with.
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

/// The exit code of a program, which says on standard error why its command failed.
pub fn ended(program: &str, done: Result<ExitCode, Failure>) -> ExitCode {
    done.unwrap_or_else(|failure| {
        say(format_args!(
            "{program}: {}",
            printable(&failure.to_string())
        ));
        failure.exit.into()
    })
}

/// Writes a line to standard error. A reader that is gone changes nothing about what a command does, or how it ends:
/// `eprintln!` would panic.
pub fn say(line: impl fmt::Display) {
    let _unread = writeln!(io::stderr().lock(), "{line}");
}

/// Why a command could not do what it was asked, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    /// What the exit code says.
    pub exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Failure {
            exit,
            error: error.into(),
        }
    }
}

impl Failure {
    /// Another reason for the same end.
    pub fn instead(self, why: &str) -> Self {
        Failure {
            exit: self.exit,
            error: anyhow::anyhow!("{why}"),
        }
    }

    /// The same, and what else there is to say.
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

/// An error and all its causes, without those that it says itself.
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

//! One module for each command.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod explain;
pub(crate) mod node;
pub(crate) mod status;
pub(crate) mod up;
pub(crate) mod validate;
pub(crate) mod version;

use std::io::{self, Write};

use anyhow::Context;

use crate::admin::ClientError;
use crate::exit::{Exit, Failure};

/// Prints a command's result. That the reader went away (`heddle status | head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error)
            .context("cannot write to standard output")
            .map_err(Failure::from),
        _ => Ok(()),
    }
}

/// Gives each way in which a running process does not answer its exit code.
fn unanswered(error: ClientError) -> Failure {
    let exit = match error {
        ClientError::NotRunning(..)
        | ClientError::Denied(..)
        | ClientError::Impostor(..)
        | ClientError::Late(..)
        | ClientError::NoAnswer(..) => Exit::Unreachable,
        ClientError::Status(..) => Exit::Failed,
    };
    Failure::new(exit, error)
}

//! One module for each command.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod deny;
pub(crate) mod enrol;
mod etcd;
pub(crate) mod explain;
mod folder;
mod holder;
pub(crate) mod pods;
pub(crate) mod register;
pub(crate) mod release;
pub(crate) mod root;
pub(crate) mod site;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod uninstall;
pub(crate) mod up;
pub(crate) mod validate;
pub(crate) mod version;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_node::admin::{self, ClientError, Location};
use heddle_node::exit::{Exit, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use self::status::StatusAnswer;
use crate::order::Order;
use crate::output::OutputFormat;

/// Where a heddle says what it is, and how it is doing.
const STATUS: &str = "/status";

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
        | ClientError::NoAnswer(..)
        | ClientError::BadPath(..) => Exit::Unreachable,
        ClientError::Status(..) => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// The same of a node, which may have a holder that does answer.
fn node_unanswered(error: ClientError, at: &Location, holder_socket: Option<PathBuf>) -> Failure {
    let seen_by_holder = holder::seen(&error, at, holder_socket);
    let failure = unanswered(error);
    match seen_by_holder {
        Some(seen) => failure.instead(&seen),
        None => failure,
    }
}

/// Which process a command asks that any may be asked.
#[derive(Debug, clap::Args)]
struct At {
    /// The admin socket of the running heddle [default: as for `heddle up`, with --control as for
    /// `heddle control`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Ask the control plane
    #[arg(long)]
    control: bool,
    /// Where the node's holder is asked if its proxy does not answer, as for `heddle node --holder-socket`
    #[arg(long, value_name = "PATH", conflicts_with = "control")]
    holder_socket: Option<PathBuf>,
}

impl At {
    fn location(&self) -> Location {
        let given = self.socket.clone();
        match self.control {
            true => Location::control(given),
            false => Location::new(given),
        }
    }

    /// What `path` of its admin interface answers. If only a control plane is there, the error says so; and if one was
    /// asked and a node answers, that is an error.
    fn get(&self, path: &str) -> Result<String, Failure> {
        let answer = self.get_of_any(path)?;
        if !self.control {
            return Ok(answer);
        }
        let status = match path {
            STATUS => None,
            _ => Some(self.get_of_any(STATUS)?),
        };
        let status = status::who(status.as_ref().unwrap_or(&answer));
        match status.context("the answer is not understood: is it another version of heddle?")? {
            StatusAnswer::Control(_) => Ok(answer),
            StatusAnswer::Node(node) => Err(Failure::from(anyhow!(
                "{} is the socket of a node (process {}), not of a control plane: ask it without --control, or name \
                 the control plane's with --socket",
                self.location().path.display(),
                node.pid
            ))),
        }
    }

    fn get_of_any(&self, path: &str) -> Result<String, Failure> {
        let location = self.location();
        admin::get(&location, path).map_err(|error| {
            let other = Location::control(None);
            let is_there = !location.is_given && !self.control && other.path.exists();
            match is_there {
                true => unanswered(error).with("a control plane is here: ask it with --control"),
                false if self.control => unanswered(error),
                false => node_unanswered(error, &location, self.holder_socket.clone()),
            }
        })
    }
}

/// How a command asks a control plane.
#[derive(Debug, clap::Args)]
struct Asked {
    /// The admin socket of the running control plane [default: as for `heddle control`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// How to print the answer
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

impl Asked {
    /// Gives an order, and returns what came of it.
    fn order<T: DeserializeOwned>(&self, order: &Order) -> Result<T, Failure> {
        let body = serde_json::to_string(order).context("the order has no text")?;
        let answer = admin::post(&Location::control(self.socket.clone()), "/order", &body);
        // A token may be in it.
        let answer = Zeroizing::new(answer.map_err(|error| match error {
            // It says why, and what to do about it.
            ClientError::Status(400 | 404 | 409, why) => {
                Failure::from(anyhow!("{}", why.trim_end()))
            }
            other => unanswered(other),
        })?);
        let understood = serde_json::from_str(&answer);
        Ok(understood.context("the answer is not understood: is it another version of heddle?")?)
    }

    /// Prints what came of an order: as text, or as it is.
    fn show<T: Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        print(&match self.output {
            OutputFormat::Text => text(answer),
            OutputFormat::Json => serde_json::to_string_pretty(answer).unwrap_or_default() + "\n",
        })
    }
}

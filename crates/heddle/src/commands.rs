//! One module for each command.

pub(crate) mod bug_report;
pub(crate) mod check;
pub(crate) mod cleanup;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod deny;
pub(crate) mod deps;
pub(crate) mod enroll;
pub(crate) mod envoy;
mod etcd;
pub(crate) mod explain;
mod folder;
mod holder;
pub(crate) mod man;
pub(crate) mod node;
pub(crate) mod pods;
pub(crate) mod qos;
pub(crate) mod register;
pub(crate) mod root;
pub(crate) mod site;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod unenroll;
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

/// Path of the status in the admin interface.
const STATUS: &str = "/status";

/// Prints a command's result. A reader that closes the pipe (`heddle status | head`) is not an error.
fn print(text: &str) -> Result<(), Failure> {
    // Removes colours where they would not be shown.
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error)
            .context("cannot write to standard output")
            .map_err(Failure::from),
        _ => Ok(()),
    }
}

/// Exit code for each reason why a running process did not answer.
fn unanswered(error: ClientError) -> Failure {
    let exit = match error {
        ClientError::NotRunning(..)
        | ClientError::Denied(..)
        | ClientError::Impostor(..)
        | ClientError::Late(..)
        | ClientError::NoAnswer(..)
        | ClientError::TooLong(..)
        | ClientError::BadPath(..) => Exit::Unreachable,
        ClientError::Status(..) => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// Like [`unanswered`], for a node: if its proxy does not answer, its holder may.
fn node_unanswered(error: ClientError, at: &Location, holder_socket: Option<PathBuf>) -> Failure {
    let seen_by_holder = holder::seen(&error, at, holder_socket);
    let failure = unanswered(error);
    match seen_by_holder {
        Some(seen) => failure.instead(&seen),
        None => failure,
    }
}

/// Selects the process for commands that can ask a node or a control plane.
#[derive(Debug, clap::Args)]
struct At {
    /// The admin socket of the running heddle [default: as for `heddle up`, with --control as for
    /// `heddle control`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Ask the control plane
    #[arg(long)]
    control: bool,
    /// Socket of the node's holder, which is asked if the proxy does not answer, as for `heddle node --holder-socket`
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

    /// Gets `path` from the admin interface. If only a control plane runs here, the error says so; with `--control`, an
    /// answer from a node is an error.
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

/// Flags of commands that talk to a control plane.
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
    /// Sends an order and returns the answer.
    fn order<T: DeserializeOwned>(&self, order: &Order) -> Result<T, Failure> {
        let body = serde_json::to_string(order).context("the order has no text")?;
        let answer = admin::post(&Location::control(self.socket.clone()), "/order", &body);
        // It may contain a token.
        let answer = Zeroizing::new(answer.map_err(|error| match error {
            // The answer gives the reason and the remedy.
            ClientError::Status(400 | 404 | 409, why) => {
                Failure::from(anyhow!("{}", why.trim_end()))
            }
            other => unanswered(other),
        })?);
        let understood = serde_json::from_str(&answer);
        Ok(understood.context("the answer is not understood: is it another version of heddle?")?)
    }

    /// Prints the answer to an order.
    fn show<T: Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        print(&self.output.written(answer, || text(answer))?)
    }
}

//! `heddle config`.

use std::path::PathBuf;

use anyhow::Context;

use crate::admin::{self, Location};
use crate::exit::{Exit, Failure};

/// Look at the configuration of a running heddle
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the settings and the mesh that are in force, as JSON
    ///
    /// What is printed is what is served: after a bad edit, that is the last good state.
    #[command(after_help = "Examples:
  heddle config dump
  heddle config dump | jq '.mesh.services[].name'

Exit codes:
  0  done
  1  failed
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Dump {
        /// The admin socket of the running heddle [default: as for `heddle up`]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let Command::Dump { socket } = args.command;
    let answer = admin::get(&Location::new(socket), "/config").map_err(super::unanswered)?;
    let config: serde_json::Value =
        serde_json::from_str(&answer).context("the answer is not understood")?;
    super::print(&format!("{config:#}\n"))?;
    Ok(Exit::Ok)
}

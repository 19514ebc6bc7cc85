//! `heddle config`.

use anyhow::Context;
use heddle_node::exit::{Exit, Failure};

/// Look at the configuration of a running heddle
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Print the settings and the mesh that are in force, as JSON
    ///
    /// What is printed is what is served: of an object with an error, its last good version, or what stands for it (a
    /// policy that denies every call, perhaps under the name unreadable-…).
    #[command(after_help = "Examples:
  heddle config dump
  heddle config dump | jq '.mesh.services[].name'
  heddle config dump --control

Exit codes:
  0  done
  1  failed
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Dump {
        #[command(flatten)]
        at: super::At,
    },
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let ConfigCommand::Dump { at } = args.command;
    let answer = at.get("/config")?;
    let config: serde_json::Value =
        serde_json::from_str(&answer).context("the answer is not understood")?;
    super::print(&format!("{config:#}\n"))?;
    Ok(Exit::Ok)
}

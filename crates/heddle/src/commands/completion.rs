//! `heddle completion`.

use clap::CommandFactory;
use clap_complete::Shell;
use heddle_node::exit::{Exit, Failure};

use crate::cli::Cli;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  source <(heddle completion bash)")]
pub(crate) struct Args {
    /// The shell that will read it
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "heddle", &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

//! `heddle completion`.

use clap_complete::Shell;
use heddle_node::command;
use heddle_node::exit::{Exit, Failure};

use crate::cli;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(heddle completion bash)
  source <(heddle completion bash --program heddle-node)")]
pub(crate) struct Args {
    /// The shell that will read it
    shell: Shell,
    /// The program that it completes
    #[arg(long, value_name = "PROGRAM", default_value = "heddle")]
    program: Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Program {
    Heddle,
    HeddleNode,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let (name, mut program) = match args.program {
        Program::Heddle => ("heddle", cli::command()),
        Program::HeddleNode => (command::PROGRAM, command::program()),
    };
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

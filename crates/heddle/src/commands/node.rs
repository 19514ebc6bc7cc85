//! `heddle node`, and its subcommand.

use clap::Subcommand;
use heddle_node::command::{self, NodeProgram};
use heddle_node::exit::{Exit, Failure};

use super::cleanup;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    node: command::Args,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    Cleanup(cleanup::Args),
}

pub(crate) fn run(args: NodeArgs) -> Result<Exit, Failure> {
    match args.command {
        Some(NodeCommand::Cleanup(args)) => cleanup::run(args),
        None => command::run(NodeProgram::Heddle, args.node),
    }
}

//! `heddle node`, and its subcommand.

use anyhow::anyhow;
use clap::Subcommand;
use heddle_node::command;
use heddle_node::exit::{Exit, Failure};

use super::cleanup;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    node: Option<command::Args>,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    Cleanup(cleanup::Args),
}

pub(crate) fn run(args: NodeArgs) -> Result<Exit, Failure> {
    match (args.command, args.node) {
        (Some(NodeCommand::Cleanup(args)), _) => cleanup::run(args),
        (None, Some(node)) => command::run(node),
        // clap has refused that already: a node's flags are required.
        (None, None) => Err(Failure::new(Exit::Usage, anyhow!("--name is missing"))),
    }
}

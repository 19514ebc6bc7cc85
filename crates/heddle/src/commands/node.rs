//! `heddle node`: the flags of a node, or the subcommand `cleanup`.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use heddle_node::command;
use heddle_node::exit::{Exit, Failure};

use super::cleanup;

const CLEANUP: &str = "cleanup";

/// Flags that are required, unless there is a subcommand. clap's derive cannot say that of flags that are flattened.
#[derive(Debug)]
pub(crate) enum NodeArgs {
    Serve(Box<command::Args>),
    Cleanup(cleanup::Args),
}

impl Args for NodeArgs {
    fn augment_args(command: Command) -> Command {
        command::Args::augment_args(command)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .subcommand(cleanup::Args::augment_args(Command::new(CLEANUP)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        NodeArgs::augment_args(command)
    }
}

impl FromArgMatches for NodeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<NodeArgs, Error> {
        match matches.subcommand_matches(CLEANUP) {
            Some(matches) => cleanup::Args::from_arg_matches(matches).map(NodeArgs::Cleanup),
            None => {
                let args = command::Args::from_arg_matches(matches)?;
                Ok(NodeArgs::Serve(Box::new(args)))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = NodeArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) fn run(args: NodeArgs) -> Result<Exit, Failure> {
    match args {
        NodeArgs::Serve(args) => command::run(*args),
        NodeArgs::Cleanup(args) => cleanup::run(args),
    }
}

//! `heddle qos`: run the agent, show what it holds, put everything back.

mod remarks;
mod restore;
mod run;
mod status;

use std::path::PathBuf;

use clap::Subcommand;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::QosSettings;

use self::restore::RestoreArgs;
use self::run::RunArgs;
use self::status::StatusArgs;
pub(super) use self::status::summary;

/// Keep latency-sensitive pods fast beside batch work, by control groups and traffic control
///
/// Pods are online (latency-sensitive) unless a label or annotation says `volcano.sh/preemptable: "true"` or
/// `heddle.dev/class: offline`. Needs root, and no mesh.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: QosCommand,
}

#[derive(Debug, Subcommand)]
enum QosCommand {
    Run(Box<RunArgs>),
    Status(StatusArgs),
    Restore(RestoreArgs),
}

/// Flag that selects the journal.
#[derive(Debug, clap::Args)]
struct State {
    /// Folder of the journal, in which the agent writes what it changes before it does [default: /run/heddle/qos]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

impl State {
    fn folder(self) -> PathBuf {
        QosSettings {
            state: self.state,
            ..QosSettings::default()
        }
        .state_folder()
        .to_owned()
    }
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        QosCommand::Run(args) => run::run(*args),
        QosCommand::Status(args) => status::run(args),
        QosCommand::Restore(args) => restore::run(args),
    }
}

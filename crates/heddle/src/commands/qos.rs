//! `heddle qos`: run the agent, show what it holds, put everything back.

mod remarks;
mod restore;
mod run;
mod status;

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Subcommand;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::GivenSettings;

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

/// Flags of the commands that look at what an agent has done.
#[derive(Debug, clap::Args)]
struct AgentFlags {
    #[command(flatten)]
    state: State,
    /// Settings of the agent: its qos.state counts where --state says nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl AgentFlags {
    /// The folder of the journal.
    ///
    /// # Errors
    /// When it was named and is not there: an agent would have made it.
    fn folder(self) -> Result<PathBuf, Failure> {
        let mut given = GivenSettings::read(self.config.as_deref())?;
        given.flag("--state", "qos.state", self.state.state, |to, state| {
            to.qos.state = Some(state);
        });
        let settings = given.checked()?.qos;
        let folder = settings.state_folder();
        if settings.state.is_some() && !folder.exists() {
            let shown = folder.display();
            return Err(anyhow!(
                "{shown} does not exist: give --state as it was given to the agent (qos.state in its settings)"
            )
            .into());
        }
        Ok(folder.to_owned())
    }
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        QosCommand::Run(args) => run::run(*args),
        QosCommand::Status(args) => status::run(args),
        QosCommand::Restore(args) => restore::run(args),
    }
}

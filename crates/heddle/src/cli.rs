//! The command line.

use clap::{Parser, Subcommand};
use heddle_node::exit;

use crate::commands;

/// A service mesh with one proxy per node
///
/// Heddle carries the HTTP and TCP traffic of every workload on a machine through one process, as
/// Kubernetes manifests say: Services, Gateway API HTTPRoutes, and LocalWorkloads for what runs here.
#[derive(Debug, Parser)]
#[command(name = "heddle", version, after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Box<commands::up::Args>),
    Node(Box<commands::node::NodeArgs>),
    Register(Box<commands::register::Args>),
    #[command(visible_alias = "enrol")]
    Enroll(commands::enroll::Args),
    #[command(visible_alias = "release")]
    Unenroll(commands::unenroll::Args),
    Pods(commands::pods::Args),
    #[command(hide = true)]
    Uninstall(commands::cleanup::Args),
    Check(commands::check::Args),
    Control(Box<commands::control::Args>),
    Token(commands::token::Args),
    Root(commands::root::Args),
    Deny(commands::deny::Args),
    Site(commands::site::Args),
    Validate(commands::validate::Args),
    Status(commands::status::Args),
    Explain(commands::explain::Args),
    Config(commands::config::Args),
    Completion(commands::completion::Args),
    Man(commands::man::Args),
    /// Print the version, and the commit and the compiler that it was built from
    Version,
}

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
    Node(Box<heddle_node::command::Args>),
    Register(Box<commands::register::Args>),
    Enrol(commands::enrol::Args),
    Release(commands::release::Args),
    Pods(commands::pods::Args),
    Uninstall(commands::uninstall::Args),
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
    /// Print the version
    Version,
}

//! The command line.

use std::fmt::Write;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    Qos(commands::qos::Args),
    #[command(hide = true)]
    Uninstall(commands::cleanup::Args),
    Check(commands::check::Args),
    Control(Box<commands::control::Args>),
    Token(commands::token::Args),
    Root(commands::root::Args),
    Deny(commands::deny::Args),
    Site(commands::site::Args),
    Envoy(commands::envoy::Args),
    Deps(commands::deps::Args),
    Validate(commands::validate::Args),
    Status(commands::status::Args),
    Explain(commands::explain::Args),
    Config(commands::config::Args),
    Completion(commands::completion::Args),
    Man(commands::man::Args),
    Version(commands::version::Args),
    BugReport(commands::bug_report::Args),
}

/// The commands of `heddle --help`, by what they are for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Serve", &["up", "node", "control", "register"]),
    ("Pods", &["enroll", "unenroll", "pods", "qos", "envoy"]),
    (
        "Look",
        &["status", "check", "explain", "deps", "config", "validate"],
    ),
    ("Identity", &["token", "root", "deny", "site"]),
    (
        "This program",
        &["completion", "man", "version", "bug-report", "help"],
    ),
];
/// Columns of the longest command's name.
const NAME_WIDTH: usize = 10;

/// The command line, with its commands in groups.
pub(crate) fn command() -> clap::Command {
    let mut heddle = Cli::command();
    heddle.build();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        let _infallible = writeln!(template, "\n{group}:");
        for name in names {
            let command = heddle.find_subcommand(name);
            let about = command.and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _infallible = writeln!(template, "  {name:NAME_WIDTH$}  {about}");
        }
    }
    template.push_str("\nOptions:\n{options}{after-help}");
    Cli::command().help_template(template)
}

/// Parses the command line of this process. Ends the process with exit code 2 when it is wrong.
pub(crate) fn parse() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let mut heddle = Cli::command();
        heddle.build();
        let shown = heddle.get_subcommands().filter(|one| !one.is_hide_set());
        let mut shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
        let longest = shown.iter().map(|name| name.len()).max();
        assert_eq!(longest, Some(NAME_WIDTH));
        super::command().debug_assert();
    }
}

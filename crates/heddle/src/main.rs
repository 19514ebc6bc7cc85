//! Heddle, a service mesh with one proxy per node.
//!
//! `main` parses the command line and runs the command. Each command has a module in [`commands`], and the flags of
//! `heddle node` are in [`heddle_node::command`]. The parts of `heddle up` beyond its command line are in [`up`], those of
//! `heddle control` in [`control`], those of `heddle register` in [`register`].

// `print!` and `eprint!` panic when the reader has closed the pipe; `exit::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod cli;
mod colour;
mod commands;
mod control;
mod order;
mod output;
mod qos;
#[cfg(test)]
mod reference;
mod register;
mod registry;
mod report;
mod settings;
mod up;

use std::process::ExitCode;

use heddle_node::exit::ended;

use cli::Command;

/// Prefix of error messages.
const PROGRAM: &str = "heddle";

fn main() -> ExitCode {
    // clap itself exits with 2 when the command line is wrong.
    let done = match cli::parse().command {
        // The exit code may be that of the command that it ran.
        Command::Register(args) => return ended(PROGRAM, commands::register::run(*args)),
        Command::Up(args) => commands::up::run(*args),
        Command::Node(args) => commands::node::run(*args),
        Command::Enroll(args) => commands::enroll::run(args),
        Command::Unenroll(args) => commands::unenroll::run(args),
        Command::Pods(args) => commands::pods::run(args),
        Command::Qos(args) => commands::qos::run(args),
        Command::Uninstall(args) => commands::cleanup::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Control(args) => commands::control::run(&args),
        Command::Token(args) => commands::token::run(args),
        Command::Root(args) => commands::root::run(args),
        Command::Deny(args) => commands::deny::run(args),
        Command::Site(args) => commands::site::run(args),
        Command::Envoy(args) => commands::envoy::run(args),
        Command::Deps(args) => commands::deps::run(&args),
        Command::Validate(args) => commands::validate::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Config(args) => commands::config::run(args),
        Command::Completion(args) => commands::completion::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::Version(args) => commands::version::run(&args),
        Command::BugReport(args) => commands::bug_report::run(&args),
    };
    ended(PROGRAM, done.map(ExitCode::from))
}

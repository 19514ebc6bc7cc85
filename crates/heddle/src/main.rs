//! Heddle, a service mesh with one proxy per node.
//!
//! `main` reads the command line and finds the command; each command is a page in [`commands`], but for `heddle node`,
//! which is [`heddle_node::command`]. What `heddle up` does after its first page is in [`up`], `heddle control` in
//! [`control`], `heddle register` in [`register`].

// They panic when no process reads: `exit::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod cli;
mod commands;
mod control;
mod life;
mod order;
mod output;
mod register;
mod registry;
mod report;
mod settings;
mod up;

use std::process::ExitCode;

use clap::Parser;
use heddle_node::command;
use heddle_node::exit::ended;

use cli::{Cli, Command};

/// What its messages begin with.
const PROGRAM: &str = "heddle";

fn main() -> ExitCode {
    // clap itself exits with 2 when the command line is wrong.
    let done = match Cli::parse().command {
        // Its exit code may be that of another program.
        Command::Register(args) => return ended(PROGRAM, commands::register::run(*args)),
        Command::Up(args) => commands::up::run(*args),
        Command::Node(args) => command::run(*args),
        Command::Enrol(args) => commands::enrol::run(args),
        Command::Release(args) => commands::release::run(args),
        Command::Pods(args) => commands::pods::run(args),
        Command::Uninstall(args) => commands::uninstall::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Control(args) => commands::control::run(*args),
        Command::Token(args) => commands::token::run(args),
        Command::Root(args) => commands::root::run(args),
        Command::Deny(args) => commands::deny::run(args),
        Command::Site(args) => commands::site::run(args),
        Command::Validate(args) => commands::validate::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Config(args) => commands::config::run(args),
        Command::Completion(args) => commands::completion::run(&args),
        Command::Version => commands::version::run(),
    };
    ended(PROGRAM, done.map(ExitCode::from))
}

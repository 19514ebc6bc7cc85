//! The program of a mesh node and nothing else: `heddle node` without what only other commands need.
//!
//! It has no certificate authority, no reader of manifests and no client of a registry, so that an image for nodes is
//! small and has less that can fail. Operators query it with `heddle`: both programs share the admin socket.

// The print macros panic when no process reads their output: `exit::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

use std::process::ExitCode;

use clap::FromArgMatches;
use heddle_node::command::{self, Args, NodeProgram, PROGRAM};
use heddle_node::exit::ended;

fn main() -> ExitCode {
    let mut program = command::program();
    // clap itself exits with 2 when the command line is wrong.
    let args = Args::from_arg_matches(&program.get_matches_mut());
    let args = args.unwrap_or_else(|error| error.format(&mut program).exit());
    ended(
        PROGRAM,
        command::run(NodeProgram::Alone, args).map(ExitCode::from),
    )
}

//! A node of a mesh and nothing else: what `heddle node` runs, without all that only other commands take.
//!
//! It has neither the certificate authority nor a reader of manifests nor the client of a registry, so that an image for
//! nodes is small and what is not there cannot go wrong. Operators ask it with `heddle`: they share the admin socket.

// They panic when no process reads: `exit::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

use std::process::ExitCode;

use clap::FromArgMatches;
use heddle_node::command::{self, Args, PROGRAM};
use heddle_node::exit::ended;

fn main() -> ExitCode {
    let mut program = command::program();
    // clap itself exits with 2 when the command line is wrong.
    let args = Args::from_arg_matches(&program.get_matches_mut());
    let args = args.unwrap_or_else(|error| error.format(&mut program).exit());
    ended(PROGRAM, command::run(args).map(ExitCode::from))
}

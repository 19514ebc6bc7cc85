//! Demonstrations and experiments for Heddle, beside its peers.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;

/// Demonstrations and experiments for Heddle, beside its peers.
#[derive(Parser)]
#[command(name = "heddle-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Experiments that measure Heddle beside other proxies.
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(command) => bench::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heddle-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

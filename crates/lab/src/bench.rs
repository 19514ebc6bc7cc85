//! Experiments that measure Heddle beside other proxies.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The experiments.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// One proxy of each kind, the same work, the same machine, interleaved.
    Proxy(Proxy),
}

/// What the user may say to `bench proxy`.
#[derive(Args)]
pub(crate) struct Proxy {
    /// Three short rounds of the main cells instead of five of all.
    #[arg(long)]
    quick: bool,
    /// Write the figures to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs one experiment to its report.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Proxy(options) => {
            println!("quick: {}, json: {:?}", options.quick, options.json);
            Ok(())
        }
    }
}

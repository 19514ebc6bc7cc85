//! Demonstrations and experiments for Heddle, beside its peers.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use heddle_bench as bench;
use heddle_lab::lab;

mod demo;

/// Nodes and pods on one machine, demonstrations and experiments for Heddle, beside its peers.
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
    Bench(bench::BenchCommand),
    Demo(demo::DemoOptions),
    #[command(flatten)]
    Lab(lab::commands::LabCommand),
    #[command(flatten)]
    Part(HiddenPart),
}

/// What the lab starts of itself; users do not type these.
#[derive(Subcommand)]
enum HiddenPart {
    /// Offers load to a proxy and prints what came of it.
    #[command(hide = true)]
    Load(bench::Load),
    /// Answers what a proxy forwards.
    #[command(hide = true)]
    Upstream(bench::Upstream),
    /// Provides a service that takes its time, and so many requests at once.
    #[command(hide = true)]
    Provider(bench::Provider),
    /// Asks such a service for each request that it gets, and checks the answer.
    #[command(hide = true)]
    Consumer(bench::Consumer),
    /// Offers calls of gRPC to a proxy and prints what came of them.
    #[command(hide = true)]
    GrpcLoad(bench::GrpcLoad),
    /// Answers calls of gRPC.
    #[command(hide = true)]
    GrpcUpstream,
    /// Forwards calls of gRPC with the crate h2 alone.
    #[command(hide = true)]
    GrpcForward(bench::GrpcForward),
    /// Shakes hands with a node, over and over.
    #[command(hide = true)]
    Handshakes(bench::Handshakes),
    /// Asks a service whatever happens, and prints what came of each request and when.
    #[command(hide = true)]
    Persist(bench::Persist),
    /// Asks a service the same thing again and again, and prints what it answers.
    #[command(hide = true)]
    Ask(demo::Ask),
    /// Becomes a program, held to a core and a control group.
    #[command(hide = true)]
    Confine(bench::Confine),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(command) => bench::run(&command),
        Command::Demo(options) => demo::run(&options),
        Command::Lab(command) => lab::commands::run(&command),
        Command::Part(HiddenPart::Load(options)) => bench::offer_load(&options),
        Command::Part(HiddenPart::Upstream(options)) => bench::serve_upstream(&options),
        Command::Part(HiddenPart::Provider(options)) => bench::serve_provider(&options),
        Command::Part(HiddenPart::Consumer(options)) => bench::consume(&options),
        Command::Part(HiddenPart::GrpcLoad(options)) => bench::offer_calls(&options),
        Command::Part(HiddenPart::GrpcUpstream) => bench::answer_calls(),
        Command::Part(HiddenPart::GrpcForward(options)) => bench::forward_calls(&options),
        Command::Part(HiddenPart::Handshakes(options)) => bench::shake_hands(&options),
        Command::Part(HiddenPart::Persist(options)) => bench::persist(&options),
        Command::Part(HiddenPart::Ask(options)) => demo::ask(&options),
        Command::Part(HiddenPart::Confine(options)) => bench::become_confined(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heddle-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

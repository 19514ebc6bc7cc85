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

/// Processes that the lab and its experiments start; not for users.
#[derive(Subcommand)]
enum HiddenPart {
    /// Sends requests to a proxy at a given load and prints the results.
    #[command(hide = true)]
    Load(bench::Load),
    /// Serves the requests that a proxy forwards.
    #[command(hide = true)]
    Upstream(bench::Upstream),
    /// Serves requests that take a given time, with a concurrency limit.
    #[command(hide = true)]
    Provider(bench::Provider),
    /// Calls such a service for each request that it receives, and checks the response.
    #[command(hide = true)]
    Consumer(bench::Consumer),
    /// Sends gRPC calls to a proxy at a given load and prints the results.
    #[command(hide = true)]
    GrpcLoad(bench::GrpcLoad),
    /// Serves gRPC calls.
    #[command(hide = true)]
    GrpcUpstream,
    /// Forwards gRPC calls with only the crate h2.
    #[command(hide = true)]
    GrpcForward(bench::GrpcForward),
    /// Makes TLS handshakes with a node, over and over.
    #[command(hide = true)]
    Handshakes(bench::Handshakes),
    /// Sends requests to a service, also after failures, and prints the time and outcome of each.
    #[command(hide = true)]
    Persist(bench::Persist),
    /// Does work that comes in bursts, and prints how long each piece took.
    #[command(hide = true)]
    Bursts(bench::Bursts),
    /// Downloads files from a web server, and prints how long each took.
    #[command(hide = true)]
    Downloads(bench::Downloads),
    /// Sends the same request again and again, and prints each response.
    #[command(hide = true)]
    Ask(demo::Ask),
    /// Runs a program on one core and in a control group.
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
        Command::Part(HiddenPart::Bursts(options)) => bench::burst(&options),
        Command::Part(HiddenPart::Downloads(options)) => bench::download(&options),
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

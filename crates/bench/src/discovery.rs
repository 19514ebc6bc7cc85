//! `heddle-lab bench discovery`: what it costs a node to know only what it uses, and what it saves.
//!
//! One node with two workloads that call, and a control plane with many Services that are outside of the mesh, each with a
//! few endpoints. Three scenarios:
//!
//! - *Memory*: the node's memory as the mesh grows, on demand and told everything; after it has called many Services; and
//!   after it has forgotten them.
//! - *First request*: the first request to a Service that the node does not know, and the next one, on one connection.
//! - *Scan*: first requests of one workload while the other one asks for names that do not exist, as fast as it can.
//!
//! `docs/benchmarks.md` explains every choice.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::runner::{Network, RunOptions, Subject};

mod first;
mod memory;
mod stage;

/// Options of `bench discovery`.
#[derive(Args, Clone)]
pub struct Discovery {
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    only: Vec<Scenario>,
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// First requests, alone and beside a scan.
    FirstRequest,
    /// The node's memory.
    Memory,
}

/// How much is measured.
struct Sizes {
    /// Services of the small and of the large mesh.
    small: usize,
    large: usize,
    /// Services that are called and then forgotten.
    touched: usize,
    /// First requests of a round.
    firsts: usize,
    rounds: u32,
    /// How long the node may take to give back memory of what it has forgotten.
    gives_back_in: Duration,
}

impl Sizes {
    fn new(quick: bool) -> Sizes {
        match quick {
            true => Sizes {
                small: 100,
                large: 2_000,
                touched: 500,
                firsts: 100,
                rounds: 1,
                gives_back_in: memory::QUICKLY,
            },
            false => Sizes {
                small: 100,
                large: 10_000,
                touched: 2_000,
                firsts: 500,
                rounds: 3,
                gives_back_in: memory::GIVES_BACK_IN,
            },
        }
    }
}

impl Discovery {
    fn has(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Discovery) -> anyhow::Result<()> {
    let mut runner = options.run.begin("discovery", Network::Own)?;
    let heddle = options.subject.heddle()?;
    let sizes = Sizes::new(runner.quick);
    let findings = &mut runner.findings;
    let mut measured = || {
        if options.has(Scenario::FirstRequest) {
            first::run(&heddle, &sizes, findings)?;
        }
        if options.has(Scenario::Memory) {
            memory::run(&heddle, &sizes, findings)?;
        }
        Ok(())
    };
    let measured = measured();
    runner.end(measured)
}

//! `heddle-lab bench lazy`: stock Envoys that know only what their workloads use, beside Envoys that know the whole mesh.
//!
//! Two bookstores of four pods, each pod with an Envoy; the Envoys of one are lazy, those of the other know everything. Two
//! more bookstores have no Envoys: the proxies of their nodes carry them, one on demand and one that knows everything. Namespaces of
//! load come one after the other: 19 Services each, of five pods that have an Envoy as far as the mesh knows, and do not run.
//! Three scenarios:
//!
//! - *Memory*: of the Envoys and of the nodes' proxies as the mesh grows, at rest and under load, and what they are sent.
//! - *First request*: requests to Services that a lazy Envoy does not know, 100 in a second, the first of which goes through a
//!   gateway.
//! - *Workloads*: a control plane with a thousand lazy Envoys, each of which learns three Services.
//!
//! `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::install;
use super::runner::{Network, RunOptions, Subject};

mod envoy;
mod first;
mod fleet;
mod load;
mod memory;
mod town;

/// Options of `bench lazy`.
#[derive(Args, Clone)]
pub struct Lazy {
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
    /// First requests of a lazy Envoy.
    FirstRequest,
    /// The memory of Envoys and of nodes, and what they are sent.
    Memory,
    /// A control plane with many lazy workloads.
    Workloads,
}

/// The programs.
struct Tools {
    heddle: PathBuf,
    lab: PathBuf,
    envoy: PathBuf,
}

/// How much is measured.
struct Sizes {
    /// Namespaces of load at which everything is read, with the number of pods by which they are called.
    namespaces: &'static [(usize, &'static str)],
    /// Services that are asked for the first time.
    firsts: usize,
    /// Seconds of load, and of changes.
    seconds: u32,
    /// Lazy workloads of one control plane.
    workloads: usize,
}

impl Sizes {
    fn new(quick: bool) -> Sizes {
        match quick {
            true => Sizes {
                namespaces: &[(10, "900")],
                firsts: 10,
                seconds: 3,
                workloads: 100,
            },
            false => Sizes {
                namespaces: &[(10, "900"), (105, "10000")],
                firsts: 300,
                seconds: 10,
                workloads: 1_000,
            },
        }
    }
}

impl Lazy {
    fn has(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}

/// Measures and reports.
///
/// # Errors
/// When not root, something does not start, or a file cannot be written.
pub(super) fn run(options: &Lazy) -> anyhow::Result<()> {
    let tools = Tools {
        heddle: options.subject.heddle()?,
        lab: std::env::current_exe()?,
        envoy: install::peers()?.envoy,
    };
    let mut runner = options.run.begin("lazy", Network::Labs)?;
    let sizes = Sizes::new(runner.quick);
    let findings = &mut runner.findings;
    let mut measured = || {
        if options.has(Scenario::Workloads) {
            fleet::run(&tools.heddle, &sizes, findings)?;
        }
        if !options.has(Scenario::Memory) && !options.has(Scenario::FirstRequest) {
            return Ok(());
        }
        let town = town::Town::up(&tools)?;
        // In this order: the lazy Envoy then uses exactly its three Services.
        if options.has(Scenario::Memory) {
            memory::run(&town, &sizes, findings)?;
        }
        if options.has(Scenario::FirstRequest) {
            first::run(&town, &sizes, findings)?;
        }
        Ok(())
    };
    let measured = measured();
    runner.end(measured)
}

//! `heddle-lab bench node-…`: one proxy for a node beside one for each pod.
//!
//! The experiments of the node-level mesh, in labs where the programs in the pods know of no proxy. Five systems carry
//! the same requests between the same pods; their labs are up at the same time and are loaded one after another, in an
//! order that rotates. `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::Args;

use super::install;
use super::plot;
use super::runner::{Network, RunOptions, Runner, Subject};
use chart::Panel;
use kind::Kind;

mod chart;
mod cost;
mod cpu;
mod crash;
mod figures;
mod group;
mod kind;
mod latency;
mod memory;
mod qos;
mod qps;
mod rounds;
mod scene;
mod sidecar;

pub(super) use cpu::run as cpu;
pub(super) use crash::run as crash;
pub(super) use latency::run as latency;
pub(super) use memory::run as memory;
pub(super) use qos::{
    burst as qos_burst, cpu as qos_cpu, memory as qos_memory, network as qos_network,
    overhead as qos_agent, proxy as qos_proxy,
};
pub(super) use qps::run as qps;

/// The port of the servers.
const PORT: u16 = 80;

/// The programs that labs and proxies run.
struct Tools {
    lab: PathBuf,
    heddle: PathBuf,
    envoy: Option<PathBuf>,
    nft: Option<PathBuf>,
}

/// Options of `bench node-…`.
#[derive(Args, Clone)]
pub struct NodeBenchOptions {
    /// Draw the main figures into FILE.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
    /// Only these systems: direct, node, pod, envoy, shared (one Envoy for the node). Ratios need both sides.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Kind>,
    /// Number of rounds.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
}

/// The state that every experiment has.
struct NodeExperiment<'o> {
    options: &'o NodeBenchOptions,
    kinds: Vec<Kind>,
    tools: Tools,
    runner: Runner,
}

impl NodeExperiment<'_> {
    /// Prepares an experiment with those systems of `all` that the user wants.
    ///
    /// # Errors
    /// When not root, or a peer is missing.
    fn new<'o>(
        options: &'o NodeBenchOptions,
        name: &'static str,
        all: &[Kind],
    ) -> anyhow::Result<NodeExperiment<'o>> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "this experiment makes labs, which needs root (use sudo)"
        );
        let wanted = |kind: &Kind| options.only.is_empty() || options.only.contains(kind);
        let kinds: Vec<Kind> = all.iter().copied().filter(wanted).collect();
        anyhow::ensure!(!kinds.is_empty(), "nothing to measure");
        let lab = std::env::current_exe()?;
        let heddle = options.subject.heddle()?;
        let (mut envoy, mut nft) = (None, None);
        if kinds.iter().any(|kind| kind.has_envoys()) {
            envoy = Some(install::peers()?.envoy);
            nft = install::find("nft");
            anyhow::ensure!(
                nft.is_some(),
                "Envoy needs nft (apt-get install nftables, or --only direct,node,pod)"
            );
        }
        scene::sweep();
        Ok(NodeExperiment {
            options,
            kinds,
            tools: Tools {
                lab,
                heddle,
                envoy,
                nft,
            },
            runner: options.run.begin(name, Network::Labs)?,
        })
    }

    fn rounds(&self, quick: usize, full: usize) -> usize {
        let usual = if self.runner.quick { quick } else { full };
        self.options.rounds.map_or(usual, usize::from)
    }

    /// Prints and writes the results; after an error, those that were found before it.
    fn conclude(self, measured: anyhow::Result<()>, panels: &[Panel]) -> anyhow::Result<()> {
        self.runner.end(measured)?;
        match &self.options.svg {
            Some(file) => plot::write(file, &chart::draw(panels)?, self.options.run.quick),
            None => Ok(()),
        }
    }
}

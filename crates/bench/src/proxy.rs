//! `heddle-lab bench proxy`: what one proxy costs, beside its peers, doing the same work.
//!
//! The proxy under test has core 0 to itself; the load generator and the upstream share core 1. All
//! systems run at once but only one of them is loaded at a time, in an order that rotates, so that each
//! figure of a round has its counterparts seconds away. `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::install::{self, Peers};
use super::machine::Machine;
use super::report::{Cell, Report, Run};
use super::systems::{ProxyKind, System, Traffic};
use super::{plot, table};
use plan::ProxyPlan;

mod experiment;
mod plan;
mod proof;

/// What the user may say to `bench proxy`.
#[derive(Args, Clone)]
pub struct Proxy {
    /// Connections that are passed on as bytes, without nginx.
    #[arg(long)]
    opaque: bool,
    #[command(flatten)]
    comparison: Comparison,
}

/// What the user may say to every experiment that measures Heddle beside its peers.
#[derive(Args, Clone)]
pub(crate) struct Comparison {
    #[command(flatten)]
    extent: Extent,
    /// Another Heddle to measure beside, such as an older build.
    #[arg(long = "peer", value_name = "NAME=PATH", value_parser = named_path)]
    peers: Vec<(String, PathBuf)>,
    /// The Heddle to measure; the one beside this program unless said.
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
}

/// How much of a comparison is measured, and where its figures go.
#[derive(Args, Clone)]
pub(crate) struct Extent {
    /// Three short rounds of the main cells instead of five of all.
    #[arg(long)]
    quick: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the main figures into FILE.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only these systems (for a closer look; ratios need both sides).
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide = true)]
    only: Vec<String>,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    isolated: bool,
}

/// Reads `NAME=PATH`.
///
/// # Errors
/// When it is not that.
pub(super) fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
    let valid = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !valid {
        return Err(format!("{name:?}: letters, digits, - and _ make a name"));
    }
    Ok((name.to_owned(), PathBuf::from(path)))
}

/// The cell by which proxies are compared first.
pub(super) fn main_cell() -> Cell {
    ProxyPlan::quick().main()
}

/// Measures and reports.
///
/// # Errors
/// When a peer or tool is missing, the machine is too small, or a file cannot be written.
pub(super) fn run(options: &Proxy) -> anyhow::Result<()> {
    let traffic = if options.opaque {
        Traffic::Opaque
    } else {
        Traffic::Http
    };
    compare(&options.comparison, traffic)
}

/// Measures and reports what it costs Heddle and its peers to carry that.
///
/// # Errors
/// When a peer or tool is missing, the machine is too small, a system does not do what the others do, or
/// a file cannot be written.
pub(super) fn compare(options: &Comparison, traffic: Traffic) -> anyhow::Result<()> {
    let mut notes = Vec::new();
    let choose = |peers: &Peers| systems(options, traffic, peers, &mut notes);
    let (machine, systems) = options.extent.prepare(choose)?;
    options.extent.measure(traffic, machine, &systems, notes)
}

impl Extent {
    /// Gets the peers, makes the machine ready, and leaves of the systems those that are wanted.
    ///
    /// # Errors
    /// When a peer or tool is missing, the machine is too small, or no system is left.
    pub(super) fn prepare(
        &self,
        systems: impl FnOnce(&Peers) -> anyhow::Result<Vec<System>>,
    ) -> anyhow::Result<(Machine, Vec<System>)> {
        let peers = install::peers()?;
        let machine = Machine::prepare(self.isolated)?;
        anyhow::ensure!(
            machine.cores >= 2,
            "this experiment needs two cores, one for the proxy alone"
        );
        let mut systems = systems(&peers)?;
        if !self.only.is_empty() {
            systems.retain(|system| self.only.contains(&system.name));
        }
        anyhow::ensure!(!systems.is_empty(), "nothing to measure");
        Ok((machine, systems))
    }

    /// Measures these systems side by side, and reports.
    ///
    /// # Errors
    /// When a system does not start or does not do what the others do, or a file cannot be written.
    pub(super) fn measure(
        &self,
        traffic: Traffic,
        machine: Machine,
        systems: &[System],
        mut notes: Vec<String>,
    ) -> anyhow::Result<()> {
        let plan = if self.quick {
            ProxyPlan::quick()
        } else {
            ProxyPlan::full()
        };
        let plan = plan.carrying(traffic);
        let runs = experiment::run(&plan, systems, &mut notes)?;
        let report = Report::new(machine, systems, &runs, plan.main(), self.quick, notes);
        let report = match traffic {
            Traffic::Http | Traffic::Opaque => report,
            Traffic::MutualTls => report.about("mtls", "mtls"),
            Traffic::Grpc => report.about("grpc", "h2"),
        };
        table::print(&report);
        write_files(self, &report, &runs)
    }
}

fn write_files(options: &Extent, report: &Report, runs: &[Run]) -> anyhow::Result<()> {
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(report)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &options.svg {
        plot::draw(report, file)?;
    }
    let broken = runs.iter().filter(|run| run.problem.is_some()).count();
    if broken > 0 {
        eprintln!(
            "{broken} of {} runs are invalid; their rows say why.",
            runs.len()
        );
    }
    Ok(())
}

fn systems(
    options: &Comparison,
    traffic: Traffic,
    peers: &Peers,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<System>> {
    let mut systems = Vec::new();
    let beside = std::env::current_exe()?.with_file_name("heddle");
    match &options.heddle {
        Some(path) => systems.push(System::new("heddle", ProxyKind::Heddle, path)?),
        None if beside.exists() => systems.push(System::new("heddle", ProxyKind::Heddle, &beside)?),
        None => notes.push(format!(
            "Heddle itself was not measured: there is no {} and no --heddle",
            beside.display()
        )),
    }
    for (name, path) in &options.peers {
        systems.push(System::new(name, ProxyKind::Heddle, path)?);
    }
    systems.push(System::new("envoy", ProxyKind::Envoy, &peers.envoy)?);
    systems.push(System::new("haproxy", ProxyKind::Haproxy, &peers.haproxy)?);
    systems.push(System::new("nginx", ProxyKind::Nginx, &peers.nginx)?);
    let mut names: Vec<&str> = systems.iter().map(|system| system.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    anyhow::ensure!(
        names.len() == systems.len(),
        "two systems have the same name"
    );
    systems.retain(|system| match traffic {
        Traffic::Http | Traffic::Grpc => true,
        Traffic::Opaque => system.kind != ProxyKind::Nginx,
        Traffic::MutualTls => matches!(system.kind, ProxyKind::Heddle | ProxyKind::Envoy),
    });
    Ok(systems)
}

#[cfg(test)]
mod tests;

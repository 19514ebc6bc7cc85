//! `heddle-lab bench proxy`: the cost of one proxy, compared with its peers, under the same load.
//!
//! The proxy under test has core 0 to itself; the load generator and the upstream share core 1. All
//! systems run at once but only one of them is loaded at a time, in an order that rotates, so that each
//! figure of a round has its counterparts seconds away. `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::Args;

use super::install::{self, Peers};
use super::machine::Machine;
use super::report::{Cell, ENVOY_PAIRS, Report, Run};
use super::runner::{Network, RunOptions, Subject};
use super::systems::{ProxyKind, System, Traffic};
use super::{plot, table};
use plan::ProxyPlan;

mod experiment;
mod plan;
mod proof;

/// Options of `bench proxy`.
#[derive(Args, Clone)]
pub struct Proxy {
    /// Measure opaque connections, which proxies forward as bytes.
    #[arg(long)]
    opaque: bool,
    #[command(flatten)]
    comparison: Comparison,
}

/// Options of every experiment that compares Heddle with its peers.
#[derive(Args, Clone)]
pub(crate) struct Comparison {
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    subject: Subject,
    /// Another Heddle to measure for comparison, such as an older build.
    #[arg(long = "peer", value_name = "NAME=PATH", value_parser = named_path)]
    peers: Vec<(String, PathBuf)>,
}

/// How much of a comparison is measured, and where its figures go.
#[derive(Args, Clone)]
pub(crate) struct Extent {
    #[command(flatten)]
    run: RunOptions,
    /// Draw the main figures into FILE.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only these systems (for a closer look; ratios need both sides).
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide = true)]
    only: Vec<String>,
}

/// Reads `NAME=PATH`.
///
/// # Errors
/// When the text has another form.
pub(super) fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
    let valid = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !valid {
        return Err(format!("{name:?}: use only letters, digits, - and _"));
    }
    Ok((name.to_owned(), PathBuf::from(path)))
}

/// The main cell, in which proxies are compared first.
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

/// Measures and reports the cost of this traffic in Heddle and its peers.
///
/// # Errors
/// When a peer or tool is missing, the machine is too small, a system does not do what the others do, or
/// a file cannot be written.
pub(super) fn compare(options: &Comparison, traffic: Traffic) -> anyhow::Result<()> {
    let choose = |peers: &Peers| systems(options, traffic, peers);
    let (machine, systems) = options.extent.prepare(choose)?;
    options.extent.measure(traffic, machine, &systems)
}

impl Extent {
    /// Installs the peers, prepares the machine, and returns those systems that the user wants.
    ///
    /// # Errors
    /// When a peer or tool is missing, the machine is too small, or no system is left.
    pub(super) fn prepare(
        &self,
        systems: impl FnOnce(&Peers) -> anyhow::Result<Vec<System>>,
    ) -> anyhow::Result<(Machine, Vec<System>)> {
        let peers = install::peers()?;
        let machine = self.run.machine(Network::Own)?;
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
    ) -> anyhow::Result<()> {
        let plan = if self.run.quick {
            ProxyPlan::quick()
        } else {
            ProxyPlan::full()
        };
        let plan = plan.carrying(traffic);
        let mut notes = left_out(traffic, systems, &self.only);
        let runs = experiment::run(&plan, systems, &mut notes)?;
        let report = Report::new(machine, systems, &runs, plan.main(), self.run.quick, notes);
        let report = match traffic {
            Traffic::Http | Traffic::Opaque => report,
            Traffic::MutualTls => report.about("mtls", "mtls"),
            Traffic::Grpc => report.about("grpc", "h2"),
        };
        table::print(&report);
        self.run.write_json(&report)?;
        if let Some(file) = &self.svg {
            plot::draw(&report, file)?;
        }
        say_invalid(&runs);
        Ok(())
    }
}

fn say_invalid(runs: &[Run]) {
    let broken = runs.iter().filter(|run| run.problem.is_some()).count();
    if broken > 0 {
        eprintln!(
            "{broken} of {} runs are invalid; their rows say why.",
            runs.len()
        );
    }
}

fn systems(options: &Comparison, traffic: Traffic, peers: &Peers) -> anyhow::Result<Vec<System>> {
    let mut systems = Vec::new();
    let heddle = options.subject.heddle()?;
    systems.push(System::new("heddle", ProxyKind::Heddle, &heddle)?);
    for (name, path) in &options.peers {
        systems.push(System::new(name, ProxyKind::Heddle, path)?);
    }
    if traffic == Traffic::MutualTls {
        // Which of the two is better depends on the figure and on the machine: both are measured.
        let [http1, http2] = ENVOY_PAIRS;
        systems.push(System::new(http1, ProxyKind::Envoy, &peers.envoy)?);
        systems.push(System::new(http2, ProxyKind::Envoy, &peers.envoy)?.over_http2());
    } else {
        systems.push(System::new("envoy", ProxyKind::Envoy, &peers.envoy)?);
    }
    systems.push(System::new("haproxy", ProxyKind::Haproxy, &peers.haproxy)?);
    if traffic != Traffic::Opaque || passes_bytes_on() {
        systems.push(System::new("nginx", ProxyKind::Nginx, &peers.nginx)?);
    }
    let mut names: Vec<&str> = systems.iter().map(|system| system.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    anyhow::ensure!(
        names.len() == systems.len(),
        "two systems have the same name"
    );
    systems.retain(|system| match traffic {
        Traffic::Http | Traffic::Grpc | Traffic::Opaque => true,
        Traffic::MutualTls => matches!(system.kind, ProxyKind::Heddle | ProxyKind::Envoy),
    });
    Ok(systems)
}

/// Whether nginx has its module for opaque connections; the module is installed if it can be.
fn passes_bytes_on() -> bool {
    let found = install::nginx_stream();
    if let Err(reason) = &found {
        eprintln!("nginx is left out: no libnginx-mod-stream: {reason:#}");
    }
    found.is_ok()
}

/// A note if a peer is missing although all were to be measured.
fn left_out(traffic: Traffic, systems: &[System], only: &[String]) -> Vec<String> {
    let is_nginx = |system: &System| system.kind == ProxyKind::Nginx;
    let missing = traffic == Traffic::Opaque && only.is_empty() && !systems.iter().any(is_nginx);
    missing
        .then(|| "nginx was left out: Debian's libnginx-mod-stream is not installed".to_owned())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests;

//! `heddle-lab bench link`: what is between two proxies, and what that costs.
//!
//! ```text
//! load generator ── HTTP ──▶ near proxy ══ one of several ways ══▶ far proxy ── HTTP ──▶ upstream
//! ```
//!
//! Bytes of an exchange, request and response together, below TLS and on the socket; CPU of both proxies
//! together, throughput with half a core for the pair, latency; busy pairs, and pairs that say little.
//! `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::Args;

use super::findings::Findings;
use super::install;
use super::machine::Machine;
use super::proxy::named_path;
use super::sheet::Sheet;
use plan::LinkPlan;
use way::MeasuredPrograms;

mod bytes;
mod plan;
mod rounds;
mod summary;
mod way;

/// What the user may say to `bench link`.
#[derive(Args, Clone)]
pub struct Link {
    /// Two short rounds of four kinds of requests instead of five of eight.
    #[arg(long)]
    quick: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Heddle to measure; the one beside this program unless said.
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
    /// Another Heddle whose links are measured beside, such as an older build.
    #[arg(long = "peer", value_name = "NAME=PATH", value_parser = named_path)]
    peers: Vec<(String, PathBuf)>,
    /// Only these ways: http1-plain, http1-mtls, http2-mtls, link-mtls, envoy (ratios need both sides).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    isolated: bool,
}

/// Measures and reports.
///
/// # Errors
/// When a peer or tool is missing, a pair does not start, or a file cannot be written.
pub(super) fn run(options: &Link) -> anyhow::Result<()> {
    let peers = install::peers()?;
    let machine = Machine::prepare(options.isolated)?;
    anyhow::ensure!(
        machine.cores >= 2,
        "this experiment needs two cores, one for the proxies alone"
    );
    let heddle = match &options.heddle {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("heddle"),
    };
    let plan = if options.quick {
        LinkPlan::quick()
    } else {
        LinkPlan::full()
    };
    let mut findings = Findings::new("link", options.quick, machine);
    let programs = MeasuredPrograms {
        heddle: &heddle,
        envoy: &peers.envoy,
        others: &options.peers,
    };
    let ways = way::find(&programs, &options.only, &mut findings)?;
    let mut sheet = Sheet::default();
    let measured = rounds::run(&plan, &ways, &mut sheet, &mut findings);
    // What was measured before something failed is still worth reading.
    summary::tell(&sheet, &mut findings);
    for (name, _) in &options.peers {
        summary::tell_other(&sheet, name, &mut findings);
    }
    findings.print();
    measured?;
    findings.conclude(options.json.as_deref())
}

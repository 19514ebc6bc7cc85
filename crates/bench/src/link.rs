//! `heddle-lab bench link`: the traffic between two proxies, and its cost.
//!
//! ```text
//! load generator ── HTTP ──▶ near proxy ══ one of several ways ══▶ far proxy ── HTTP ──▶ upstream
//! ```
//!
//! Measured are the bytes of an exchange, request and response together, below TLS and on the socket; CPU of both
//! proxies together; throughput with half a core for the pair; and latency: with busy pairs, and with pairs that have
//! little traffic. `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::Args;

use super::install;
use super::proxy::named_path;
use super::runner::{Network, RunOptions, Subject};
use super::sheet::Sheet;
use plan::LinkPlan;
use way::MeasuredPrograms;

mod bytes;
mod plan;
mod rounds;
mod summary;
mod way;

/// Options of `bench link`.
#[derive(Args, Clone)]
pub struct Link {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
    /// Another Heddle whose links are measured for comparison, such as an older build.
    #[arg(long = "peer", value_name = "NAME=PATH", value_parser = named_path)]
    peers: Vec<(String, PathBuf)>,
    /// Only these ways: http1-plain, http1-mtls, http2-mtls, link-mtls, envoy-http1, envoy-http2 (ratios need both sides).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

/// Measures and reports.
///
/// # Errors
/// When a peer or tool is missing, a pair does not start, or a file cannot be written.
pub(super) fn run(options: &Link) -> anyhow::Result<()> {
    let peers = install::peers()?;
    let mut runner = options.run.begin("link", Network::Own)?;
    let heddle = options.subject.heddle()?;
    let plan = if runner.quick {
        LinkPlan::quick()
    } else {
        LinkPlan::full()
    };
    let findings = &mut runner.findings;
    let programs = MeasuredPrograms {
        heddle: &heddle,
        envoy: &peers.envoy,
        others: &options.peers,
    };
    let ways = way::find(&programs, &options.only, findings)?;
    let mut sheet = Sheet::default();
    let measured = rounds::run(&plan, &ways, &mut sheet, findings);
    summary::tell(&sheet, findings);
    for (name, _) in &options.peers {
        summary::tell_other(&sheet, name, findings);
    }
    runner.end(measured)
}

//! `heddle-lab bench identities`: what identities cost two nodes.
//!
//! Two scenarios. *Memory*: 45 service accounts on one node call 45 on the other, so that each of 2,025 pairs of
//! identities has a link of its own, over a mutual TLS connection; how much more memory each node has then. *Storm*:
//! callers that only make handshakes come to one node, 500 a second; how that affects the traffic that was there
//! before. `docs/benchmarks.md` explains every choice.

use clap::Args;

use super::runner::{Network, RunOptions, Subject};
use super::systems::{ProxyKind, System};

mod memory;
mod storm;

/// Options of `bench identities`.
#[derive(Args, Clone)]
pub struct Identities {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Identities) -> anyhow::Result<()> {
    let mut runner = options.run.begin("identities", Network::Own)?;
    let heddle = System::new("heddle", ProxyKind::Heddle, &options.subject.heddle()?)?;
    let (memory_rounds, storm_rounds) = if runner.quick { (1, 3) } else { (3, 5) };
    let findings = &mut runner.findings;
    let measured = memory::run(&heddle, memory_rounds, findings)
        .and_then(|()| storm::run(&heddle, storm_rounds, findings));
    runner.end(measured)
}

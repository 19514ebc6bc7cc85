//! `heddle-lab bench identities`: what identities cost two nodes.
//!
//! Two scenarios. *Memory*: 45 service accounts on one node call 45 on the other, so that 2,025 pairs of
//! identities have a mutual TLS connection each; how much more each node holds then. *Storm*: callers
//! that do nothing but shake hands come to one node, 500 a second; what those notice that were
//! there before. `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::Args;

use super::findings::Findings;
use super::machine::Machine;
use super::systems::{ProxyKind, System};

mod memory;
mod storm;

/// What the user may say to `bench identities`.
#[derive(Args, Clone)]
pub struct Identities {
    /// One round of memory and three of the storm instead of three and five.
    #[arg(long)]
    quick: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Heddle to measure; the one beside this program unless said.
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    isolated: bool,
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Identities) -> anyhow::Result<()> {
    let machine = Machine::prepare(options.isolated)?;
    anyhow::ensure!(
        machine.cores >= 2,
        "this experiment needs two cores, one for the nodes alone"
    );
    let heddle = match &options.heddle {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("heddle"),
    };
    let heddle = System::new("heddle", ProxyKind::Heddle, &heddle)?;
    let (memory_rounds, storm_rounds) = if options.quick { (1, 3) } else { (3, 5) };
    let mut findings = Findings::new("identities", options.quick, machine);
    let measured = memory::run(&heddle, memory_rounds, &mut findings)
        .and_then(|()| storm::run(&heddle, storm_rounds, &mut findings));
    // What was measured before something failed is still worth reading.
    findings.print();
    measured?;
    findings.conclude(options.json.as_deref())
}

//! `heddle-lab bench elastic-between-nodes`: a second Worker of a node that others call.
//!
//! ```text
//! load generator ── 64 connections ──▶ near node, one Worker ══ links, or HTTP/1.1 ══▶ far node, one Worker or two ──▶ upstream
//! ```
//!
//! The far node begins with one Worker, and everything that comes from the near one is with that. How soon a second
//! one carries its part, how even the two are, and what both carry over links beside what they carry over connections
//! of HTTP/1.1, which come and go. Once with twenty callers, once with one. `docs/benchmarks.md` explains every choice.

mod figures;
mod mesh;
mod sharing;

use clap::Args;

use super::child::Confinement;
use super::runner::{Network, RunOptions, Subject};
use super::systems::{ProxyKind, System};
use super::upstream::Serving;
use figures::{BetweenRun, BetweenRuns};
use mesh::BetweenStage;

/// What the user may say to `bench elastic-between-nodes`.
#[derive(Args, Clone)]
pub struct Between {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
}

/// What there is between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Transport {
    Link,
    Http1,
}

impl Transport {
    const ALL: [Transport; 2] = [Transport::Link, Transport::Http1];

    /// As the settings call it.
    fn name(self) -> &'static str {
        match self {
            Transport::Link => "link",
            Transport::Http1 => "http1",
        }
    }
}

/// Callers that share the connections of the load generator.
const CALLERS: [u32; 2] = [20, 1];

/// How long, and how often. Times are in seconds.
struct BetweenPlan {
    rounds: u32,
    /// Until the Workers have found together.
    warm_up_s: f64,
    window_s: f64,
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Between) -> anyhow::Result<()> {
    let mut runner = options.run.begin("elastic-between-nodes", Network::Own)?;
    let heddle = options.subject.heddle()?;
    let plan = match runner.quick {
        true => BetweenPlan {
            rounds: 2,
            warm_up_s: 4.0,
            window_s: 3.0,
        },
        false => BetweenPlan {
            rounds: 5,
            warm_up_s: 5.0,
            window_s: 6.0,
        },
    };
    let mut figures = BetweenRuns::default();
    let measured = measure(&heddle, &plan, &mut figures);
    figures.tell(&plan, &mut runner.findings);
    runner.end(measured)
}

fn measure(
    heddle: &std::path::Path,
    plan: &BetweenPlan,
    figures: &mut BetweenRuns,
) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
    let stage = BetweenStage {
        heddle: System::new("heddle", ProxyKind::Heddle, heddle)?,
        upstream: Serving::start(1, &Confinement::default(), dir.path())?,
        dir,
    };
    for round in 0..plan.rounds {
        for callers in CALLERS {
            let mut ways = Transport::ALL;
            // Who goes first alternates.
            ways.rotate_left(round as usize % Transport::ALL.len());
            for way in ways {
                eprintln!(
                    "round {} of {}: {callers} callers, {}",
                    round + 1,
                    plan.rounds,
                    way.name()
                );
                let (outcome, times) = stage.run(way, callers, plan)?;
                let found = BetweenRun::of(&outcome, times);
                figures.add(callers, way, found);
            }
        }
    }
    Ok(())
}

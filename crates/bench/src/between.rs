//! `heddle-lab bench elastic-between-nodes`: the second Worker of a node that other nodes call.
//!
//! ```text
//! load generator ── 64 connections ──▶ near node, one Worker ══ links, or HTTP/1.1 ══▶ far node, one Worker or two ──▶ upstream
//! ```
//!
//! The far node begins with one Worker, which gets all traffic of the near node. Measured are how soon a second Worker
//! carries its share, how evenly the two work, and what both carry over links compared with HTTP/1.1 connections, which
//! come and go. Once with twenty callers, once with one. `docs/benchmarks.md` explains every choice.

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

/// Options of `bench elastic-between-nodes`.
#[derive(Args, Clone)]
pub struct Between {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Transport {
    Link,
    Http1,
}

impl Transport {
    const ALL: [Transport; 2] = [Transport::Link, Transport::Http1];

    /// The name in the settings, `proxy.between_nodes`.
    fn name(self) -> &'static str {
        match self {
            Transport::Link => "link",
            Transport::Http1 => "http1",
        }
    }
}

/// Numbers of callers that are measured; they share the connections of the load generator.
const CALLERS: [u32; 2] = [20, 1];

struct BetweenPlan {
    rounds: u32,
    /// Time for the Workers to share the work before the window begins.
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
            // The transport that goes first alternates.
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

//! A node's memory as the mesh grows, and after it has forgotten what it had called.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;

use super::Sizes;
use super::stage::{CALLER, ENDPOINTS, Mode, Stage, service};
use crate::findings::{Findings, shown};
use crate::statistics::Spread;

/// How long memory may settle before it is read.
const SETTLES_IN: Duration = Duration::from_secs(4);
/// Seconds after which a node forgets that is to forget.
const FORGET_AFTER_S: u32 = 10;
/// The timeout until everything is forgotten.
const PATIENCE: Duration = Duration::from_secs(90);
/// How much more than before may be left, in MiB.
const LEFT_MIB: f64 = 2.0;
/// How long the proxy may take to give memory back: metric series that nothing uses are kept for ten minutes.
pub(super) const GIVES_BACK_IN: Duration = Duration::from_secs(14 * 60);
/// The same of a quick run.
pub(super) const QUICKLY: Duration = Duration::from_secs(100);

pub(super) fn run(heddle: &Path, sizes: &Sizes, findings: &mut Findings) -> anyhow::Result<()> {
    let Sizes {
        small,
        large,
        touched,
        ..
    } = *sizes;
    findings.say(format!(
        "\nMemory: a node of a mesh of {small} and of {large} services with {ENDPOINTS} endpoints each"
    ));
    // Most of a round is waiting for what is forgotten, which is one waiting for all rounds.
    let all: Vec<Held> = thread::scope(|scope| {
        let mut rounds = Vec::new();
        for round in 0..sizes.rounds {
            eprintln!("memory: round {} of {}", round + 1, sizes.rounds);
            let (stage, held) = touch(heddle, sizes)?;
            rounds.push(scope.spawn(move || forget(&stage, held, sizes.gives_back_in)));
        }
        let ended = rounds.into_iter().map(thread::ScopedJoinHandle::join);
        let held = ended.map(|round| round.unwrap_or_else(|_| bail!("a round has panicked")));
        held.collect::<anyhow::Result<_>>()
    })
    .context("memory")?;
    let spread = |pick: Figure| Spread::of(&all.iter().map(pick).collect::<Vec<_>>());
    let lines: [(&str, Figure); 6] = [
        ("node_memory_mib_small", |held| held.small),
        ("node_memory_mib_large", |held| held.large),
        ("node_memory_mib_large_eager", |held| held.eager),
        ("node_memory_mib_used", |held| held.used),
        ("node_memory_mib_touched", |held| held.touched),
        ("node_memory_mib_forgotten", |held| held.forgotten),
    ];
    for (name, pick) in lines {
        let spread = spread(pick);
        let median = spread.as_ref().map(|spread| spread.median);
        findings.say(format!("  {name:30} {:>7} MiB private", shown(median, 2)));
        findings.value(name, spread);
    }
    findings.say(format!(
        "  ({touched} services are called, and then forgotten)"
    ));
    findings.value(
        "node_memory_growth_mib",
        spread(|held| held.large - held.small),
    );
    findings.value(
        "node_memory_kept_mib",
        spread(|held| held.forgotten - held.large),
    );
    findings.value(
        "node_memory_kept_since_used_mib",
        spread(|held| held.forgotten - held.used),
    );
    findings.value("node_memory_given_back_s", spread(|held| held.after_s));
    findings.rows.push(json!({
        "scenario": "memory",
        "services": [small, large],
        "touched": touched,
        "rounds": all.iter().map(|held| json!({
            "small": held.small, "large": held.large, "eager": held.eager,
            "used": held.used, "touched": held.touched, "forgotten": held.forgotten, "after_s": held.after_s,
        })).collect::<Vec<_>>(),
    }));
    Ok(())
}

/// Takes one figure of a round.
type Figure = fn(&Held) -> f64;

/// Private memory in MiB.
struct Held {
    small: f64,
    large: f64,
    eager: f64,
    /// After one service was called and forgotten: what serves calls is in memory from then on.
    used: f64,
    touched: f64,
    forgotten: f64,
    /// Seconds from when everything was forgotten.
    after_s: f64,
}

/// What a node holds as the mesh grows, and when it has called many Services.
fn touch(heddle: &Path, sizes: &Sizes) -> anyhow::Result<(Stage, Held)> {
    let on_demand = Mode::OnDemand {
        forget_after_s: FORGET_AFTER_S,
    };
    let small = settled(&Stage::new(heddle, sizes.small, on_demand)?)?;
    let eager = settled(&Stage::new(heddle, sizes.large, Mode::Eager)?)?;
    let stage = Stage::new(heddle, sizes.large, on_demand)?;
    let large = settled(&stage)?;
    let client = stage.connect(CALLER)?;
    let call = |number: usize| {
        let status = client.get(&service(number))?;
        ensure!(status == 200, "{} answers {status}", service(number));
        Ok(())
    };
    call(sizes.touched)?;
    until_forgotten(&stage)?;
    let used = settled(&stage)?;
    for number in 0..sizes.touched {
        call(number)?;
    }
    let touched = mib(&stage)?;
    let held = Held {
        small,
        large,
        eager,
        used,
        touched,
        forgotten: touched,
        after_s: 0.0,
    };
    Ok((stage, held))
}

/// What is left when all is forgotten.
fn forget(stage: &Stage, mut held: Held, patience: Duration) -> anyhow::Result<Held> {
    until_forgotten(stage)?;
    let began = Instant::now();
    let mut told = None;
    loop {
        held.forgotten = mib(stage)?;
        held.after_s = began.elapsed().as_secs_f64();
        if held.forgotten <= held.large + LEFT_MIB || began.elapsed() >= patience {
            return Ok(held);
        }
        let minutes = began.elapsed().as_secs() / 60;
        if told.replace(minutes) != Some(minutes) {
            eprintln!(
                "{:.1} MiB are left {minutes} min after everything is forgotten",
                held.forgotten
            );
        }
        thread::park_timeout(Duration::from_secs(5));
    }
}

fn until_forgotten(stage: &Stage) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while stage.status()?["config"]["services"] != 0 {
        ensure!(Instant::now() < end, "not everything is forgotten");
        thread::park_timeout(Duration::from_millis(200));
    }
    Ok(())
}

fn settled(stage: &Stage) -> anyhow::Result<f64> {
    thread::park_timeout(SETTLES_IN);
    mib(stage)
}

fn mib(stage: &Stage) -> anyhow::Result<f64> {
    Ok(stage.memory()?.private_kib as f64 / 1024.0)
}

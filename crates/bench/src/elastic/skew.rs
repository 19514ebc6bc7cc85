//! All busy connections begin on one of two Workers.

use std::collections::BTreeMap;

use serde_json::json;

use super::stage::ElasticStage;
use crate::findings::{Findings, failures, shown};
use crate::load::Outcome;
use crate::statistics::{self, Spread};

/// What Heddle may use, so that load generator and upstream have their share of two cores.
const HELD_TO_CORES: f64 = 0.8;
/// The part of what it can do under that quota that is offered.
const OFFERED_SHARE: f64 = 0.7;

/// How connections are placed, and whether they may move.
struct Case {
    name: &'static str,
    steal: bool,
    /// Every second connection is idle, and those are all on one Worker.
    skewed: bool,
}

const CASES: [Case; 3] = [
    Case {
        name: "placed evenly",
        steal: false,
        skewed: false,
    },
    Case {
        name: "skewed, stealing",
        steal: true,
        skewed: true,
    },
    Case {
        name: "skewed, no stealing",
        steal: false,
        skewed: true,
    },
];

pub(super) fn run(
    stage: &ElasticStage,
    rounds: u32,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let group = match &stage.group {
        Ok(group) => group,
        Err(reason) => {
            findings.problem(format!("Skew was not measured: {reason}"));
            return Ok(());
        }
    };
    group.hold(Some(HELD_TO_CORES))?;
    let heddle = stage.heddle("min: 2, max: 2, steal: false")?;
    let best = stage.measure(&heddle, &["--connections", "64", "--seconds", "3"], 3.0)?;
    drop(heddle);
    let rate = best.requests as f64 / best.seconds * OFFERED_SHARE;
    let mut found: BTreeMap<&str, Vec<(f64, Outcome)>> = BTreeMap::new();
    for round in 0..rounds {
        eprintln!("skew: round {} of {rounds}", round + 1);
        for case in &CASES {
            let heddle = stage.heddle(&format!("min: 2, max: 2, steal: {}", case.steal))?;
            let (connections, every) = if case.skewed {
                ("128", "2")
            } else {
                ("64", "1")
            };
            let rate = rate.to_string();
            let outcome = stage.measure(
                &heddle,
                &[
                    "--connections",
                    connections,
                    "--active-every",
                    every,
                    "--rate",
                    &rate,
                    "--warm-up",
                    "2",
                    "--seconds",
                    "4",
                ],
                6.0,
            )?;
            found
                .entry(case.name)
                .or_default()
                .push((ratio(&outcome), outcome));
        }
    }
    group.hold(None)?;
    findings.say(format!(
        "\nSkew: 64 busy connections, two workers held to {HELD_TO_CORES} cores, {rate:.0} requests/s\n  \
         (70 % of their best); after two seconds; each figure is the median of {rounds} rounds"
    ));
    for case in &CASES {
        let all = &found[case.name];
        let median = |pick: fn(&(f64, Outcome)) -> f64| {
            statistics::median(&all.iter().map(pick).collect::<Vec<_>>())
        };
        findings.say(format!(
            "  {:20} busiest/least busy {:>8}   p50 {:>6} µs   p99 {:>7} µs   {}",
            case.name,
            shown(median(|(ratio, _)| *ratio), 2),
            shown(median(|(_, outcome)| outcome.p50_us), 0),
            shown(median(|(_, outcome)| outcome.p99_us), 0),
            failures(all.iter().flat_map(|(_, outcome)| &outcome.errors)),
        ));
        findings.rows.push(json!({
            "scenario": "skew",
            "case": case.name,
            "rounds": all.iter().map(|(ratio, outcome)| json!({
                "busy_max_vs_min": ratio, "p50_us": outcome.p50_us, "p99_us": outcome.p99_us,
                "requests": outcome.requests, "errors": outcome.errors, "threads": outcome.threads,
            })).collect::<Vec<_>>(),
        }));
    }
    let p99 = |case: &str| -> Vec<Option<f64>> {
        found[case].iter().map(|(_, o)| Some(o.p99_us)).collect()
    };
    let p99 = statistics::ratio(&p99("skewed, stealing"), &p99("placed evenly"));
    if let Some(p99) = &p99 {
        // Not the ratio of the two medians above: the machine drifts between rounds.
        findings.say(format!(
            "  p99 skewed with stealing, in that placed evenly: {:.2} in the middle round, {:.2} to {:.2}",
            p99.median, p99.min, p99.max
        ));
    }
    let ratios: Vec<f64> = found["skewed, stealing"].iter().map(|(r, _)| *r).collect();
    findings.ratio("busy_max_vs_min", Spread::of(&ratios));
    findings.ratio("skew_p99_vs_even", p99);
    Ok(())
}

/// CPU time of the busiest Worker in that of the least busy one.
fn ratio(outcome: &Outcome) -> f64 {
    let workers = outcome.threads.iter();
    let workers = workers.filter(|(name, _)| name.starts_with("worker-"));
    let (mut most, mut least) = (0, u64::MAX);
    for (_, ns) in workers {
        most = most.max(*ns);
        least = least.min(*ns);
    }
    most as f64 / least.max(1) as f64
}

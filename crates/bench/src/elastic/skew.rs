//! All busy connections begin on one of two Workers.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::json;

use super::stage::ElasticStage;
use crate::findings::{Findings, shown};
use crate::load::Outcome;
use crate::statistics::{self, Spread};

/// Heddle's CPU quota, which leaves load generator and upstream their share of two cores.
const HELD_TO_CORES: f64 = 0.8;
/// The offered rate, as a fraction of what Heddle carries under that quota.
const OFFERED_SHARE: f64 = 0.7;

/// The least ratio of the Workers' CPU time without stealing. Below it the busy connections did not begin on one
/// Worker, so that stealing had nothing to even out.
const SKEWED_FROM: f64 = 3.0;

/// How connections are placed, and whether they may move.
struct Case {
    name: &'static str,
    steal: bool,
    /// Every second connection is idle: all idle ones are on one Worker, all busy ones on the other.
    skewed: bool,
}

const EVEN: &str = "placed evenly";
const STEALING: &str = "skewed, stealing";
const NO_STEALING: &str = "skewed, no stealing";

const CASES: [Case; 3] = [
    Case {
        name: EVEN,
        steal: false,
        skewed: false,
    },
    Case {
        name: STEALING,
        steal: true,
        skewed: true,
    },
    Case {
        name: NO_STEALING,
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
    best.check(None)
        .context("skew, as fast as it goes with both workers")?;
    let rate = best.per_s() * OFFERED_SHARE;
    let mut found = SkewRuns::default();
    for round in 0..rounds {
        eprintln!("skew: round {} of {rounds}", round + 1);
        // The order rotates from round to round, so that drift of the machine affects all alike.
        for turn in 0..CASES.len() {
            let case = &CASES[(round as usize + turn) % CASES.len()];
            let outcome = load(stage, case, rate)?;
            let run = match outcome.check(Some(rate)) {
                Ok(()) => Some(outcome),
                Err(why) => {
                    findings.problem(format!(
                        "Skew: {}, round {}: left out: {why:#}",
                        case.name,
                        round + 1
                    ));
                    None
                }
            };
            found.0.entry(case.name).or_default().push(run);
        }
    }
    group.hold(None)?;
    findings.say(format!(
        "\nSkew: 64 busy connections, two workers held to {HELD_TO_CORES} cores, {rate:.0} requests/s\n  \
         (70 % of their best); after two seconds; each figure is the median of {rounds} rounds"
    ));
    found.tell(findings);
    Ok(())
}

/// Measures one window with a newly started Heddle.
fn load(stage: &ElasticStage, case: &Case, rate: f64) -> anyhow::Result<Outcome> {
    let heddle = stage.heddle(&format!("min: 2, max: 2, steal: {}", case.steal))?;
    let (connections, every) = match case.skewed {
        true => ("128", "2"),
        false => ("64", "1"),
    };
    let rate = rate.to_string();
    let placed = ["--connections", connections, "--active-every", every];
    let paced = ["--rate", &rate, "--warm-up", "2", "--seconds", "4"];
    stage.measure(&heddle, &[&placed[..], &paced[..]].concat(), 6.0)
}

/// All runs by case, in the order of rounds; `None` for a run that does not count.
#[derive(Debug, Default)]
struct SkewRuns(BTreeMap<&'static str, Vec<Option<Outcome>>>);

impl SkewRuns {
    /// A figure of each round.
    fn figures(&self, case: &str, pick: fn(&Outcome) -> f64) -> Vec<Option<f64>> {
        let all = self.0.get(case).map_or(&[][..], Vec::as_slice);
        all.iter().map(|run| run.as_ref().map(pick)).collect()
    }

    fn spread(&self, case: &str, pick: fn(&Outcome) -> f64) -> Option<Spread> {
        let known: Vec<f64> = self.figures(case, pick).into_iter().flatten().collect();
        Spread::of(&known)
    }

    fn tell(&self, findings: &mut Findings) {
        for case in &CASES {
            let median = |pick| self.spread(case.name, pick).map(|spread| spread.median);
            findings.say(format!(
                "  {:20} busiest/least busy {:>8}   p50 {:>6} µs   p99 {:>7} µs",
                case.name,
                shown(median(ratio), 2),
                shown(median(|outcome| outcome.p50_us), 0),
                shown(median(|outcome| outcome.p99_us), 0),
            ));
            let all = self.0.get(case.name).into_iter().flatten();
            let row = |run: &Option<Outcome>| {
                run.as_ref().map(|outcome| {
                    json!({
                        "busy_max_vs_min": ratio(outcome), "p50_us": outcome.p50_us, "p99_us": outcome.p99_us,
                        "requests": outcome.requests, "threads": outcome.threads,
                    })
                })
            };
            findings.rows.push(json!({
                "scenario": "skew",
                "case": case.name,
                "rounds": all.map(row).collect::<Vec<_>>(),
            }));
        }
        let p99 = |case: &str| self.figures(case, |outcome| outcome.p99_us);
        let p99 = statistics::ratio(&p99(STEALING), &p99(EVEN));
        if let Some(p99) = &p99 {
            // The middle one of the rounds' ratios, not the ratio of the two medians above: the machine drifts between
            // rounds.
            findings.say(format!(
                "  p99 skewed with stealing, divided by that placed evenly: {:.2} in the middle round, {:.2} to {:.2}",
                p99.median, p99.min, p99.max
            ));
        }
        let no_stealing = self.spread(NO_STEALING, ratio);
        match &no_stealing {
            Some(spread) if spread.min >= SKEWED_FROM => {}
            Some(spread) => findings.invalid(format!(
                "busy connections did not begin on one worker: without stealing the busiest did only {:.2} times \
                 what the other did, {SKEWED_FROM} is the least",
                spread.min
            )),
            None => findings.invalid("no round of skew without stealing counts"),
        }
        findings.ratio("busy_max_vs_min", self.spread(STEALING, ratio));
        findings.value("busy_max_vs_min_no_stealing", no_stealing);
        findings.ratio("skew_p99_vs_even", p99);
    }
}

/// CPU time of the busiest Worker divided by that of the least busy one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// The findings of rounds in which the Workers of each case used these nanoseconds of CPU time.
    fn told(no_stealing: &[Option<[u64; 2]>]) -> serde_json::Value {
        let run = |used: &[u64; 2]| Outcome {
            p99_us: 100.0,
            threads: BTreeMap::from([
                ("worker-0".to_owned(), used[0]),
                ("worker-1".to_owned(), used[1]),
                ("manager".to_owned(), 1),
            ]),
            ..Outcome::default()
        };
        let runs = |used: &[Option<[u64; 2]>]| -> Vec<Option<Outcome>> {
            used.iter().map(|used| used.as_ref().map(run)).collect()
        };
        let mut found = SkewRuns::default();
        found.0.insert(EVEN, runs(&[Some([50, 50])]));
        found.0.insert(STEALING, runs(&[Some([60, 40])]));
        found.0.insert(NO_STEALING, runs(no_stealing));
        let mut findings = Findings::new("test", false, Machine::default());
        found.tell(&mut findings);
        serde_json::to_value(&findings).expect("findings")
    }

    #[test]
    fn the_skew_is_a_figure_and_without_it_nothing_counts() {
        let all = told(&[Some([90, 10]), None, Some([80, 20])]);
        assert_eq!(all["values"]["busy_max_vs_min_no_stealing"], 6.5);
        assert_eq!(all["ratios"]["busy_max_vs_min"], 1.5);
        assert_eq!(all["ratios"]["skew_p99_vs_even"], 1.0);
        assert_eq!(all["invalid"], json!([]));
        let one_was_even = told(&[Some([90, 10]), Some([50, 50]), Some([90, 10])]);
        assert_eq!(one_was_even["invalid"].as_array().map(Vec::len), Some(1));
        let none = told(&[None, None]);
        assert_eq!(none["invalid"].as_array().map(Vec::len), Some(1));
    }
}

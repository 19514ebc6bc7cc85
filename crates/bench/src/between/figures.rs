//! From runs to figures: medians, and ratios within rounds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use super::sharing::Times;
use super::{BetweenPlan, CALLERS, Transport};
use crate::findings::{Findings, failures, shown};
use crate::load::Outcome;
use crate::statistics::{self, Spread};

/// The figures of one run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct BetweenRun {
    qps: f64,
    p99_ms: f64,
    /// CPU time of each Worker of the far node, as a fraction of the window.
    workers: Vec<f64>,
    grown_s: Option<f64>,
    shared_s: Option<f64>,
    errors: BTreeMap<String, u64>,
}

impl BetweenRun {
    pub(super) fn of(outcome: &Outcome, times: Times) -> BetweenRun {
        let window_ns = outcome.seconds * 1e9;
        let threads = outcome.threads.iter();
        let workers = threads.filter(|(name, _)| name.starts_with("worker-"));
        BetweenRun {
            qps: outcome.per_s(),
            p99_ms: outcome.p99_us / 1e3,
            workers: workers.map(|(_, ns)| *ns as f64 / window_ns).collect(),
            grown_s: times.grown_s,
            shared_s: times.shared_s,
            errors: outcome.errors.clone(),
        }
    }

    /// CPU time of the busiest Worker divided by that of the least busy one; `None` with fewer than two Workers.
    fn max_vs_min(&self) -> Option<f64> {
        let most = self.workers.iter().copied().reduce(f64::max)?;
        let least = self.workers.iter().copied().reduce(f64::min)?;
        (self.workers.len() > 1).then(|| most / least.max(0.001))
    }
}

/// All runs by number of callers and transport, in the order of rounds.
#[derive(Debug, Default)]
pub(super) struct BetweenRuns(BTreeMap<(u32, Transport), Vec<BetweenRun>>);

/// The names of the figures for one number of callers.
struct CallerFigureNames {
    busy: &'static str,
    busy_http1: &'static str,
    qps: &'static str,
    seconds: &'static str,
    unshared: &'static str,
    failed: &'static str,
    failed_http1: &'static str,
}

const OF_MANY: CallerFigureNames = CallerFigureNames {
    busy: "busy_max_vs_min",
    busy_http1: "http1_busy_max_vs_min",
    qps: "qps_two_workers_vs_http1",
    seconds: "seconds_to_share",
    unshared: "not_shared",
    failed: "failed",
    failed_http1: "http1_failed",
};

const OF_ONE: CallerFigureNames = CallerFigureNames {
    busy: "busy_max_vs_min_one_caller",
    busy_http1: "http1_busy_max_vs_min_one_caller",
    qps: "qps_two_workers_vs_http1_one_caller",
    seconds: "seconds_to_share_one_caller",
    unshared: "not_shared_one_caller",
    failed: "failed_one_caller",
    failed_http1: "http1_failed_one_caller",
};

impl BetweenRuns {
    pub(super) fn add(&mut self, callers: u32, way: Transport, found: BetweenRun) {
        self.0.entry((callers, way)).or_default().push(found);
    }

    /// Reports all figures.
    pub(super) fn tell(&self, plan: &BetweenPlan, findings: &mut Findings) {
        findings.say(format!(
            "\nA node with one worker or two, called by another over 64 connections as fast as it goes, {} rounds;\n  \
             figures are medians, workers' processor time of {} s after {} s",
            plan.rounds, plan.window_s, plan.warm_up_s
        ));
        for callers in CALLERS {
            let names = if callers == 1 { OF_ONE } else { OF_MANY };
            for way in Transport::ALL {
                self.tell_of(callers, way, findings);
            }
            let of = |way| self.0.get(&(callers, way)).map_or(&[][..], Vec::as_slice);
            let (links, http1) = (of(Transport::Link), of(Transport::Http1));
            let qps =
                |all: &[BetweenRun]| all.iter().map(|found| Some(found.qps)).collect::<Vec<_>>();
            let ratio = statistics::ratio(&qps(links), &qps(http1));
            findings.ratio(names.busy, spread(links, BetweenRun::max_vs_min));
            findings.ratio(names.busy_http1, spread(http1, BetweenRun::max_vs_min));
            findings.ratio(names.qps, ratio);
            findings.value(names.seconds, spread(links, |found| found.shared_s));
            let unshared = links
                .iter()
                .filter(|found| found.shared_s.is_none())
                .count();
            findings.value(names.unshared, Some(unshared as f64));
            findings.value(names.failed, Some(failed(links) as f64));
            findings.value(names.failed_http1, Some(failed(http1) as f64));
            for (way, all) in [(Transport::Link, links), (Transport::Http1, http1)] {
                for why in spoiled(way, all) {
                    findings.invalid(format!("{callers} callers, {}: {why}", way.name()));
                }
            }
        }
    }

    fn tell_of(&self, callers: u32, way: Transport, findings: &mut Findings) {
        let Some(all) = self.0.get(&(callers, way)) else {
            return;
        };
        let part = |one: usize| median(all, |found| Some(100.0 * found.workers.get(one)?));
        findings.say(format!(
            "  {callers:2} callers, {:5} {:>6} requests/s   p99 {:>6} ms   workers {:>3} and {:>3} %   second after {:>5} s, shared after {:>5} s   {}",
            way.name(),
            shown(median(all, |found| Some(found.qps)), 0),
            shown(median(all, |found| Some(found.p99_ms)), 1),
            shown(part(0), 0),
            shown(part(1), 0),
            shown(median(all, |found| found.grown_s), 2),
            shown(median(all, |found| found.shared_s), 2),
            failures(all.iter().flat_map(|found| &found.errors)),
        ));
        findings.rows.push(json!({
            "scenario": "elastic-between-nodes",
            "callers": callers,
            "way": way.name(),
            "rounds": all,
        }));
    }
}

fn failed(all: &[BetweenRun]) -> u64 {
    all.iter().flat_map(|found| found.errors.values()).sum()
}

/// Why these runs do not count; empty if they do. A run without a second Worker has no figure of how even two are, and
/// one in which links never shared the work has no time: leaving them out would make the figures better than what was
/// measured.
fn spoiled(way: Transport, all: &[BetweenRun]) -> Vec<String> {
    let runs = |what: fn(&BetweenRun) -> bool| all.iter().filter(|found| what(found)).count();
    let mut why = Vec::new();
    let mut unless_none = |count: usize, what: &str| {
        if count > 0 {
            why.push(format!("{count} of {} runs {what}", all.len()));
        }
    };
    unless_none(runs(|found| !found.errors.is_empty()), "had failures");
    unless_none(
        runs(|found| found.workers.len() < 2),
        "had no second worker",
    );
    if way == Transport::Link {
        unless_none(
            runs(|found| found.shared_s.is_none()),
            "never shared the work",
        );
    }
    why
}

/// The spread over the runs that have the figure.
fn spread(all: &[BetweenRun], pick: impl Fn(&BetweenRun) -> Option<f64>) -> Option<Spread> {
    Spread::of(&all.iter().filter_map(pick).collect::<Vec<_>>())
}

fn median(all: &[BetweenRun], pick: impl Fn(&BetweenRun) -> Option<f64>) -> Option<f64> {
    spread(all, pick).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(workers: &[f64]) -> BetweenRun {
        BetweenRun {
            qps: 1.0,
            p99_ms: 1.0,
            workers: workers.to_vec(),
            grown_s: None,
            shared_s: None,
            errors: BTreeMap::new(),
        }
    }

    #[test]
    fn two_workers_are_compared_and_one_alone_with_none() {
        assert_eq!(found(&[0.6, 0.3]).max_vs_min(), Some(2.0));
        assert_eq!(found(&[0.9]).max_vs_min(), None);
        assert_eq!(found(&[]).max_vs_min(), None);
        assert!(found(&[0.9, 0.0]).max_vs_min() > Some(100.0));
    }

    #[test]
    fn runs_without_a_second_worker_unshared_or_with_failures_spoil_the_whole() {
        let shared = BetweenRun {
            shared_s: Some(1.0),
            ..found(&[0.5, 0.4])
        };
        let alone = found(&[0.9]);
        let mut with_failures = shared.clone();
        with_failures.errors.insert("reset".to_owned(), 1);
        let link = |all: &[BetweenRun]| spoiled(Transport::Link, all);
        let http1 = |all: &[BetweenRun]| spoiled(Transport::Http1, all);
        assert!(link(std::slice::from_ref(&shared)).is_empty());
        assert!(http1(&[found(&[0.5, 0.1])]).is_empty());
        assert_eq!(
            link(&[shared.clone(), alone.clone()]),
            [
                "1 of 2 runs had no second worker",
                "1 of 2 runs never shared the work"
            ]
        );
        assert_eq!(http1(&[alone]), ["1 of 1 runs had no second worker"]);
        assert_eq!(
            http1(&[with_failures, shared]),
            ["1 of 2 runs had failures"]
        );
    }
}

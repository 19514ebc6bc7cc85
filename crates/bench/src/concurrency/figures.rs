//! From single runs to figures: the best and the worst left out, means of the rest, ceilings.

use serde::Serialize;

use crate::load::Outcome;
use crate::statistics::{less_extremes, mean};

/// One run. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ConcurrencyRun {
    pub(super) qps: f64,
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Requests that failed.
    pub(super) errors: u64,
    /// The part of a core that proxies took, and that load generator and providers took.
    pub(super) proxy_cores: f64,
    pub(super) other_cores: f64,
}

impl ConcurrencyRun {
    pub(super) fn of(outcome: &Outcome) -> ConcurrencyRun {
        let cores = |names: &[&str]| {
            let used = names.iter().filter_map(|name| outcome.cpu.get(*name));
            used.map(|used| used.cpu_ns as f64).sum::<f64>() / 1e9 / outcome.seconds
        };
        ConcurrencyRun {
            qps: outcome.per_s(),
            mean_ms: outcome.mean_us / 1e3,
            p50_ms: outcome.p50_us / 1e3,
            p99_ms: outcome.p99_us / 1e3,
            max_ms: outcome.max_us / 1e3,
            errors: outcome.errors.values().sum(),
            proxy_cores: cores(&["proxy"]),
            other_cores: cores(&["client", "provider"]),
        }
    }

    /// The core that is in use most, 0 to 1: proxies have one, all other processes the other.
    pub(super) fn busiest_core(&self) -> f64 {
        self.proxy_cores.max(self.other_cores)
    }
}

/// What several runs of a setting come to: the best and the worst by requests per second are left out, and
/// the rest averaged, as published. Errors are those of all runs.
pub(super) fn summary(runs: &[ConcurrencyRun]) -> Option<ConcurrencyRun> {
    let left = less_extremes(runs, |run| run.qps);
    let mean = |figure: fn(&ConcurrencyRun) -> f64| mean(left.iter().map(|run| figure(run)));
    Some(ConcurrencyRun {
        qps: mean(|run| run.qps)?,
        mean_ms: mean(|run| run.mean_ms)?,
        p50_ms: mean(|run| run.p50_ms)?,
        p99_ms: mean(|run| run.p99_ms)?,
        max_ms: mean(|run| run.max_ms)?,
        errors: runs.iter().map(|run| run.errors).sum(),
        proxy_cores: mean(|run| run.proxy_cores)?,
        other_cores: mean(|run| run.other_cores)?,
    })
}

/// The most requests per second that there can be: so many under way, each for as long as a provider takes
/// (Little's law).
pub(super) fn ceiling(connections: u32, room: u32, service_ms: f64) -> f64 {
    f64::from(connections.min(room)) / (service_ms / 1e3)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::account::Usage;

    fn run(qps: f64, max_ms: f64, errors: u64) -> ConcurrencyRun {
        ConcurrencyRun {
            qps,
            mean_ms: 1.0,
            p50_ms: 1.0,
            p99_ms: 2.0,
            max_ms,
            errors,
            proxy_cores: 0.3,
            other_cores: 0.2,
        }
    }

    #[test]
    fn the_best_and_the_worst_run_are_left_out_but_not_their_errors() {
        let runs = [
            run(100.0, 5.0, 0),
            run(10.0, 900.0, 7),
            run(120.0, 7.0, 1),
            run(900.0, 1.0, 0),
        ];
        let found = summary(&runs).expect("runs");
        assert_eq!((found.qps, found.max_ms, found.errors), (110.0, 6.0, 8));
        assert_eq!(found.busiest_core(), 0.3);
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn a_ceiling_is_what_has_room_by_how_long_it_takes() {
        assert_eq!(ceiling(512, 600, 50.0), 10_240.0);
        assert_eq!(ceiling(512, 400, 100.0), 4_000.0);
        assert_eq!(ceiling(128, 400, 100.0), 1_280.0);
    }

    #[test]
    fn a_run_is_read_off_the_load_generator() {
        let usage = |cpu_ns| Usage {
            cpu_ns,
            user_share: 0.5,
        };
        let outcome = Outcome {
            seconds: 2.0,
            requests: 1_000,
            mean_us: 51_000.0,
            errors: BTreeMap::from([("connection closed".to_owned(), 2)]),
            cpu: BTreeMap::from([
                ("proxy".to_owned(), usage(1_000_000_000)),
                ("client".to_owned(), usage(200_000_000)),
                ("provider".to_owned(), usage(600_000_000)),
            ]),
            ..Outcome::default()
        };
        let found = ConcurrencyRun::of(&outcome);
        assert_eq!((found.qps, found.mean_ms, found.errors), (500.0, 51.0, 2));
        assert_eq!((found.proxy_cores, found.other_cores), (0.5, 0.4));
    }
}

//! From single runs to figures: means without the best and the worst run, and comparisons of systems.

use std::collections::BTreeMap;

use serde::Serialize;

use super::stage::RunOutcome;
use crate::statistics::{Spread, less_extremes, mean, median};

/// The figures of one run, or of several together. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ConcurrencyRun {
    pub(super) qps: f64,
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Requests that failed.
    pub(super) errors: u64,
    /// Answers with another hash than that of the string that was sent; each also counts as an error.
    pub(super) wrong_hashes: u64,
    /// Cores that the proxies used, and that load generator, consumer and providers used together.
    pub(super) proxy_cores: f64,
    pub(super) other_cores: f64,
    /// Average number of requests at each provider, in work or waiting.
    pub(super) mean_at_each: [f64; 3],
    /// Maximum number of requests at each provider.
    pub(super) most_at_each: [u64; 3],
    /// Fraction of the quota periods in which each provider used up its quota of CPU time.
    pub(super) throttled: [f64; 3],
}

impl ConcurrencyRun {
    pub(super) fn of(found: &RunOutcome) -> ConcurrencyRun {
        let outcome = &found.outcome;
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
            wrong_hashes: found.consumer.wrong_hashes,
            proxy_cores: cores(&["proxy"]),
            other_cores: cores(&["client", "consumer", "provider"]),
            mean_at_each: found.mean_at_each,
            most_at_each: found.providers.map(|counts| counts.most),
            throttled: found.throttled,
        }
    }

    /// Use of the busier core, 0 to 1: the proxies have one core, all other processes the other.
    pub(super) fn busiest_core(&self) -> f64 {
        self.proxy_cores.max(self.other_cores)
    }

    /// Whether it had neither errors nor wrong hashes.
    pub(super) fn is_right(&self) -> bool {
        self.errors == 0 && self.wrong_hashes == 0
    }
}

/// The runs that count: all but the best and the worst by requests per second, as published.
fn counted(runs: &[ConcurrencyRun]) -> Vec<&ConcurrencyRun> {
    less_extremes(runs, |run| run.qps)
}

/// The figures of several runs of a setting: the means of the runs that count, and the median of their maxima. Errors
/// and `most_at_each` are those of all runs.
pub(super) fn summary(runs: &[ConcurrencyRun]) -> Option<ConcurrencyRun> {
    together(runs, &counted(runs), |figures| {
        mean(figures.iter().copied())
    })
}

/// The medians of a few runs; the means for `mean_at_each` and `throttled`. Errors and `most_at_each` are those of all
/// runs.
pub(super) fn medians(runs: &[ConcurrencyRun]) -> Option<ConcurrencyRun> {
    together(runs, &runs.iter().collect::<Vec<_>>(), median)
}

/// Combines several runs into one: takes the `middle` of each figure of the runs that count.
fn together(
    runs: &[ConcurrencyRun],
    counted: &[&ConcurrencyRun],
    middle: fn(&[f64]) -> Option<f64>,
) -> Option<ConcurrencyRun> {
    let all = |figure: fn(&ConcurrencyRun) -> f64| -> Vec<f64> {
        counted.iter().map(|run| figure(run)).collect()
    };
    let middle_of = |figure: fn(&ConcurrencyRun) -> f64| middle(&all(figure));
    let each = |figure: fn(&ConcurrencyRun) -> [f64; 3]| {
        let at = |index: usize| counted.iter().map(|run| figure(run)[index]).sum::<f64>();
        [0, 1, 2].map(|index| at(index) / counted.len() as f64)
    };
    let most = |index: usize| runs.iter().map(|run| run.most_at_each[index]).max();
    Some(ConcurrencyRun {
        qps: middle_of(|run| run.qps)?,
        mean_ms: middle_of(|run| run.mean_ms)?,
        p50_ms: middle_of(|run| run.p50_ms)?,
        p99_ms: middle_of(|run| run.p99_ms)?,
        max_ms: median(&all(|run| run.max_ms))?,
        errors: runs.iter().map(|run| run.errors).sum(),
        wrong_hashes: runs.iter().map(|run| run.wrong_hashes).sum(),
        proxy_cores: middle_of(|run| run.proxy_cores)?,
        other_cores: middle_of(|run| run.other_cores)?,
        mean_at_each: each(|run| run.mean_at_each),
        most_at_each: [0, 1, 2].map(|index| most(index).unwrap_or(0)),
        throttled: each(|run| run.throttled),
    })
}

/// Shares out `connections` among the providers for a run without proxy, in proportion to the requests that a run with
/// a proxy had at each; equally if it had none.
pub(super) fn shared_out(connections: u32, mean_at_each: [f64; 3]) -> [u32; 3] {
    let sum: f64 = mean_at_each.iter().sum();
    let part = |at: f64| if sum > 0.0 { at / sum } else { 1.0 / 3.0 };
    let exact = mean_at_each.map(|at| part(at) * f64::from(connections));
    let mut shares = exact.map(|share| share.floor() as u32);
    // The largest remainders get what rounding has left over.
    let mut order = [0, 1, 2];
    let rest = |index: usize| exact[index] - exact[index].floor();
    order.sort_by(|one, other| rest(*other).total_cmp(&rest(*one)));
    let left = connections - shares.iter().sum::<u32>();
    for index in order.iter().cycle().take(left as usize) {
        shares[*index] += 1;
    }
    shares
}

/// How a figure of one system compares with that of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Better,
    /// The difference is within the spread of the runs.
    Equal,
    Worse,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Equal => "equal",
            Verdict::Worse => "worse",
        }
    }
}

/// A figure of one system divided by that of another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SystemRatios {
    pub(super) ratio: f64,
    pub(super) verdict: Verdict,
    /// The ratio of each run that was made side by side with one of the other system.
    pub(super) rounds: Vec<f64>,
}

impl SystemRatios {
    /// The ratio with the rounds behind it.
    pub(super) fn spread(&self) -> Option<Spread> {
        let spread = Spread::of(&self.rounds)?;
        Some(Spread {
            median: self.ratio,
            ..spread
        })
    }
}

/// A relative difference below this is equal, however small the spread of the runs is.
pub(super) const SAME: f64 = 0.01;

/// The names of the ratios that are compared, and whether more is better.
pub(super) const COMPARED: [(&str, bool); 3] = [("qps", true), ("p99", false), ("max", false)];

/// Compares a system with each of several others, and keeps for each figure the comparison that is least favourable to
/// the system. Returns them by the names of the ratios, each with the index of the other system.
pub(super) fn least_left(
    ours: &[ConcurrencyRun],
    theirs: &[&[ConcurrencyRun]],
) -> BTreeMap<&'static str, (usize, SystemRatios)> {
    let mut least: BTreeMap<&'static str, (usize, SystemRatios)> = BTreeMap::new();
    for (index, theirs) in theirs.iter().enumerate() {
        let mut found = compared(ours, theirs);
        for (name, more_is_better) in COMPARED {
            let Some(found) = found.remove(name) else {
                continue;
            };
            let leaves_less = |before: &SystemRatios| {
                let more = found.ratio > before.ratio;
                found.ratio != before.ratio && more != more_is_better
            };
            if least
                .get(name)
                .is_none_or(|(_, before)| leaves_less(before))
            {
                least.insert(name, (index, found));
            }
        }
    }
    least
}

/// Compares two systems in one setting by requests per second, p99 and maximum; returns the ratios by name.
pub(super) fn compared(
    ours: &[ConcurrencyRun],
    theirs: &[ConcurrencyRun],
) -> BTreeMap<&'static str, SystemRatios> {
    let (Some(our), Some(their)) = (summary(ours), summary(theirs)) else {
        return BTreeMap::new();
    };
    let compare = |figure: fn(&ConcurrencyRun) -> f64, more_is_better: bool| {
        let difference = figure(&our) - figure(&their);
        let spread = deviation(ours, figure) + deviation(theirs, figure);
        let spread = spread.max(SAME * figure(&their));
        let verdict = match (
            difference.abs() <= spread,
            (difference > 0.0) == more_is_better,
        ) {
            (true, _) => Verdict::Equal,
            (false, true) => Verdict::Better,
            (false, false) => Verdict::Worse,
        };
        SystemRatios {
            ratio: figure(&our) / figure(&their),
            verdict,
            rounds: ours
                .iter()
                .zip(theirs)
                .map(|(our, their)| figure(our) / figure(their))
                .collect(),
        }
    };
    BTreeMap::from([
        ("qps", compare(|run| run.qps, true)),
        ("p99", compare(|run| run.p99_ms, false)),
        ("max", compare(|run| run.max_ms, false)),
    ])
}

/// The standard deviation of a figure over the runs that count.
pub(super) fn deviation(runs: &[ConcurrencyRun], figure: fn(&ConcurrencyRun) -> f64) -> f64 {
    let counted = counted(runs);
    let Some(middle) = mean(counted.iter().map(|run| figure(run))) else {
        return 0.0;
    };
    let squares = counted.iter().map(|run| (figure(run) - middle).powi(2));
    mean(squares).unwrap_or(0.0).sqrt()
}

#[cfg(test)]
pub(super) use tests::run;

#[cfg(test)]
mod tests;

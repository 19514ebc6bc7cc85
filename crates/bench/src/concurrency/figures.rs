//! From single runs to figures: the best and the worst left out, means of the rest, what is better than what.

use std::collections::BTreeMap;

use serde::Serialize;

use super::stage::RunOutcome;
use crate::statistics::{Spread, less_extremes, mean, median};

/// One run, or what several come to. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ConcurrencyRun {
    pub(super) qps: f64,
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Requests that failed.
    pub(super) errors: u64,
    /// Answers with another hash than that of the string that was sent; each is one of the errors too.
    pub(super) wrong_hashes: u64,
    /// The part of a core that proxies took, and that load generator, consumer and providers took.
    pub(super) proxy_cores: f64,
    pub(super) other_cores: f64,
    /// Requests that each provider had on average, worked on or waiting.
    pub(super) mean_at_each: [f64; 3],
    /// The most that each had at one time.
    pub(super) most_at_each: [u64; 3],
    /// The part of the periods in which each provider used up its quota of processor time.
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

    /// The core that is in use most, 0 to 1: proxies have one, all other processes the other.
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

/// What several runs of a setting come to: the mean of those that count, of their maxima the median. Errors, and
/// what was most, are those of all runs.
pub(super) fn summary(runs: &[ConcurrencyRun]) -> Option<ConcurrencyRun> {
    together(runs, &counted(runs), |figures| {
        mean(figures.iter().copied())
    })
}

/// What a few runs come to: the median of each figure. Errors, and what was most, are those of all runs.
pub(super) fn medians(runs: &[ConcurrencyRun]) -> Option<ConcurrencyRun> {
    together(runs, &runs.iter().collect::<Vec<_>>(), median)
}

/// One run for several: each figure is the middle of those that count.
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

/// How many connections each provider gets where there is no proxy: so many in all, in the proportions in which a
/// run had requests at the providers; alike where it had none.
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

/// What one system's figure is beside another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Better,
    /// They differ by no more than their runs do.
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

/// A figure of one system in that of another.
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

/// What is less than this part apart is equal, however well it repeats.
pub(super) const SAME: f64 = 0.01;

/// The figures that are compared, by the names of their ratios, and whether more is better.
pub(super) const COMPARED: [(&str, bool); 3] = [("qps", true), ("p99", false), ("max", false)];

/// Compares a system with each of several, and takes for each figure the comparison that leaves it least: by the
/// names of the ratios, with the place of the other system among them.
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

/// Compares two systems in one setting by requests per second, p99 and maximum: by the names of the ratios.
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

/// How far a figure of the runs that count is from their mean: the standard deviation.
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

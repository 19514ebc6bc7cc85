//! The named figures of a report: ratios of Heddle to the others, taken round by round, and medians.

use std::collections::BTreeMap;

use super::{Cell, Measure, Row, Run};
use crate::statistics::{self, Spread};
use crate::systems::{ProxyKind, System};

/// The names of the pairs of Envoys that speak HTTP/1.1, and HTTP/2, with each other.
pub(crate) const ENVOY_PAIRS: [&str; 2] = ["envoy-http1", "envoy-http2"];

/// The largest factor between the lowest and the highest round of a ratio of p99. Beyond it, the median depends on
/// which rounds there happened to be.
const WIDEST: f64 = 3.0;

/// A ratio: its name, and the figure of a measure that it is taken of.
struct Of {
    name: &'static str,
    measure: Measure,
    figure: &'static str,
}

const fn of_figure(name: &'static str, measure: Measure, figure: &'static str) -> Of {
    Of {
        name,
        measure,
        figure,
    }
}

/// The figures that ratios are taken of. For memory these are PSS and private memory: RSS counts the pages that a
/// master and its worker share once for each.
const MAIN_RATIOS: [Of; 10] = [
    of_figure("cpu", Measure::FixedRate, "cpu_us_per_request"),
    of_figure("p99", Measure::FixedRate, "p99_us"),
    of_figure("p50_quiet", Measure::QuietRate, "p50_us"),
    of_figure("p99_quiet", Measure::QuietRate, "p99_us"),
    of_figure("rps", Measure::HalfCore, "requests_per_s"),
    of_figure("pss", Measure::FixedRate, "pss_mib"),
    of_figure("private", Measure::FixedRate, "private_mib"),
    of_figure("pss_loaded", Measure::MemoryLoaded, "pss_mib"),
    of_figure("private_loaded", Measure::MemoryLoaded, "private_mib"),
    of_figure(
        "system_calls",
        Measure::SystemCallsBusy,
        "system_calls_per_request",
    ),
];

/// Ratios of the first Heddle, or of the forwarder in its place, to all other systems; and notes on those that were
/// left out.
pub(super) fn of(
    systems: &[System],
    runs: &[Run],
    main: Cell,
) -> (BTreeMap<String, Spread>, Vec<String>) {
    let mut found = BTreeMap::new();
    let mut left_out = Vec::new();
    let Some(ours) = systems
        .iter()
        .find(|system| matches!(system.kind, ProxyKind::Heddle | ProxyKind::H2))
    else {
        return (found, left_out);
    };
    for of in MAIN_RATIOS {
        let ours_by_round = by_round(runs, ours, &of, main);
        let mut ratios: BTreeMap<&str, Spread> = systems
            .iter()
            .filter(|system| system.name != ours.name)
            .filter_map(|theirs| {
                let theirs_by_round = by_round(runs, theirs, &of, main);
                let ratio = statistics::ratio(&ours_by_round, &theirs_by_round)?;
                Some((theirs.name.as_str(), ratio))
            })
            .collect();
        if let Some(harder) = harder_pair(&ratios, of.measure != Measure::HalfCore) {
            ratios.insert("envoy", harder);
        }
        for (theirs, ratio) in ratios {
            match too_wide(&of, &ratio) {
                Some(why) => left_out.push(format!(
                    "The ratio of {} to {theirs}'s was left out: {why}",
                    title(&of)
                )),
                None => {
                    found.insert(format!("{}_vs_{theirs}", of.name), ratio);
                }
            }
        }
    }
    (found, left_out)
}

/// A system's figure in each round that counts.
fn by_round(runs: &[Run], system: &System, of: &Of, main: Cell) -> Vec<Option<f64>> {
    let rounds = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
    let mut figures = vec![None; rounds];
    let any_cell = of.measure == Measure::MemoryLoaded;
    let runs = runs
        .iter()
        .filter(|run| run.system == system.name && run.measure == of.measure)
        .filter(|run| run.problem.is_none() && (any_cell || run.cell == main));
    for run in runs {
        figures[run.round] = run.figures.get(of.figure).copied();
    }
    figures
}

/// Of two pairs of Envoys the better one counts: the one whose ratio is less favourable to Heddle.
fn harder_pair(ratios: &BTreeMap<&str, Spread>, less_is_better: bool) -> Option<Spread> {
    let of_pairs = ENVOY_PAIRS.map(|pair| ratios.get(pair));
    let harder = of_pairs.into_iter().flatten().max_by(|one, other| {
        let order = one.median.total_cmp(&other.median);
        if less_is_better {
            order
        } else {
            order.reverse()
        }
    });
    harder.cloned()
}

/// Why a ratio is left out, if it is: the rounds of a p99 differ too much.
fn too_wide(of: &Of, ratio: &Spread) -> Option<String> {
    let Spread { min, max, .. } = ratio;
    (of.figure == "p99_us" && *max > WIDEST * min).then(|| {
        format!(
            "its rounds lie between {min:.2} and {max:.2}, more than a factor of {WIDEST:.0} apart"
        )
    })
}

/// The words for a ratio of p99 in a note.
fn title(of: &Of) -> &'static str {
    match of.measure {
        Measure::QuietRate => "p99 at the quiet rate",
        _ => "p99 at the fixed rate",
    }
}

/// Medians by name.
pub(super) fn values(rows: &[Row], main: Cell) -> BTreeMap<String, Spread> {
    let mut values = BTreeMap::new();
    for row in rows.iter().filter(|row| row.valid) {
        let of_main = row.cell == main;
        let wanted: &[(&str, &str)] = match row.measure {
            Measure::FixedRate if of_main => &[
                ("cpu_us_per_request", "cpu_us_per_request"),
                ("p50_us", "p50_us"),
                ("p99_us", "p99_us"),
                ("proxy_cores", "fixed_rate_cores"),
                ("rss_mib", "rss_mib"),
                ("pss_mib", "pss_mib"),
                ("private_mib", "private_mib"),
            ],
            Measure::QuietRate if of_main => &[
                ("p50_us", "quiet_p50_us"),
                ("p99_us", "quiet_p99_us"),
                ("proxy_cores", "quiet_rate_cores"),
            ],
            Measure::HalfCore if of_main => &[("requests_per_s", "half_core_requests_per_s")],
            Measure::WholeCore if of_main => &[("requests_per_s", "whole_core_requests_per_s")],
            Measure::SystemCallsBusy => &[("system_calls_per_request", "system_calls_per_request")],
            Measure::SystemCallsFixedRate => &[(
                "system_calls_per_request",
                "system_calls_per_request_fixed_rate",
            )],
            Measure::Instructions => &[(
                "user_instructions_per_request",
                "user_instructions_per_request",
            )],
            Measure::MemoryIdle => &[
                ("rss_mib", "rss_idle_mib"),
                ("pss_mib", "pss_idle_mib"),
                ("private_mib", "private_idle_mib"),
            ],
            Measure::MemoryConfigured => &[
                ("rss_mib", "rss_configured_mib"),
                ("pss_mib", "pss_configured_mib"),
                ("private_mib", "private_configured_mib"),
            ],
            Measure::MemoryLoaded => &[
                ("rss_mib", "rss_loaded_mib"),
                ("pss_mib", "pss_loaded_mib"),
                ("private_mib", "private_loaded_mib"),
            ],
            _ => &[],
        };
        for (figure, name) in wanted {
            if let Some(spread) = row.figures.get(figure) {
                values.insert(format!("{}_{name}", row.system), spread.clone());
            }
        }
    }
    values
}

#[cfg(test)]
mod tests;

//! Medians with their spread, and ratios taken round by round.

use serde::Serialize;

/// The values of one figure in several rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// The figure of each round, in order.
    pub(super) rounds: Vec<f64>,
}

impl Spread {
    /// The spread of some figures; `None` when there are none, or one is not a finite number.
    pub(super) fn of(rounds: &[f64]) -> Option<Spread> {
        if rounds.is_empty() || rounds.iter().any(|figure| !figure.is_finite()) {
            return None;
        }
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            rounds: rounds.to_vec(),
        })
    }
}

/// The ratio of two systems, taken within each round where both have a figure. Machines drift between
/// rounds; within one, the systems were measured seconds apart.
pub(super) fn ratio(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Spread> {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    Spread::of(&ratios)
}

/// The runs without the best and the worst of them by a figure, in order of that figure; all of them where there are
/// fewer than three.
pub(super) fn less_extremes<T>(runs: &[T], figure: impl Fn(&T) -> f64) -> Vec<&T> {
    let mut sorted: Vec<&T> = runs.iter().collect();
    sorted.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
    match sorted.len() {
        count @ 3.. => sorted[1..count - 1].to_vec(),
        _ => sorted,
    }
}

/// The mean of some figures; `None` when there are none, or one is not a finite number.
pub(super) fn mean(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = figures
        .into_iter()
        .fold((0.0, 0_u32), |(sum, count), figure| {
            (sum + figure, count + 1)
        });
    let mean = sum / f64::from(count);
    mean.is_finite().then_some(mean)
}

/// The median of some figures; `None` when there are none, or one is not a finite number.
pub(super) fn median(figures: &[f64]) -> Option<f64> {
    Spread::of(figures).map(|spread| spread.median)
}

#[cfg(test)]
mod tests;

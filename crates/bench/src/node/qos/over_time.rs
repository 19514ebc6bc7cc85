//! Figures over time, for pictures.

use std::time::{Duration, Instant};

use plotters::style::RGBColor;

use super::wait;
use crate::node::chart::{Line, Panel};

/// The distance of samples, and the length of a slice of latencies.
pub(super) const SLICE: Duration = Duration::from_millis(250);

/// The colors of the conditions, and one for what belongs to none.
pub(super) const ON: RGBColor = RGBColor(198, 93, 33);
pub(super) const OFF: RGBColor = RGBColor(72, 92, 130);
pub(super) const ALONE: RGBColor = RGBColor(150, 150, 150);
pub(super) const OTHER: RGBColor = RGBColor(90, 140, 90);

/// Shortest time, in seconds, over which a rate means anything.
const SHORTEST_S: f64 = 0.1;

/// Samples of something, with the seconds since the first was due.
#[derive(Debug)]
pub(super) struct Samples<T> {
    began: Instant,
    all: Vec<(f64, T)>,
}

impl<T> Samples<T> {
    /// Begins now.
    pub(super) fn begin() -> Self {
        Samples {
            began: Instant::now(),
            all: Vec::new(),
        }
    }

    /// Takes samples until so long after the beginning.
    ///
    /// # Errors
    /// When one cannot be taken.
    pub(super) fn take_until(
        &mut self,
        end: Duration,
        mut take: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<()> {
        loop {
            let since = self.began.elapsed();
            self.all.push((since.as_secs_f64(), take()?));
            if since >= end {
                return Ok(());
            }
            wait(SLICE.min(end - since));
        }
    }

    /// All samples.
    pub(super) fn into_inner(self) -> Vec<(f64, T)> {
        self.all
    }

    /// One figure of each sample.
    pub(super) fn points(&self, figure: impl Fn(&T) -> f64) -> Vec<(f64, f64)> {
        let all = self.all.iter();
        all.map(|(at, sample)| (*at, figure(sample))).collect()
    }
}

/// By how much a figure grows in a second, between one point and the next that is not too near.
pub(super) fn rates(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut rates = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    for (at, now) in points {
        match last {
            Some((then, _)) if at - then < SHORTEST_S => continue,
            Some((then, before)) => rates.push((*at, (now - before) / (at - then))),
            None => {}
        }
        last = Some((*at, *now));
    }
    rates
}

/// A line's label, its color, and its points.
pub(super) type Curve<'l> = (&'l str, RGBColor, Vec<(f64, f64)>);

/// A chart over seconds.
pub(super) fn panel(title: &str, lines: Vec<Curve<'_>>) -> Panel {
    let lines = lines
        .into_iter()
        .filter(|(_, _, points)| !points.is_empty());
    Panel {
        title: title.to_owned(),
        axis: "seconds".to_owned(),
        lines: lines
            .map(|(label, color, points)| Line {
                label: label.to_owned(),
                color,
                points,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_between_two_points() {
        assert_eq!(
            rates(&[(0.0, 1.0), (0.5, 2.0), (0.51, 9.0), (1.5, 2.5)]),
            [(0.5, 2.0), (1.5, 0.5)]
        );
        assert_eq!(rates(&[(0.0, 1.0)]), []);
    }
}

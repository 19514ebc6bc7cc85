//! Figures over time, for pictures.

use std::time::{Duration, Instant};

use plotters::style::RGBColor;

use super::wait;
use crate::node::chart::{Line, Panel};

/// The distance of samples, and the length of a slice of latencies.
pub(super) const SLICE: Duration = Duration::from_millis(250);

const COLORS: [RGBColor; 4] = [
    RGBColor(198, 93, 33),
    RGBColor(72, 92, 130),
    RGBColor(150, 150, 150),
    RGBColor(90, 140, 90),
];

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

/// By how much a figure grows in a second, between one point and the next.
pub(super) fn rates(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let pairs = points.windows(2).filter_map(|pair| {
        let [(from, before), (to, after)] = pair else {
            return None;
        };
        (to > from).then(|| (*to, (after - before) / (to - from)))
    });
    pairs.collect()
}

/// A chart over seconds.
pub(super) fn panel(title: &str, lines: Vec<(&str, Vec<(f64, f64)>)>) -> Panel {
    let lines = lines.into_iter().zip(COLORS.into_iter().cycle());
    let lines = lines.filter(|((_, points), _)| !points.is_empty());
    Panel {
        title: title.to_owned(),
        axis: "seconds".to_owned(),
        lines: lines
            .map(|((label, points), color)| Line {
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
            rates(&[(0.0, 1.0), (0.5, 2.0), (0.5, 2.0), (1.5, 2.5)]),
            [(0.5, 2.0), (1.5, 0.5)]
        );
        assert_eq!(rates(&[(0.0, 1.0)]), []);
    }
}

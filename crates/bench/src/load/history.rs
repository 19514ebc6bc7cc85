//! Latency over time, for pictures.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Requests that were due within one slice of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slice {
    /// The middle of the slice, in seconds since the load began.
    pub(crate) at_s: f64,
    /// Median and 99th percentile of their latencies, in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// The number that were answered, for each second.
    pub(crate) per_s: f64,
}

/// The latencies so far.
pub(super) struct History {
    began: Instant,
    slice: Duration,
    /// Microseconds, by slice.
    latencies: Vec<Vec<u64>>,
}

impl History {
    /// Begins now, with slices of this length.
    pub(super) fn new(slice: Duration) -> History {
        History {
            began: Instant::now(),
            slice: slice.max(Duration::from_millis(1)),
            latencies: Vec::new(),
        }
    }

    /// A request that was due at `due` took so many microseconds.
    pub(super) fn add(&mut self, due: Instant, took_us: u64) {
        let since = due.saturating_duration_since(self.began);
        // A run has far fewer slices than fit.
        let index = (since.as_nanos() / self.slice.as_nanos()) as usize;
        if self.latencies.len() <= index {
            self.latencies.resize_with(index + 1, Vec::new);
        }
        self.latencies[index].push(took_us);
    }

    /// The slices that have any answer.
    pub(super) fn slices(self) -> Vec<Slice> {
        let slice_s = self.slice.as_secs_f64();
        let all = self.latencies.into_iter().enumerate();
        let slices = all.filter_map(|(index, mut latencies)| {
            latencies.sort_unstable();
            let count = latencies.len();
            let quantile = |part: f64| {
                let rank = (count as f64 * part).ceil() as usize;
                latencies
                    .get(rank.clamp(1, count.max(1)) - 1)
                    .map(|us| *us as f64)
            };
            Some(Slice {
                at_s: (index as f64 + 0.5) * slice_s,
                p50_us: quantile(0.5)?,
                p99_us: quantile(0.99)?,
                per_s: count as f64 / slice_s,
            })
        });
        slices.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_the_requests_that_were_due_in_it() {
        let mut history = History::new(Duration::from_millis(100));
        let began = history.began;
        for us in 1..=100 {
            history.add(began, us);
        }
        history.add(began + Duration::from_millis(250), 7);
        let slices = history.slices();
        let of = |index: usize| {
            let slice: &Slice = &slices[index];
            (slice.p50_us, slice.p99_us, slice.per_s)
        };
        assert_eq!(slices.len(), 2);
        assert_eq!(of(0), (50.0, 99.0, 1000.0));
        assert_eq!(of(1), (7.0, 7.0, 10.0));
        assert!((slices[1].at_s - 0.25).abs() < 1e-9);
    }
}

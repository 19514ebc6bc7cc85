//! The p99 of a pod's requests, from a histogram that only grows.

use std::collections::VecDeque;
use std::time::Duration;

/// Time over which the p99 is taken.
const WINDOW: Duration = Duration::from_secs(5);
/// Longest time, for pods with few requests. Beyond it there is no p99.
const LONGEST: Duration = Duration::from_secs(30);
/// Shortest time, after the window has begun anew.
const SHORTEST: Duration = Duration::from_secs(2);
/// Least number of requests: a p99 of fewer is that of the slowest one.
const LEAST_REQUESTS: u64 = 100;
/// Age of the last reading from which on the proxy counts as gone.
pub const STALE: Duration = Duration::from_secs(3);
/// Readings that are kept: one a second, and a few that come close together.
const MAX_READINGS: usize = 64;

/// A reading of a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reading {
    at: Duration,
    counts: Vec<u64>,
}

/// The requests of one pod within the last seconds.
#[derive(Debug, Default)]
pub struct Window {
    /// Upper bounds of the buckets in microseconds. One bucket more is above all bounds.
    bounds_us: Vec<u64>,
    /// Oldest first.
    readings: VecDeque<Reading>,
}

impl Window {
    /// Takes a reading: how many requests there were in each bucket since the proxy's start. A reading with other bounds,
    /// or with fewer requests in a bucket than the last one, is that of a proxy that has started anew, or has forgotten
    /// callers: the window begins anew with it. One without a bucket for each bound is passed over.
    pub fn add(&mut self, at: Duration, bounds_us: &[u64], counts: &[u64]) {
        if bounds_us.is_empty() || counts.len() != bounds_us.len() + 1 {
            return;
        }
        let grows = self.readings.back().is_none_or(|last| {
            let mut pairs = last.counts.iter().zip(counts);
            last.at <= at && pairs.all(|(before, now)| before <= now)
        });
        if self.bounds_us != bounds_us || !grows {
            self.bounds_us = bounds_us.to_vec();
            self.readings.clear();
        }
        self.readings.push_back(Reading {
            at,
            counts: counts.to_vec(),
        });
        let is_old = |reading: &Reading| at.saturating_sub(reading.at) > LONGEST;
        while self.readings.front().is_some_and(is_old) || self.readings.len() > MAX_READINGS {
            self.readings.pop_front();
        }
    }

    /// Begins anew with the last reading: what was before a change says nothing of what it does.
    pub fn begin_anew(&mut self) {
        let last = self.readings.pop_back();
        self.readings.clear();
        self.readings.extend(last);
    }

    /// The p99 in microseconds, if there were enough requests and the last reading is fresh. Within a bucket, durations
    /// are taken to be spread evenly, as Prometheus' `histogram_quantile` does; above all bounds it is the last bound.
    pub fn p99_us(&self, now: Duration) -> Option<u64> {
        let last = self.readings.back()?;
        if now.saturating_sub(last.at) > STALE {
            return None;
        }
        // From the youngest to the oldest that may be compared with.
        let before = self.readings.iter().rev().skip(1);
        let mut long_enough = before
            .map(|first| (last.at.saturating_sub(first.at), first))
            .filter(|(length, _)| *length >= SHORTEST);
        let mut best = None;
        for (length, first) in &mut long_enough {
            best = Some(first);
            if length >= WINDOW && requests(first, last) >= LEAST_REQUESTS {
                break;
            }
        }
        let first = best.filter(|first| requests(first, last) >= LEAST_REQUESTS)?;
        let each = last.counts.iter().zip(&first.counts);
        Some(p99(
            &self.bounds_us,
            each.map(|(now, before)| now.saturating_sub(*before)),
        ))
    }
}

fn requests(first: &Reading, last: &Reading) -> u64 {
    let each = last.counts.iter().zip(&first.counts);
    each.fold(0, |sum: u64, (now, before)| {
        sum.saturating_add(now.saturating_sub(*before))
    })
}

/// The p99 of a histogram with at least one request.
fn p99(bounds_us: &[u64], counts: impl Iterator<Item = u64>) -> u64 {
    let counts: Vec<u64> = counts.collect();
    let all = counts
        .iter()
        .fold(0, |sum: u64, one| sum.saturating_add(*one));
    // Exact up to 2^53 requests.
    let wanted = all as f64 * 0.99;
    let (mut below, mut low) = (0.0, 0);
    for (count, bound) in counts.iter().zip(bounds_us) {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let part = ((wanted - below) / count).clamp(0.0, 1.0);
            // Whole microseconds.
            return low + (part * bound.saturating_sub(low) as f64) as u64;
        }
        below += count;
        low = *bound;
    }
    low
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Window;

    const BOUNDS: [u64; 3] = [1_000, 5_000, 10_000];

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_p99_is_that_of_the_last_five_seconds() {
        let mut window = Window::default();
        // Slow requests from before.
        window.add(at(0), &BOUNDS, &[0, 0, 500, 0]);
        window.add(at(1), &BOUNDS, &[0, 0, 900, 0]);
        assert_eq!(window.p99_us(at(1)), None, "too short");
        for second in 2..=7 {
            window.add(at(second), &BOUNDS, &[(second - 1) * 100, 0, 900, 0]);
        }
        assert_eq!(window.p99_us(at(7)), Some(990));
        assert_eq!(window.p99_us(at(11)), None, "no reading for long");
        window.add(at(8), &BOUNDS, &[600, 0, 900, 1_000]);
        assert_eq!(window.p99_us(at(8)), Some(10_000), "above all bounds");
        window.begin_anew();
        assert_eq!(window.p99_us(at(8)), None);
        window.add(at(10), &BOUNDS, &[600, 200, 900, 1_000]);
        assert_eq!(window.p99_us(at(10)), Some(4_960));
    }

    #[test]
    fn few_requests_lengthen_the_window_and_too_few_have_no_p99() {
        let mut window = Window::default();
        for second in 0..=60 {
            window.add(at(second), &BOUNDS, &[second * 4, 0, 0, 0]);
            let is_known = window.p99_us(at(second)).is_some();
            assert_eq!(is_known, second >= 25, "{second}");
        }
        let mut window = Window::default();
        for second in 0..=60 {
            window.add(at(second), &BOUNDS, &[second * 3, 0, 0, 0]);
            assert_eq!(window.p99_us(at(second)), None);
        }
    }

    #[test]
    fn a_proxy_that_starts_anew_begins_a_new_window() {
        let mut window = Window::default();
        window.add(at(0), &BOUNDS, &[1_000, 0, 0, 0]);
        window.add(at(5), &BOUNDS, &[0, 200, 0, 0]);
        assert_eq!(window.p99_us(at(5)), None);
        // Without a bucket for each bound it is nothing.
        window.add(at(6), &BOUNDS, &[1]);
        window.add(at(6), &[], &[1]);
        window.add(at(10), &BOUNDS, &[0, 400, 0, 0]);
        assert_eq!(window.p99_us(at(10)), Some(4_960));
        window.add(at(11), &BOUNDS[..2], &[0, 400, 0]);
        assert_eq!(window.p99_us(at(11)), None, "other bounds");
    }

    proptest! {
        #[test]
        fn any_reading_is_bounded_and_never_panics(
            readings in prop::collection::vec((0u64..40, prop::collection::vec(any::<u64>(), 0..6)), 0..100),
        ) {
            let mut window = Window::default();
            for (second, counts) in readings {
                window.add(at(second), &BOUNDS, &counts);
                prop_assert!(window.readings.len() <= super::MAX_READINGS);
                let p99 = window.p99_us(at(second));
                prop_assert!(p99.is_none_or(|p99| p99 <= 10_000));
            }
        }
    }
}

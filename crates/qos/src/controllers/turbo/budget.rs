//! The budget of a group: over the last samples it may use, on average, what its origin allows.

use std::collections::VecDeque;
use std::time::Duration;

use super::Sample;

/// Samples that the average goes over.
const SAMPLES: usize = 60;
/// Quota beyond the origin is at most this multiple of the origin, the ceiling.
const CEILING: u64 = 2;
/// Below this many ceilings of time that is left, the quota goes down little by little: no sudden drop.
const EASED: f64 = 3.0;

/// Times that a group has used, oldest first.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: VecDeque<(Duration, u64)>,
}

impl Budget {
    /// Adds a sample: the group's processor time since it began, in microseconds.
    pub(super) fn add(&mut self, at: Duration, used_us: u64) {
        self.used.push_back((at, used_us));
        while self.used.len() >= SAMPLES {
            self.used.pop_front();
        }
    }

    /// The highest quota for the next interval, in microseconds for each period: between the origin and the ceiling.
    pub(super) fn most_us(&self, sample: &Sample) -> u64 {
        let origin = sample.origin_us as f64;
        let ceiling = sample.origin_us.saturating_mul(CEILING) as f64;
        let (Some(first), Some(last)) = (self.used.front(), self.used.back()) else {
            return ceiling as u64;
        };
        let elapsed_us = last.0.saturating_sub(first.0).as_micros() as f64;
        let intervals = self.used.len() as f64 - 1.0;
        if elapsed_us <= 0.0 {
            return ceiling as u64;
        }
        let period = sample.period_us as f64;
        // The origin allows this much until the end of the next interval.
        let allowed_us = origin / period * elapsed_us * (intervals + 1.0) / intervals;
        let left_us = allowed_us - last.1.saturating_sub(first.1) as f64;
        let left = left_us / (elapsed_us / intervals) * period;
        let eased = EASED * ceiling;
        let most = match left > eased {
            true => left,
            false => origin + (ceiling - origin) * left / eased,
        };
        most.clamp(origin, ceiling) as u64
    }
}

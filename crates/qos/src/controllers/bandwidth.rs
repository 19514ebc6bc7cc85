//! Pod bandwidth: the rate at which all offline pods together may send, from what online and offline pods have sent.
//!
//! Online pods are never limited. Without a known speed of the link this is the form of openEuler's oncn-bwm: while online
//! pods send at the waterline or faster, offline pods get the low rate, else the high one. That protects online pods only
//! where the low rate is a small part of the link, and offline pods lose nearly all of the link to any online pod at the
//! waterline.
//!
//! With the speed of the link, offline pods get what online pods leave of it:
//!
//! ```text
//! rate = TARGET · link − demand
//! ```
//!
//! clamped between the low rate (at most a fiftieth of the link) and the link. The demand of online pods is what they sent
//! on average over the last 100 ms. Two signs say that they want more than they could send, and count for the next 100 ms:
//!
//! - *their rate rises*: a connection in slow start doubles its rate every round trip, so `GROWTH` times the newest rate;
//! - *the link is full*: the room of `1 − TARGET` is gone, so online pods send more than was thought, and less than they
//!   want. Twice what they sent.
//!
//! So the rate falls within one or two samples, and rises only after 100 ms without either sign.

use std::collections::VecDeque;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How often [`Bandwidth::step`] is called while there is traffic.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// Time over which rates are averaged, and for which a sign of demand counts.
const CALM: Duration = Duration::from_millis(100);
/// Samples that are closer together say nothing about a rate.
const SHORTEST: Duration = Duration::from_millis(2);
/// Samples that are further apart say nothing about a rise.
const LONGEST: Duration = Duration::from_secs(2);
/// Part of the link that both classes together should use.
const TARGET: f64 = 0.96;
/// Part of the link from which on it counts as full.
const FULL: f64 = 0.98;
/// The online rate rises when it is so many times the average of the samples before,
const RISING: f64 = 1.5;
/// and more by this part of the link.
const RISING_BY: f64 = 0.02;
/// Demand of online pods whose rate rises, as a multiple of their rate.
const GROWTH: f64 = 4.0;
/// Demand of online pods on a full link, as a multiple of their rate.
const MORE: f64 = 2.0;
/// The low rate is at most the link's divided by this.
const LOW_PART: u64 = 50;

/// Rates of an interface, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Online rate from which on offline pods get the low rate, where the link's speed is not known.
    pub waterline: u64,
    /// What offline pods may always send.
    pub low: u64,
    /// What offline pods may send at most.
    pub high: u64,
    /// What the network behind the interface carries, if it is known.
    pub link: Option<u64>,
}

impl Settings {
    /// The lowest rate of offline pods, in bytes per second.
    pub fn lowest(&self) -> u64 {
        let bound = self.link.map_or(u64::MAX, |link| link / LOW_PART);
        self.low.min(bound).min(self.high).max(1)
    }

    /// The highest rate of offline pods, in bytes per second.
    pub fn highest(&self) -> u64 {
        self.high
            .min(self.link.unwrap_or(u64::MAX))
            .max(self.lowest())
    }
}

/// Counters at a moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    online: u64,
    offline: u64,
}

/// Bytes per second of both classes between two samples.
#[derive(Debug, Clone, Copy)]
struct Rates {
    online: f64,
    both: f64,
}

/// The rate of offline pods at one interface.
#[derive(Debug, Clone)]
pub struct Bandwidth {
    settings: Settings,
    /// Samples of the last [`CALM`], and the one before.
    samples: VecDeque<Sample>,
    /// What online pods are taken to want, in bytes per second, and until when.
    expected: Option<(f64, Duration)>,
    rate: u64,
}

impl Bandwidth {
    /// Begins with the low rate, until something is known of online pods.
    pub fn new(settings: Settings) -> Self {
        Bandwidth {
            settings,
            samples: VecDeque::new(),
            expected: None,
            rate: settings.lowest(),
        }
    }

    /// The rate of offline pods, in bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// What online pods sent in the last 100 ms, in bytes per second.
    pub fn online_rate(&self) -> f64 {
        let ends = self.samples.front().zip(self.samples.back());
        let rate = ends.map_or(0.0, |(first, last)| rates(*first, *last).online);
        match rate.is_finite() {
            true => rate,
            false => 0.0,
        }
    }

    /// Takes the bytes that online and offline pods have sent so far, as counted at the time `now`, and returns the rate of
    /// offline pods from now on, in bytes per second.
    pub fn step(&mut self, now: Duration, online: u64, offline: u64) -> u64 {
        let sample = Sample {
            at: now,
            online,
            offline,
        };
        let Some(last) = self.samples.back().copied() else {
            self.begin(sample);
            return self.rate;
        };
        let is_new = online < last.online || offline < last.offline || now < last.at;
        if is_new || now - last.at > LONGEST {
            self.begin(sample);
            return self.rate;
        }
        if now - last.at < SHORTEST {
            return self.rate;
        }
        let before = self.samples.front().map(|first| rates(*first, last));
        let newest = rates(last, sample);
        self.samples.push_back(sample);
        while let Some(second) = self.samples.get(1)
            && now - second.at >= CALM
        {
            self.samples.pop_front();
        }
        let mean = self
            .samples
            .front()
            .map_or(newest, |first| rates(*first, sample));
        self.expected = self.expected.filter(|(_, until)| now < *until);
        self.rate = match self.settings.link {
            None => self.by_waterline(now, newest),
            Some(link) => self.by_what_is_left(now, link as f64, before, newest, mean),
        };
        self.rate
    }

    /// Begins anew with the first sample. What online pods want is not known, so it may be everything.
    fn begin(&mut self, sample: Sample) {
        self.samples.clear();
        self.samples.push_back(sample);
        self.expected = Some((f64::INFINITY, sample.at + CALM));
        self.rate = self.settings.lowest();
    }

    fn by_waterline(&mut self, now: Duration, newest: Rates) -> u64 {
        if newest.online >= self.settings.waterline as f64 {
            self.expect(newest.online, now);
        }
        match self.expected {
            Some(_) => self.settings.lowest(),
            None => self.settings.highest(),
        }
    }

    fn by_what_is_left(
        &mut self,
        now: Duration,
        link: f64,
        before: Option<Rates>,
        newest: Rates,
        mean: Rates,
    ) -> u64 {
        let before = before.filter(|rates| rates.online.is_finite());
        let is_rising =
            before.is_some_and(|before| newest.online > RISING * before.online + RISING_BY * link);
        if is_rising {
            self.expect(GROWTH * newest.online, now);
        }
        if mean.both > FULL * link {
            self.expect(MORE * mean.online, now);
        }
        let expected = self.expected.map_or(0.0, |(demand, _)| demand);
        let left = TARGET * link - expected.max(mean.online);
        // Between bounds that are whole, so neither negative nor too large.
        (left.max(0.0) as u64).clamp(self.settings.lowest(), self.settings.highest())
    }

    fn expect(&mut self, demand: f64, now: Duration) {
        let before = self.expected.map_or(0.0, |(demand, _)| demand);
        // The higher one counts for longer than it would alone: both signs say the same of one rise.
        self.expected = Some((demand.max(before), now + CALM));
    }
}

/// Rates between two samples; those of samples at one time are not finite.
fn rates(from: Sample, to: Sample) -> Rates {
    let seconds = (to.at - from.at).as_secs_f64();
    let online = to.online.saturating_sub(from.online) as f64 / seconds;
    let offline = to.offline.saturating_sub(from.offline) as f64 / seconds;
    Rates {
        online,
        both: online + offline,
    }
}

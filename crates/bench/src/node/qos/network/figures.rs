//! What a trace of both flows says.

use std::thread;
use std::time::{Duration, Instant};

use super::stage::Counters;
use super::{OFFLINE_STARTS, OFFLINE_STOPS, ONLINE_RESTARTS, ONLINE_STOPS};

/// How often bytes are counted.
const EVERY: Duration = Duration::from_millis(10);
/// Online counts as back when it has this part of its rate alone,
const BACK: f64 = 0.95;
/// on average over this time, in milliseconds: samples of 10 ms are too coarse, since a packet has up to 64 KiB there.
const OVER_MS: u64 = 50;
/// A flow has begun with a sample of this part of the rate alone: offline may have a fiftieth.
const BEGUN: f64 = 0.005;
/// Time in which a dip after a change counts as its effect.
const WITHIN_MS: u64 = 1_000;

/// Rates of both flows, in bytes per second, by time.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    pub(super) samples: Vec<Sample>,
}

/// Rates between two counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The end, in milliseconds from the schedule's start.
    pub(super) at_ms: u64,
    pub(super) online: f64,
    pub(super) offline: f64,
}

/// Figures of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    /// Rate of the online flow alone, in bytes per second.
    pub(super) alone: f64,
    /// Time until online is back, from the first bytes of the flow that starts.
    pub(super) after_offline_starts_ms: f64,
    pub(super) after_online_restarts_ms: f64,
    /// Online rate beside the offline flow, as a part of that alone.
    pub(super) online_share: f64,
    /// Offline rate from a second after online has stopped, as a part of what online leaves.
    pub(super) offline_share: f64,
}

impl Figures {
    /// The longer of the two times.
    pub(super) fn recover_ms(&self) -> f64 {
        self.after_offline_starts_ms
            .max(self.after_online_restarts_ms)
    }
}

impl Trace {
    /// Counts for some time.
    ///
    /// # Errors
    /// When the stage is gone.
    pub(super) fn record(
        counters: &Counters,
        began: Instant,
        time: Duration,
    ) -> anyhow::Result<Trace> {
        let mut trace = Trace::default();
        let mut last = (began.elapsed(), counters.read()?);
        while began.elapsed() < time {
            let next = last.0 + EVERY;
            while let Some(left) = next.checked_sub(began.elapsed()) {
                thread::park_timeout(left);
            }
            let now = (began.elapsed(), counters.read()?);
            let seconds = (now.0 - last.0).as_secs_f64();
            let rate = |flow: usize| now.1[flow].saturating_sub(last.1[flow]) as f64 / seconds;
            trace.samples.push(Sample {
                at_ms: u64::try_from(now.0.as_millis()).unwrap_or(u64::MAX),
                online: rate(0),
                offline: rate(1),
            });
            last = now;
        }
        Ok(trace)
    }

    /// The figures; none if a flow was not seen.
    pub(super) fn figures(&self) -> Option<Figures> {
        let ms = |seconds: u64| seconds * 1_000;
        let alone = self.mean(ms(2), ms(OFFLINE_STARTS), |sample| sample.online)?;
        let begins = |from: u64, rate: fn(&Sample) -> f64| {
            let mut later = self.samples.iter().filter(|sample| sample.at_ms >= from);
            later
                .find(|sample| rate(sample) > BEGUN * alone)
                .map(|sample| sample.at_ms - 10)
        };
        let offline_starts = begins(ms(OFFLINE_STARTS) - 500, |sample| sample.offline)?;
        let online_restarts = begins(ms(ONLINE_RESTARTS) - 500, |sample| sample.online)?;
        // From a second after each start, so that the way back is not counted twice.
        let beside = [
            self.mean(offline_starts + 1_000, ms(ONLINE_STOPS) - 500, |sample| {
                sample.online
            })?,
            self.mean(online_restarts + 1_000, ms(OFFLINE_STOPS) - 500, |sample| {
                sample.online
            })?,
        ];
        let free = (ms(ONLINE_STOPS) + 1_000, ms(ONLINE_RESTARTS) - 500);
        let online = self.mean(free.0, free.1, |sample| sample.online)?;
        let offline = self.mean(free.0, free.1, |sample| sample.offline)?;
        Some(Figures {
            alone,
            after_offline_starts_ms: self.back_after(offline_starts, alone),
            after_online_restarts_ms: self.back_after(online_restarts, alone),
            online_share: beside[0].min(beside[1]) / alone,
            offline_share: offline / (alone - online),
        })
    }

    /// Time from `start` until online has its rate again, after the first dip within a second; 0 without a dip. When it
    /// does not come back, the time until the end of the trace.
    fn back_after(&self, start: u64, alone: f64) -> f64 {
        let is_back = |from: u64| {
            let online = self.mean(from, from + OVER_MS, |sample| sample.online);
            online.map(|online| online >= BACK * alone)
        };
        let mut times = (0..).map(|step| start + 10 * step);
        let dip = times.by_ref().take_while(|at| *at < start + WITHIN_MS);
        let Some(dip) = dip.into_iter().find(|at| is_back(*at) == Some(false)) else {
            return 0.0;
        };
        let mut at = dip;
        while is_back(at) == Some(false) {
            at += 10;
        }
        (at - start) as f64
    }

    /// Mean over the samples that end in a time, in milliseconds.
    fn mean(&self, after: u64, until: u64, rate: impl Fn(&Sample) -> f64) -> Option<f64> {
        let samples = self.samples.iter();
        let within = samples.filter(|sample| sample.at_ms > after && sample.at_ms <= until);
        let (sum, count) = within.fold((0.0, 0_u32), |(sum, count), sample| {
            (sum + rate(sample), count + 1)
        });
        (count > 0).then(|| sum / f64::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::{Sample, Trace};

    /// Online has 100 alone, dips to 60 for some time after each start, and then has 98.
    fn trace(dip_ms: u64) -> Trace {
        let samples = (1..=2_200).map(|step| {
            let at_ms = step * 10;
            let dips = |start: u64| (start + 1..=start + dip_ms).contains(&at_ms);
            let has_online = at_ms <= 10_000 || at_ms > 15_000;
            let has_offline = (5_001..=20_000).contains(&at_ms);
            let online = match (has_online, has_offline) {
                (false, _) => 0.0,
                (true, true) if dips(5_000) || dips(15_000) => 60.0,
                (true, true) => 98.0,
                (true, false) => 100.0,
            };
            let offline = if has_offline { 100.0 - online } else { 0.0 };
            Sample {
                at_ms,
                online,
                offline: offline * 0.95,
            }
        });
        Trace {
            samples: samples.collect(),
        }
    }

    #[test]
    fn the_way_back_is_measured_from_the_first_bytes() {
        for dip_ms in [0, 40, 300] {
            let figures = trace(dip_ms).figures().expect("both flows");
            // Windows are as long as five samples, so one bad sample counts for a little more or less.
            let (low, high) = (dip_ms.saturating_sub(10) as f64, dip_ms as f64 + 10.0);
            assert!(
                (low..=high).contains(&figures.recover_ms()),
                "{dip_ms}: {figures:?}"
            );
            assert!((figures.offline_share - 0.95).abs() < 0.001, "{figures:?}");
            assert!((figures.online_share - 0.98).abs() < 0.001, "{figures:?}");
        }
        assert!(Trace::default().figures().is_none());
    }

    #[test]
    fn online_that_does_not_come_back_has_a_long_way() {
        let figures = trace(5_000).figures().expect("both flows");
        assert!(figures.recover_ms() >= 4_900.0, "{figures:?}");
    }
}

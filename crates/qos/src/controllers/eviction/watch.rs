//! Whether something is short, with two marks and two times, so that it does not swing.

use std::time::Duration;

use super::{CALM, Cause, HOLD, Sample};

/// Part of the last ten seconds in which work waited, in hundredths of a percent (`avg10`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Some work waited.
    pub some: u32,
    /// All work waited.
    pub full: u32,
}

/// Memory of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySample {
    /// How much work waits for memory; none where the kernel does not tell.
    pub pressure: Option<Pressure>,
    /// All of it, in bytes.
    pub total: u64,
    /// What could be used at once, file pages that are not in use included, in bytes.
    pub available: u64,
}

impl MemorySample {
    /// What is available, in percent.
    fn available_percent(&self) -> u64 {
        let percent = u128::from(self.available) * 100 / u128::from(self.total.max(1));
        // At most 100, unless the numbers contradict each other.
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

/// Processors of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    /// Part of the last ten seconds in which work of online pods waited for a processor, in hundredths of a percent. What
    /// offline pods wait for does not count: to wait is their part.
    pub some: u32,
    /// Use of all processors since the last sample, in percent. A pod that its own quota holds back waits on an idle node,
    /// too.
    pub busy: u32,
}

/// A mark from which on something is short, and one from which on it is not.
struct Marks {
    high: u32,
    low: u32,
}

/// Work that waits for memory, in hundredths of a percent. Latencies suffer long before what systemd-oomd waits for (all
/// work waits 60 % of the time).
const MEMORY_SOME: Marks = Marks {
    high: 2_000,
    low: 1_000,
};
const MEMORY_FULL: Marks = Marks {
    high: 1_000,
    low: 500,
};
/// Percent of available memory above which pressure is none of the node's: an offline pod at its own limit waits, too.
const ROOM: Marks = Marks { high: 20, low: 25 };
/// Percent of available memory below which it is short whatever waits: without swap there is hardly any pressure before the
/// kernel kills.
const SCARCE: Marks = Marks { high: 4, low: 6 };
/// Work of online pods that waits for a processor, in hundredths of a percent,
const CPU_SOME: Marks = Marks {
    high: 4_000,
    low: 2_000,
};
/// on processors that are so busy, in percent. The low mark is below the high one.
const CPU_BUSY: Marks = Marks { high: 95, low: 85 };

/// What a sample says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Not short. Also when nothing is known.
    Low,
    /// Neither.
    Between,
    /// Short.
    High,
}

impl Level {
    pub(super) fn of(cause: Cause, sample: &Sample) -> Level {
        let level = match cause {
            Cause::Memory => sample.memory.as_ref().map(Level::of_memory),
            Cause::Cpu => sample.cpu.as_ref().map(Level::of_cpu),
        };
        level.unwrap_or(Level::Low)
    }

    fn of_memory(sample: &MemorySample) -> Level {
        let available = sample.available_percent();
        let is_below = |mark: u32| available < u64::from(mark);
        let Pressure { some, full } = sample.pressure.unwrap_or_default();
        let is_stalled = some >= MEMORY_SOME.high || full >= MEMORY_FULL.high;
        let is_flowing = some < MEMORY_SOME.low && full < MEMORY_FULL.low;
        if is_below(SCARCE.high) || is_stalled && is_below(ROOM.high) {
            return Level::High;
        }
        match !is_below(SCARCE.low) && (is_flowing || !is_below(ROOM.low)) {
            true => Level::Low,
            false => Level::Between,
        }
    }

    fn of_cpu(sample: &CpuSample) -> Level {
        if sample.some >= CPU_SOME.high && sample.busy >= CPU_BUSY.high {
            return Level::High;
        }
        match sample.some < CPU_SOME.low || sample.busy < CPU_BUSY.low {
            true => Level::Low,
            false => Level::Between,
        }
    }
}

/// Pressure of online pods below which it need not be looked at closely, in hundredths of a percent.
pub(crate) const LEAST_CPU_PRESSURE: u32 = CPU_SOME.low;

/// Follows levels.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_pressed: bool,
    /// Since when all samples are high.
    high_since: Option<Duration>,
    /// Since when all samples are low.
    low_since: Option<Duration>,
}

impl Watch {
    /// `is_gap` says that nothing is known of the time before this sample.
    pub(super) fn follow(&mut self, now: Duration, level: Level, is_gap: bool) {
        let since = |is_so: bool, before: Option<Duration>| {
            let before = before.filter(|_| !is_gap).unwrap_or(now);
            // A clock that went back tells nothing, either.
            is_so.then_some(before.min(now))
        };
        self.high_since = since(level == Level::High, self.high_since);
        self.low_since = since(level == Level::Low, self.low_since);
        let lasts = |since: Option<Duration>, time| since.is_some_and(|since| now - since >= time);
        if lasts(self.high_since, HOLD) {
            self.is_pressed = true;
        } else if lasts(self.low_since, CALM) {
            self.is_pressed = false;
        }
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    pub(super) fn is_rising_or_pressed(&self) -> bool {
        self.is_pressed || self.high_since.is_some()
    }

    /// Whether all samples of the last `time` were high.
    pub(super) fn is_high_for(&self, now: Duration, time: Duration) -> bool {
        let since = self.high_since;
        since.is_some_and(|since| now.saturating_sub(since) >= time)
    }
}

/// Why a pod is advised that has, or uses, `amount`: bytes, or percent of a processor.
pub(super) fn why(sample: &Sample, cause: Cause, amount: u64) -> String {
    let percent = |hundredths: u32| f64::from(hundredths) / 100.0;
    let seconds = HOLD.as_secs();
    match (cause, sample.memory, sample.cpu) {
        (Cause::Memory, Some(memory), _) => {
            let waits = memory.pressure.map_or_else(String::new, |pressure| {
                let (some, full) = (percent(pressure.some), percent(pressure.full));
                format!(", some work waits for it {some:.0} % of the time, all work {full:.0} %")
            });
            let available = memory.available_percent();
            let mib = amount >> 20;
            format!(
                "memory is short for {seconds} s: {available} % is available{waits}; of the offline pods it has the most, {mib} MiB"
            )
        }
        (Cause::Cpu, _, Some(cpu)) => {
            let (some, busy) = (percent(cpu.some), cpu.busy);
            format!(
                "processors are short for {seconds} s: they are {busy} % busy, and work of online pods waits {some:.0} % of the time; of the offline pods it uses the most, {amount} % of a processor"
            )
        }
        _ => format!("{cause} is short"),
    }
}

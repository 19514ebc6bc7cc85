//! Advice which offline pod to evict, from pressure that lasts (Documentation/accounting/psi.rst).
//!
//! ```text
//!            HOLD of nothing but high samples
//!   calm ───────────────────────────────────────► pressed: the pod that has the most is advised
//!     ◄───────────────────────────────────────────
//!            CALM of nothing but low samples
//! ```
//!
//! Between the two marks nothing changes, so noise that is smaller than the gap changes nothing. The pod that is
//! advised stays so until it is gone, or another one has twice as much.
//!
//! Where evictions are allowed, [`Eviction::order`] makes at most one a minute, and only while every sample of the last
//! `HOLD` is high: what the one before has brought shows by then.

mod victim;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::victim::{Use, chosen, kept};
pub(crate) use self::watch::LEAST_CPU_PRESSURE;
pub use self::watch::{CpuSample, MemorySample, Pressure};
use self::watch::{Level, Watch};
use crate::now::Now;

#[cfg(test)]
mod tests;

/// How often [`Eviction::step`] is called.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Samples that are further apart say nothing about the time between them.
const LONGEST: Duration = Duration::from_secs(12);
/// How long there is pressure before an eviction is advised.
const HOLD: Duration = Duration::from_secs(30);
/// How long there is none before it no longer is.
const CALM: Duration = Duration::from_secs(60);
/// Time between the beginnings of two evictions.
const BETWEEN: Duration = Duration::from_secs(60);
/// How long a pod that is evicted may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// What is done about pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: it is not looked at.
    Off,
    /// An eviction is advised.
    Advise,
    /// It is done, where it is ours to do.
    Act,
}

/// What is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Memory.
    Memory,
    /// Processors.
    Cpu,
}

impl Cause {
    const ALL: [Cause; 2] = [Cause::Memory, Cause::Cpu];

    /// As in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Memory => "memory",
            Cause::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of the node; nothing of what could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its memory.
    pub memory: Option<MemorySample>,
    /// Its processors.
    pub cpu: Option<CpuSample>,
}

/// An offline pod that may be advised. Online pods are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub pod: String,
    /// Bytes of memory that it has.
    pub memory: u64,
    /// Processor time that it has used so far, in microseconds; none where to evict it would free no processor for others.
    pub cpu_us: Option<u64>,
}

/// An eviction that is advised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The offline pod.
    pub pod: String,
    /// What is short.
    pub cause: Cause,
    /// The reason, as in output.
    pub why: String,
    /// Since when it is advised, in seconds since 1970.
    #[serde(rename = "since")]
    pub since_s: u64,
}

/// A change of what is advised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// From now on.
    Began(Advice),
    /// No longer.
    Ended(Advice),
}

/// What is to be done to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Ask its processes to end. With the reason.
    Terminate(String, String),
    /// End what is left of them.
    Kill(String),
}

/// Advice for one node.
#[derive(Debug, Default)]
pub struct Eviction {
    memory: Watch,
    cpu: Watch,
    used: Use,
    advice: Vec<Advice>,
    last: Option<Duration>,
    /// The last eviction: when it began, and its pod until that is gone.
    evicting: Option<(Duration, Option<String>)>,
}

impl Eviction {
    /// Whether the use of each pod matters: there is pressure, or there was until just now.
    pub fn wants_candidates(&self, sample: &Sample) -> bool {
        Cause::ALL.into_iter().any(|cause| {
            let watch = self.watch(cause);
            watch.is_rising_or_pressed() || Level::of(cause, sample) == Level::High
        })
    }

    /// Takes a sample. `candidates` may be empty unless [`Eviction::wants_candidates`].
    pub fn step(&mut self, now: Now, sample: &Sample, candidates: &[Candidate]) -> Vec<Event> {
        let since_last = self.last.map(|last| now.since.saturating_sub(last));
        let is_gap = since_last.is_some_and(|since| since > LONGEST);
        self.last = Some(now.since);
        self.used.follow(now.since, candidates);
        let mut events = Vec::new();
        for cause in Cause::ALL {
            let level = Level::of(cause, sample);
            let watch = match cause {
                Cause::Memory => &mut self.memory,
                Cause::Cpu => &mut self.cpu,
            };
            watch.follow(now.since, level, is_gap);
            let (is_pressed, is_high) = (watch.is_pressed(), watch.is_high_for(now.since, HOLD));
            let before = self.advice.iter().find(|advice| advice.cause == cause);
            let before = before.cloned();
            let last = before.as_ref().map(|advice| advice.pod.as_str());
            let amounts = self.used.amounts(cause, candidates);
            let chosen = match (is_pressed, is_high) {
                (false, _) => None,
                // Perhaps the one that is gone was enough: another one needs as much pressure as the first.
                (true, false) => kept(&amounts, last),
                (true, true) => chosen(&amounts, last),
            };
            if chosen.map(|one| one.0) == last {
                continue;
            }
            self.advice.retain(|advice| advice.cause != cause);
            events.extend(before.map(Event::Ended));
            if let Some((pod, amount)) = chosen {
                let advice = Advice {
                    pod: pod.to_owned(),
                    cause,
                    why: watch::why(sample, cause, amount),
                    since_s: now.unix_s,
                };
                self.advice.push(advice.clone());
                events.push(Event::Began(advice));
            }
        }
        events
    }

    /// What is advised.
    pub fn advice(&self) -> &[Advice] {
        &self.advice
    }

    /// The pod that is being evicted.
    pub fn evicting(&self) -> Option<&str> {
        self.evicting.as_ref()?.1.as_deref()
    }

    /// What is to be done now, where it may be done to the pods in `allowed`. Killing is ordered again until
    /// [`Eviction::is_gone`].
    pub fn order(&mut self, now: Duration, allowed: &BTreeSet<&str>) -> Option<Order> {
        let since = |began: Duration| now.saturating_sub(began);
        if let Some((began, pod)) = &self.evicting
            && since(*began) < BETWEEN
        {
            let is_due = |pod: &&String| since(*began) >= GRACE && allowed.contains(pod.as_str());
            return pod.as_ref().filter(is_due).cloned().map(Order::Kill);
        }
        // What did not end within that time is in the kernel, and holds up no other pod.
        self.evicting = None;
        let advice = self.advice.iter().find(|advice| {
            self.watch(advice.cause).is_high_for(now, HOLD) && allowed.contains(advice.pod.as_str())
        })?;
        let order = Order::Terminate(advice.pod.clone(), advice.why.clone());
        self.evicting = Some((now, Some(advice.pod.clone())));
        Some(order)
    }

    /// The pod that was being evicted has no process left, or is another one now.
    pub fn is_gone(&mut self) {
        if let Some((_, pod)) = &mut self.evicting {
            *pod = None;
        }
    }

    fn watch(&self, cause: Cause) -> &Watch {
        match cause {
            Cause::Memory => &self.memory,
            Cause::Cpu => &self.cpu,
        }
    }
}

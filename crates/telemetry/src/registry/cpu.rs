//! Processor time of the proxy, by the caller it was used for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_model::Class;

use super::OTHER;

/// The caller that time was used for, and its class. The Workers' own work has the name `heddle`.
type Source = (Arc<str>, Class);

/// Processor time by caller, for a limited number of callers.
#[derive(Debug, Default)]
pub(super) struct CpuTimes {
    times: BTreeMap<Source, CpuTime>,
}

#[derive(Debug)]
struct CpuTime {
    ns: u64,
    changed: Instant,
}

impl CpuTimes {
    /// Adds nanoseconds. Beyond `most` callers, further ones are `other`.
    pub(super) fn add(&mut self, source: &Arc<str>, class: Class, ns: u64, most: usize) {
        let now = Instant::now();
        let mut of = (Arc::clone(source), class);
        if self.times.len() >= most && !self.times.contains_key(&of) {
            of.0 = OTHER.into();
        }
        let time = self.times.entry(of).or_insert(CpuTime {
            ns: 0,
            changed: now,
        });
        time.ns += ns;
        time.changed = now;
    }

    /// Forgets callers for which no time was used for so long.
    pub(super) fn forget_unused(&mut self, now: Instant, unused: Duration) {
        self.times
            .retain(|_, time| now.saturating_duration_since(time.changed) < unused);
    }

    /// Seconds by caller.
    pub(super) fn seconds(&self) -> BTreeMap<Source, f64> {
        let times = self.times.iter();
        times
            .map(|(source, time)| (source.clone(), time.ns as f64 / 1e9))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_limited_and_forgotten() {
        let mut times = CpuTimes::default();
        for (source, class) in [
            ("a", Class::Online),
            ("a", Class::Offline),
            ("b", Class::Online),
            ("c", Class::Online),
            ("a", Class::Online),
        ] {
            times.add(&source.into(), class, 500_000_000, 2);
        }
        let seen = times.seconds();
        let seen: Vec<(&str, Class, f64)> = seen
            .iter()
            .map(|((source, class), seconds)| (&**source, *class, *seconds))
            .collect();
        let wanted = [
            ("a", Class::Online, 1.0),
            ("a", Class::Offline, 0.5),
            ("other", Class::Online, 1.0),
        ];
        assert_eq!(seen, wanted);
        let unused = Duration::from_secs(600);
        times.forget_unused(Instant::now(), unused);
        assert_eq!(times.times.len(), 3);
        times.forget_unused(Instant::now() + unused, unused);
        assert!(times.times.is_empty());
    }
}

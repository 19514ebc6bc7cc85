//! Which pod is advised.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Candidate, Cause};

/// Least use of a processor, in percent of one, of which to be rid would help.
const LEAST_CPU: u64 = 10;
/// The pod that is advised stays so until another one has so many times as much.
const MORE: u64 = 2;
/// How much the newest sample counts in the use of a processor, against three times what was known.
const OLD: u64 = 3;

/// The use of processors by each pod.
#[derive(Debug, Default)]
pub(super) struct Use {
    at: Duration,
    /// Counter in microseconds, and use in percent of one processor.
    pods: BTreeMap<String, (u64, Option<u64>)>,
}

impl Use {
    /// Takes the counters of all pods. One that is new has no use yet.
    pub(super) fn follow(&mut self, now: Duration, candidates: &[Candidate]) {
        let passed = now.saturating_sub(self.at).as_micros();
        self.at = now;
        let mut before = std::mem::take(&mut self.pods);
        for candidate in candidates {
            let Some(counter) = candidate.cpu_us else {
                continue;
            };
            let known = before.remove(&candidate.pod);
            // A counter that went back is that of another group.
            let known = known.filter(|(last, _)| *last <= counter && passed > 0);
            let used = known.map(|(last, used)| {
                let newest = u128::from(counter - last) * 100 / passed.max(1);
                let newest = u64::try_from(newest).unwrap_or(u64::MAX);
                used.map_or(newest, |used| {
                    used.saturating_mul(OLD).saturating_add(newest) / (OLD + 1)
                })
            });
            self.pods.insert(candidate.pod.clone(), (counter, used));
        }
    }

    /// What each pod has, or uses, of what is short: bytes, or percent of a processor. Pods of which to be rid would not
    /// help are left out.
    pub(super) fn amounts<'c>(
        &self,
        cause: Cause,
        candidates: &'c [Candidate],
    ) -> Vec<(&'c str, u64)> {
        let amount = |candidate: &Candidate| match cause {
            Cause::Memory => Some(candidate.memory).filter(|bytes| *bytes > 0),
            Cause::Cpu => {
                let used = candidate.cpu_us.and(self.pods.get(&candidate.pod)?.1);
                used.filter(|percent| *percent >= LEAST_CPU)
            }
        };
        let all = candidates.iter();
        all.filter_map(|candidate| Some((candidate.pod.as_str(), amount(candidate)?)))
            .collect()
    }
}

/// The pod that has the most, the first by name among equals; or the one before, if none has twice as much.
pub(super) fn chosen<'c>(
    amounts: &[(&'c str, u64)],
    before: Option<&str>,
) -> Option<(&'c str, u64)> {
    let most = amounts
        .iter()
        .max_by_key(|(pod, amount)| (*amount, Reverse(*pod)))?;
    let same = kept(amounts, before);
    let same = same.filter(|(_, amount)| most.1 < amount.saturating_mul(MORE));
    Some(same.unwrap_or(*most))
}

/// The pod before, unless it is gone.
pub(super) fn kept<'c>(amounts: &[(&'c str, u64)], before: Option<&str>) -> Option<(&'c str, u64)> {
    let mut amounts = amounts.iter();
    amounts.find(|(pod, _)| Some(*pod) == before).copied()
}

//! The retry budget: a share of the recent requests, and a small minimum. Without it, a Service that is down would get
//! three times the requests of one that works.
//!
//! As in Finagle and in the Gateway API (GEP-3388), over ten seconds.

use heddle_model::RetryBudget;

use crate::clock::Millis;

/// Number of slots in the window, and the length of each: 2^`SLOT_BITS` milliseconds.
const SLOTS: usize = 10;
const SLOT_BITS: u32 = 10;

/// Requests and retries of about the last ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Number of the newest slot, counted from time 0.
    newest: u64,
    slots: [BudgetSlot; SLOTS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BudgetSlot {
    requests: u32,
    retries: u32,
}

impl Budget {
    /// Counts a request.
    pub(crate) fn request(&mut self, now: Millis) {
        let slot = self.slot(now);
        slot.requests = slot.requests.saturating_add(1);
    }

    /// Takes one retry. `false`: none is left. The budget's minimum is divided among `shares`.
    pub(crate) fn retry(&mut self, rules: &RetryBudget, now: Millis, shares: usize) -> bool {
        self.slot(now);
        let sum = |of: fn(&BudgetSlot) -> u32| {
            self.slots
                .iter()
                .map(|slot| u64::from(of(slot)))
                .sum::<u64>()
        };
        let (requests, retries) = (sum(|slot| slot.requests), sum(|slot| slot.retries));
        let shares = u64::try_from(shares.max(1)).unwrap_or(1);
        let least = (u64::from(rules.min_per_second) * SLOTS as u64).div_ceil(shares);
        let allowed = requests * u64::from(rules.percent) / 100 + least;
        if retries >= allowed {
            return false;
        }
        let slot = self.slot(now);
        slot.retries = slot.retries.saturating_add(1);
        true
    }

    /// The slot of the current time; older slots are cleared.
    fn slot(&mut self, now: Millis) -> &mut BudgetSlot {
        let number = now >> SLOT_BITS;
        if number > self.newest {
            let passed = (number - self.newest).min(SLOTS as u64);
            for past in 0..passed {
                self.slots[index(number - past)] = BudgetSlot::default();
            }
            self.newest = number;
        }
        &mut self.slots[index(self.newest)]
    }
}

fn index(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: RetryBudget = RetryBudget {
        percent: 20,
        min_per_second: 1,
    };

    fn drain(budget: &mut Budget, now: Millis) -> usize {
        (0..).take_while(|_| budget.retry(&RULES, now, 1)).count()
    }

    #[test]
    fn a_few_are_allowed_whatever_comes() {
        let mut budget = Budget::default();
        assert_eq!(drain(&mut budget, 0), 10);
        assert_eq!(drain(&mut budget, 9_000), 0);
        assert_eq!(drain(&mut budget, 11_000), 10);
        assert_eq!(drain(&mut budget, 1_000_000), 10);
    }

    #[test]
    fn beyond_that_a_share_of_what_comes() {
        let mut budget = Budget::default();
        (0..1_000).for_each(|i| budget.request(i));
        assert_eq!(drain(&mut budget, 1_000), 210);
        (0..100).for_each(|_| budget.request(2_000));
        assert_eq!(drain(&mut budget, 2_000), 20);
        // Requests and their retries leave the window together.
        assert_eq!(drain(&mut budget, 30_000), 10);
    }

    #[test]
    fn several_share_the_few() {
        let mut budget = Budget::default();
        let count = (0..).take_while(|_| budget.retry(&RULES, 0, 4)).count();
        assert_eq!(count, 3);
        let none = RetryBudget {
            percent: 0,
            min_per_second: 0,
        };
        assert!(!Budget::default().retry(&none, 0, 1));
    }

    proptest! {
        /// For any sequence of requests and failures: retries within the window never exceed the budget.
        #[test]
        fn it_is_kept(steps in prop::collection::vec((0u64..2_000, 0u32..30, 0u32..60), 1..100)) {
            let (mut budget, mut now) = (Budget::default(), 0);
            let mut log: Vec<(Millis, u32, u64)> = Vec::new();
            for (later, requests, wanted) in steps {
                now += later;
                (0..requests).for_each(|_| budget.request(now));
                let got = (0..wanted).filter(|_| budget.retry(&RULES, now, 1)).count() as u64;
                log.push((now, requests, got));
                let oldest = (now >> SLOT_BITS).saturating_sub(SLOTS as u64 - 1) << SLOT_BITS;
                let recent = || log.iter().filter(|(at, ..)| *at >= oldest);
                let retries: u64 = recent().map(|(_, _, got)| got).sum();
                let requests: u64 = recent().map(|(_, requests, _)| u64::from(*requests)).sum();
                prop_assert!(got == 0 || retries <= requests / 5 + 10);
            }
        }
    }
}

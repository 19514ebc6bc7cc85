//! Memory by fast suppression and slow recovery (FSSR), as openEuler's rubik has it: when free memory runs short, offline
//! pods lose a tenth of the machine at once; when there is plenty for a minute, they get a hundredth back.

use std::time::Duration;

/// How often [`Fssr::step`] is called.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Part of the machine's memory that should stay free, in percent.
const RESERVED: u64 = 10;
/// Memory is plenty above this many times the reserve.
const PLENTY: u64 = 2;
/// Steps with plenty of memory before a limit is raised.
const CALM_STEPS: u32 = 12;
/// Parts of the machine's memory, in percent: what a step takes and gives, and the bounds of the limit.
const TAKEN: u64 = 10;
const GIVEN: u64 = 1;
const FLOOR: u64 = 30;
const CEILING: u64 = 80;

/// The limit of each offline pod's memory.
#[derive(Debug, Clone)]
pub struct Fssr {
    total: u64,
    limit: u64,
    calm: u32,
}

impl Fssr {
    /// Begins with the highest limit. `total` is the node's memory in bytes.
    pub fn new(total: u64) -> Self {
        Fssr {
            total,
            limit: percent(total, CEILING),
            calm: 0,
        }
    }

    /// The node's memory, in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The limit in force, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Free memory, in bytes, below which memory is taken away.
    fn reserve(&self) -> u64 {
        percent(self.total, RESERVED)
    }

    /// Takes a sample of the free memory, in bytes, and returns the limit from now on.
    pub fn step(&mut self, free: u64) -> u64 {
        let reserve = self.reserve();
        if free < reserve {
            self.calm = 0;
            let less = self.limit.saturating_sub(percent(self.total, TAKEN));
            self.limit = less.max(percent(self.total, FLOOR));
        } else if free <= PLENTY * reserve {
            self.calm = 0;
        } else if self.calm < CALM_STEPS {
            self.calm += 1;
        } else {
            self.calm = 0;
            let more = self.limit + percent(self.total, GIVEN);
            self.limit = more.min(percent(self.total, CEILING));
        }
        self.limit
    }
}

/// A part of an amount. Whole bytes, never more than the exact part.
fn percent(total: u64, percent: u64) -> u64 {
    total / 100 * percent + total % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Fssr;

    #[test]
    fn short_memory_takes_a_tenth_at_once_and_a_calm_minute_gives_a_hundredth_back() {
        let mut fssr = Fssr::new(1_000);
        assert_eq!(fssr.limit(), 800);
        assert_eq!((fssr.step(99), fssr.step(0)), (700, 600));
        for _ in 0..5 {
            fssr.step(50);
        }
        assert_eq!(fssr.limit(), 300, "never below the floor");
        // Neither short nor plenty: nothing happens, and the calm begins anew.
        let mut calm = |steps: usize| (0..steps).map(|_| fssr.step(201)).last();
        assert_eq!(calm(12), Some(300));
        assert_eq!(fssr.step(200), 300);
        let mut calm = |steps: usize| (0..steps).map(|_| fssr.step(201)).last();
        assert_eq!(
            (calm(12), calm(1), calm(12), calm(1)),
            (Some(300), Some(310), Some(310), Some(320))
        );
        assert_eq!(calm(13 * 100), Some(800), "never above the ceiling");
    }

    proptest! {
        #[test]
        fn the_limit_stays_in_its_bounds(total in 1u64..u64::MAX / 2, free in prop::collection::vec(0u64..100, 0..200)) {
            let mut fssr = Fssr::new(total);
            for percent in free {
                let before = fssr.limit();
                let limit = fssr.step(total / 100 * percent);
                prop_assert!(limit >= total / 100 * 30 && limit <= total / 100 * 80 + 80);
                prop_assert!(limit <= before || percent > 19, "raised with {percent} % free");
                prop_assert!(limit >= before || percent < 11, "lowered with {percent} % free");
            }
        }
    }
}

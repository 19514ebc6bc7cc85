//! How the limits of the process are divided among its Workers.

use heddle_model::Class;

/// Of the limits, the part that Workers for offline callers have together, while there are any: one of so many. When
/// they run out, offline callers are refused, and online callers are not.
const OFFLINE_ONE_OF: usize = 4;

/// The part of the process's limits that a Worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitShare {
    parts: usize,
    of: usize,
}

impl LimitShare {
    /// All of them.
    pub(crate) const ALL: LimitShare = LimitShare { parts: 1, of: 1 };

    /// The part of each Worker of a class, of which there are so many for online callers and for offline ones.
    pub(crate) fn of_worker(class: Class, [online, offline]: [usize; 2]) -> LimitShare {
        let (online, of_offline) = (online.max(1), offline.max(1));
        let (parts, of) = match class {
            Class::Online if offline == 0 => (1, online),
            Class::Online => (OFFLINE_ONE_OF - 1, OFFLINE_ONE_OF.saturating_mul(online)),
            Class::Offline => (1, OFFLINE_ONE_OF.saturating_mul(of_offline)),
        };
        LimitShare { parts, of }
    }

    /// Its part of a limit, rounded down.
    pub(crate) fn at_most(self, limit: usize) -> usize {
        limit.saturating_mul(self.parts) / self.of
    }

    /// Its part of a limit, rounded up: without any it could serve no client.
    pub(crate) fn at_least_one(self, limit: usize) -> usize {
        limit.saturating_mul(self.parts).div_ceil(self.of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offline_callers_have_a_quarter_while_there_are_any() {
        let share = |class, workers| LimitShare::of_worker(class, workers).at_most(1_200);
        assert_eq!(share(Class::Online, [1, 0]), 1_200);
        assert_eq!(share(Class::Online, [3, 0]), 400);
        assert_eq!(share(Class::Online, [3, 2]), 300);
        assert_eq!(share(Class::Offline, [3, 2]), 150);
        assert_eq!(LimitShare::ALL.at_most(7), 7);
        let least = LimitShare::of_worker(Class::Offline, [3, 2]).at_least_one(1);
        assert_eq!(least, 1);
    }

    proptest! {
        #[test]
        fn together_they_have_no_more_than_there_is(
            limit in 0usize..1 << 40, online in 1usize..64, offline in 0usize..64,
        ) {
            let of = |class| LimitShare::of_worker(class, [online, offline]).at_most(limit);
            let all = online * of(Class::Online) + offline * of(Class::Offline);
            prop_assert!(all <= limit);
        }
    }
}

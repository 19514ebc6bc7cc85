//! Weighted round robin, computed in advance.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most turns of a schedule; weights that would need more are rounded.
const MAX_SCHEDULE: u64 = 4096;

/// The order of the endpoints' turns: as many for each as its weight says, evenly spread.
///
/// Built once for each configuration by smooth weighted round robin, so that a pick is one array access for any
/// weights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    turns: Box<[u16]>,
    /// The weight of each endpoint, divided by their common divisor, perhaps rounded.
    weights: Box<[u64]>,
    /// Each endpoint has one turn or none.
    is_even: bool,
}

impl Schedule {
    /// Builds the schedule of endpoints with these weights. Endpoints beyond the first 65,536 get no turn.
    pub(crate) fn new(weights: &[u32]) -> Self {
        let weights = &weights[..weights.len().min(1 << 16)];
        let weights = reduced(weights);
        let total: u64 = weights.iter().sum();
        if weights.iter().all(|&weight| weight <= 1) {
            let turns = (0..=u16::MAX)
                .zip(&weights)
                .filter(|(_, w)| **w == 1)
                .map(|(i, _)| i);
            return Schedule {
                turns: turns.collect(),
                weights: weights.into(),
                is_even: true,
            };
        }
        let mut groups = groups(&weights);
        let cost = i64::try_from(total).unwrap_or(i64::MAX);
        let one_turn = |_| {
            for group in &mut groups {
                group.current += group.weight;
            }
            // Of equal groups the one with the lowest endpoint index wins, so that the order is that of the endpoints.
            let best = groups
                .iter_mut()
                .max_by_key(|group| (group.current, Reverse(group.members[group.next])));
            best.map_or(0, |best| best.take(cost))
        };
        Schedule {
            turns: (0..total).map(one_turn).collect(),
            weights: weights.into(),
            is_even: false,
        }
    }

    pub(super) fn weight(&self, endpoint: usize) -> u64 {
        self.weights.get(endpoint).copied().unwrap_or(0)
    }

    /// Whether each endpoint has one turn or none.
    pub(super) fn is_even(&self) -> bool {
        self.is_even
    }

    /// Number of turns.
    pub(super) fn len(&self) -> u64 {
        self.turns.len() as u64
    }

    /// Number of endpoints, including those without a turn.
    pub(super) fn endpoints(&self) -> usize {
        self.weights.len()
    }

    pub(super) fn turn(&self, number: u64) -> Option<usize> {
        let length = self.turns.len() as u64;
        let at = number.checked_rem(length)?;
        self.turns
            .get(usize::try_from(at).ok()?)
            .map(|&i| usize::from(i))
    }
}

/// Endpoints of the same weight. All of them gain the same with each turn, and the one that had its turn becomes the
/// last of them: they take their turns one after the other, and only the next member has to be compared with other
/// groups. There are few different weights, since the sum of all is bounded.
struct Group {
    weight: i64,
    members: Vec<u16>,
    /// Index in `members` of the one whose turn is next.
    next: usize,
    /// Credit of that member: gained with each turn, spent by taking one.
    current: i64,
}

impl Group {
    /// Takes the next member's turn, which costs `cost`.
    fn take(&mut self, cost: i64) -> u16 {
        let taken = self.members[self.next];
        self.next += 1;
        if self.next == self.members.len() {
            // The first member has taken its turn in this round already, so its credit is lower by one cost.
            self.next = 0;
            self.current -= cost;
        }
        taken
    }
}

/// Groups the endpoints that have any weight.
fn groups(weights: &[u64]) -> Vec<Group> {
    let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
    for (index, &weight) in (0..=u16::MAX).zip(weights).filter(|(_, w)| **w > 0) {
        let group = groups.entry(weight).or_insert_with(|| Group {
            weight: i64::try_from(weight).unwrap_or(i64::MAX),
            members: Vec::new(),
            next: 0,
            current: 0,
        });
        group.members.push(index);
    }
    groups.into_values().collect()
}

/// The greatest common divisor of the weights; 1 if all are 0 or none are given.
pub(super) fn divisor(weights: impl Iterator<Item = u32>) -> u64 {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    weights.fold(0, |d, w| gcd(d, u64::from(w))).max(1)
}

/// Divides the weights by their common divisor, and if the sum exceeds [`MAX_SCHEDULE`], scales them down to about that
/// sum, with at least 1 for each weight above 0.
fn reduced(weights: &[u32]) -> Vec<u64> {
    let divisor = divisor(weights.iter().copied());
    let weights: Vec<u64> = weights.iter().map(|&w| u64::from(w) / divisor).collect();
    let total: u64 = weights.iter().sum();
    if total <= MAX_SCHEDULE || weights.iter().all(|&w| w <= 1) {
        return weights;
    }
    weights
        .iter()
        .map(|&w| {
            if w == 0 {
                0
            } else {
                (w * MAX_SCHEDULE / total).max(1)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_heavy_endpoint_does_not_get_its_turns_in_a_row() {
        // The sequence of nginx's smooth weighted round robin for 5, 1, 1.
        let schedule = Schedule::new(&[5, 1, 1]);
        let turns: Vec<usize> = (0..7).filter_map(|i| schedule.turn(i)).collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn one_that_is_heavier_among_very_many_costs_little() {
        let mut weights = vec![1; 10_000];
        weights[7] = 5;
        assert_eq!(Schedule::new(&weights).len(), 10_001);
        // Each turn compares these groups, not the endpoints.
        assert_eq!(groups(&reduced(&weights)).len(), 2);
    }

    /// Reference implementation, as in nginx: every turn compares every endpoint.
    fn smooth(weights: &[u64]) -> Vec<u16> {
        let total: u64 = weights.iter().sum();
        let mut current = vec![0i128; weights.len()];
        let one_turn = |_| {
            for (current, &weight) in current.iter_mut().zip(weights) {
                *current += i128::from(weight);
            }
            let best = (0..current.len()).rev().max_by_key(|&i| current[i]);
            let best = best.unwrap();
            current[best] -= i128::from(total);
            u16::try_from(best).unwrap()
        };
        (0..total).map(one_turn).collect()
    }

    proptest! {
        #[test]
        fn its_order_is_that_of_smooth_weighted_round_robin(
            weights in prop::collection::vec(prop_oneof![0u32..4, 0u32..300], 1..20),
        ) {
            let schedule = Schedule::new(&weights);
            prop_assert_eq!(&*schedule.turns, smooth(&reduced(&weights)));
        }

        #[test]
        fn a_schedule_gives_everyone_their_share(weights in prop::collection::vec(0u32..2000, 1..40)) {
            let schedule = Schedule::new(&weights);
            prop_assert!(schedule.turns.len() as u64 <= MAX_SCHEDULE + weights.len() as u64);
            let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
            for (i, &weight) in weights.iter().enumerate() {
                let turns = schedule.turns.iter().filter(|&&t| usize::from(t) == i).count();
                prop_assert_eq!(turns == 0, weight == 0);
                if total > 0 {
                    let want = f64::from(weight) / total as f64;
                    let got = turns as f64 / schedule.turns.len() as f64;
                    prop_assert!((want - got).abs() < 0.02, "{} wanted {}, got {}", i, want, got);
                }
            }
        }
    }
}

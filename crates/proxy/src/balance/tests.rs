use super::*;
use proptest::prelude::*;

const FREE: Load = Load {
    active: 0,
    avoid: false,
};

fn counts(weights: &[u32], picks: u64, balancer: Balancer) -> Vec<u64> {
    let schedule = Schedule::new(weights);
    let mut random = Random::new(42);
    let mut counts = vec![0; weights.len()];
    for turn in 0..picks {
        if let Some(i) = choose(balancer, &schedule, turn, random.next(), |_| FREE) {
            counts[i] += 1;
        }
    }
    counts
}

#[test]
fn round_robin_is_exact_over_a_round() {
    assert_eq!(
        counts(&[1, 1, 1], 300, Balancer::RoundRobin),
        [100, 100, 100]
    );
    assert_eq!(
        counts(&[1, 2, 3], 600, Balancer::RoundRobin),
        [100, 200, 300]
    );
    assert_eq!(counts(&[0, 5], 10, Balancer::RoundRobin), [0, 10]);
}

#[test]
fn a_heavy_endpoint_does_not_get_its_turns_in_a_row() {
    // The sequence of nginx's smooth weighted round robin for 5, 1, 1.
    let schedule = Schedule::new(&[5, 1, 1]);
    let turns: Vec<usize> = (0..7).filter_map(|i| schedule.turn(i)).collect();
    assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn least_request_keeps_shares_when_idle() {
    let counts = counts(&[1, 3], 40_000, Balancer::LeastRequest);
    let share = counts[1] as f64 / 40_000.0;
    assert!(
        share > 0.75,
        "the heavier one gets at least its weight, got {share}"
    );
}

#[test]
fn least_request_prefers_the_less_busy() {
    let schedule = Schedule::new(&[1, 1]);
    let mut random = Random::new(7);
    let load = |i: usize| Load {
        active: if i == 0 { 10 } else { 0 },
        avoid: false,
    };
    let idle = (0..1000)
        .filter(|&t| choose(Balancer::LeastRequest, &schedule, t, random.next(), load) == Some(1))
        .count();
    // It loses only when both draws fall on the busy one.
    assert!((650..850).contains(&idle), "{idle}");
}

#[test]
fn endpoints_to_avoid_are_passed_over_unless_there_is_no_other() {
    let schedule = Schedule::new(&[1, 1, 1]);
    let mut random = Random::new(7);
    for balancer in [Balancer::RoundRobin, Balancer::LeastRequest] {
        for turn in 0..100 {
            let only = |i: usize| Load {
                active: 0,
                avoid: i != 2,
            };
            assert_eq!(
                choose(balancer, &schedule, turn, random.next(), only),
                Some(2)
            );
            let none = |_: usize| Load {
                active: 0,
                avoid: true,
            };
            assert!(choose(balancer, &schedule, turn, random.next(), none).is_some());
        }
    }
}

#[test]
fn nobody_is_chosen_from_nothing() {
    for weights in [&[][..], &[0, 0]] {
        let schedule = Schedule::new(weights);
        for balancer in [Balancer::RoundRobin, Balancer::LeastRequest] {
            assert_eq!(choose(balancer, &schedule, 3, 9, |_| FREE), None);
        }
    }
}

proptest! {
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

    #[test]
    fn a_draw_is_below_its_bound(seed: u64, bound in 1u64..1_000_000) {
        let mut random = Random::new(seed);
        for _ in 0..20 {
            prop_assert!(random.below(bound) < bound);
        }
        prop_assert_eq!(random.below(0), 0);
    }
}

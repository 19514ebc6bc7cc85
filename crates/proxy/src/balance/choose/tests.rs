use super::*;
use proptest::prelude::*;

const FREE: Load = Load {
    cost: 1,
    share: FULL_SHARE,
    avoid: false,
    full: false,
};
const AVOID: Load = Load {
    avoid: true,
    ..FREE
};
const FULL: Load = Load { full: true, ..FREE };

/// Pickers without a hash.
const WAYS: [fn(u64) -> Picker<'static>; 3] =
    [Picker::Turn, |_| Picker::LessBusy, |_| Picker::Faster];

fn counts(
    weights: &[u32],
    picks: u64,
    way: fn(u64) -> Picker<'static>,
    load: impl Fn(usize) -> Load,
) -> Vec<u64> {
    let schedule = Schedule::new(weights);
    let mut random = Random::new(42);
    let mut counts = vec![0; weights.len()];
    for turn in 0..picks {
        if let Choice::At(i) = choose(way(turn), &schedule, random.next(), &load) {
            counts[i] += 1;
        }
    }
    counts
}

#[test]
fn round_robin_is_exact_over_a_round() {
    let counts = |weights: &[u32], picks| counts(weights, picks, Picker::Turn, |_| FREE);
    assert_eq!(counts(&[1, 1, 1], 300), [100, 100, 100]);
    assert_eq!(counts(&[1, 2, 3], 600), [100, 200, 300]);
    assert_eq!(counts(&[0, 5], 10), [0, 10]);
}

/// The share of the first of two endpoints, of which `active[0]` and `active[1]` requests are open.
fn share(weights: [u32; 2], active: [u64; 2], way: fn(u64) -> Picker<'static>) -> f64 {
    let load = |i: usize| Load {
        cost: active[i] + 1,
        ..FREE
    };
    counts(&weights, 40_000, way, load)[0] as f64 / 40_000.0
}

#[test]
fn two_choices_keep_shares_when_there_is_little_to_do() {
    for weights in [[1, 3], [1, 1], [200, 1]] {
        let due = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
        let shares = [[0, 0], [0, 1]].map(|active| share(weights, active, |_| Picker::LessBusy));
        let [idle, with_one] = shares;
        assert!((idle - due).abs() < 0.01, "{weights:?}: {idle}");
        // The light one is not starved while the heavy one has a request.
        assert!(with_one > due - 0.01, "{weights:?}: {with_one}");
    }
}

#[test]
fn two_choices_prefer_the_cheaper() {
    let least = |weights, active| share(weights, active, |_| Picker::LessBusy);
    assert_eq!(least([1, 1], [10, 1]), 0.0);
    // All draws fall on the busy one.
    assert!(least([2, 3], [10, 1]) < 0.02);
    // Eleven requests of a hundred are less than two of two.
    assert!(least([100, 2], [10, 1]) > 0.99);
    // With unequal weights the faster of two may be both draws: sixteen of a hundred times here.
    let faster = share([2, 3], [10, 1], |_| Picker::Faster);
    assert!((faster - 0.16).abs() < 0.01, "{faster}");
    assert_eq!(share([1, 1], [10, 1], |_| Picker::Faster), 0.0);
}

/// Whichever endpoint is the expensive one, the others share its turns by their weights.
#[test]
fn the_second_choice_is_fair() {
    for (weights, expensive, dues) in [
        ([1, 1, 1], 0, [0.0, 0.5, 0.5]),
        // The expensive one is drawn four times more in one of sixteen draws; the rest is shared as 1 to 2.
        ([1, 2, 3], 2, [31.0 / 96.0, 62.0 / 96.0, 3.0 / 96.0]),
    ] {
        let load = |i: usize| Load {
            cost: if i == expensive { 1_000 } else { 1 },
            ..FREE
        };
        let counts = counts(&weights, 40_000, |_| Picker::LessBusy, load);
        for (count, due) in counts.iter().zip(dues) {
            let share = *count as f64 / 40_000.0;
            assert!((share - due).abs() < 0.01, "{weights:?}: {counts:?}");
        }
    }
}

/// An endpoint that takes a small part of its turns does not get more as the second of two, however cheap it is.
#[test]
fn a_small_share_stays_small_where_it_is_the_cheapest() {
    for (picker, most) in [
        (Picker::Turn as fn(u64) -> Picker<'static>, 0.1),
        (|_| Picker::LessBusy, 0.2),
        (|_| Picker::Faster, 0.2),
    ] {
        let load = |i: usize| Load {
            cost: if i == 0 { 1 } else { 9 },
            share: if i == 0 { FULL_SHARE / 10 } else { FULL_SHARE },
            ..FREE
        };
        let first = counts(&[1, 1], 40_000, picker, load)[0] as f64 / 40_000.0;
        assert!(first > 0.04 && first < most, "{first}");
    }
}

/// Requests that end in any order leave a few endpoints level, in proportion to their weights.
#[test]
fn few_endpoints_stay_level() {
    for weights in [[1, 1, 1], [67, 133, 200]] {
        let schedule = Schedule::new(&weights);
        let all: u32 = weights.iter().sum();
        let mut random = Random::new(3);
        let mut active = [0_u64; 3];
        let mut held = Vec::new();
        for _ in 0..10_000 {
            let load = |i: usize| Load {
                cost: active[i] + 1,
                ..FREE
            };
            let Choice::At(chosen) = choose(Picker::LessBusy, &schedule, random.next(), load)
            else {
                panic!("an endpoint is free");
            };
            active[chosen] += 1;
            held.push(chosen);
            if held.len() == 512 {
                for (weight, active) in weights.iter().zip(active) {
                    let due = f64::from(512 * weight) / f64::from(all);
                    assert!((active as f64 - due).abs() < 5.0, "{weights:?}: {active}");
                }
                for _ in 0..random.below(400) {
                    let at = usize::try_from(random.below(held.len() as u64)).unwrap();
                    active[held.swap_remove(at)] -= 1;
                }
            }
        }
    }
}

#[test]
fn endpoints_to_avoid_are_passed_over_unless_there_is_no_other() {
    let schedule = Schedule::new(&[1, 1, 1]);
    let mut random = Random::new(7);
    for way in WAYS {
        for turn in 0..100 {
            let only = |i: usize| if i == 2 { FREE } else { AVOID };
            let chosen = choose(way(turn), &schedule, random.next(), only);
            assert_eq!(chosen, Choice::At(2));
            let chosen = choose(way(turn), &schedule, random.next(), |_| AVOID);
            assert!(matches!(chosen, Choice::At(_)));
        }
    }
}

/// The turns and points next to a heavy endpoint's are its own as well; a light endpoint is found all the same.
#[test]
fn a_light_endpoint_stands_in_for_a_heavy_one() {
    for weights in [[1, 200], [200, 1]] {
        let schedule = Schedule::new(&weights);
        let places = [
            (([127, 0, 0, 1], 1).into(), weights[0]),
            (([127, 0, 0, 2], 1).into(), weights[1]),
        ];
        let ring = Ring::new(&places);
        let light = usize::from(weights[0] > 1);
        let load = |i: usize| if i == light { FREE } else { AVOID };
        let mut random = Random::new(7);
        for turn in 0..2_000 {
            let random = random.next();
            for picker in [
                Picker::Turn(turn),
                Picker::LessBusy,
                Picker::Faster,
                Picker::Ring(&ring, random),
            ] {
                let chosen = choose(picker, &schedule, random, load);
                assert_eq!(chosen, Choice::At(light), "{weights:?}, {turn}");
            }
        }
    }
}

/// The full endpoint works and is only busy: the request waits for it, and is not sent to the one that fails.
#[test]
fn a_light_endpoint_that_is_full_is_waited_for() {
    let schedule = Schedule::new(&[1, 200]);
    for turn in 0..500 {
        let chosen = choose(Picker::Turn(turn), &schedule, 1, |i| [FULL, AVOID][i]);
        assert_eq!(chosen, Choice::Full);
    }
}

/// If very many endpoints are all to be avoided, a choice does not check each of them.
#[test]
fn a_look_around_is_bounded() {
    let weights = [16; 4_000];
    let places = (0u16..4_000).map(|n| (([127, 0, 0, 1], n).into(), 16));
    let ring = Ring::new(&places.collect::<Vec<_>>());
    let schedule = Schedule::new(&weights);
    let pickers = [
        Picker::Turn(9),
        Picker::LessBusy,
        Picker::Faster,
        Picker::Ring(&ring, 9),
    ];
    for picker in pickers {
        let looks = std::cell::Cell::new(0);
        let load = |_| {
            looks.set(looks.get() + 1);
            AVOID
        };
        assert!(matches!(choose(picker, &schedule, 9, load), Choice::At(_)));
        assert!(looks.get() < 1_000, "{} looks", looks.get());
    }
}

/// Requests with the same hash go to the same endpoint even if no usable one is near on the ring.
#[test]
fn what_has_one_hash_stays_together_when_most_are_shut() {
    let places = (0u16..2_000).map(|n| (([127, 0, 0, 1], n).into(), 1));
    let ring = Ring::new(&places.collect::<Vec<_>>());
    let schedule = Schedule::new(&[1; 2_000]);
    let few = |i: usize| if i.is_multiple_of(199) { FREE } else { AVOID };
    for hash in (0..200).map(|n: u64| super::super::hash(&n.to_be_bytes())) {
        let chosen = |random| choose(Picker::Ring(&ring, hash), &schedule, random, few);
        assert_eq!(chosen(1), chosen(2));
    }
}

#[test]
fn room_is_found_wherever_it_is() {
    let weights = [1; 500];
    let schedule = Schedule::new(&weights);
    let ring = Ring::new(&weights.map(|_| (([127, 0, 0, 1], 1).into(), 1)));
    let mut random = Random::new(7);
    for at in (0..500).step_by(17) {
        let only = |i: usize| if i == at { FREE } else { FULL };
        for way in WAYS {
            let chosen = choose(way(random.next()), &schedule, random.next(), only);
            assert_eq!(chosen, Choice::At(at));
        }
        let picker = Picker::Ring(&ring, random.next());
        assert_eq!(choose(picker, &schedule, 0, only), Choice::At(at));
    }
}

#[test]
fn what_is_full_is_waited_for_and_what_is_shut_is_not() {
    let schedule = Schedule::new(&[1, 1]);
    let shut_and_full = Load {
        full: true,
        ..AVOID
    };
    for way in WAYS {
        let chosen = |loads: [Load; 2]| choose(way(1), &schedule, 1, |i| loads[i]);
        assert_eq!(chosen([FULL, FULL]), Choice::Full);
        // A failing endpoint that has room is not tried while another one works and is only busy.
        assert_eq!(chosen([FULL, AVOID]), Choice::Full);
        assert_eq!(chosen([shut_and_full, AVOID]), Choice::At(1));
        assert_eq!(chosen([shut_and_full, shut_and_full]), Choice::Full);
    }
}

#[test]
fn one_with_a_small_share_gets_as_much_of_its_turns() {
    for way in WAYS {
        for (share, want) in [(FULL_SHARE / 10, 0.1), (FULL_SHARE / 2, 0.5)] {
            let load = |i: usize| Load {
                share: if i == 0 { share } else { FULL_SHARE },
                ..FREE
            };
            let counts = counts(&[1; 20], 200_000, way, load);
            let got = counts[0] as f64 / (counts[1..].iter().sum::<u64>() as f64 / 19.0);
            assert!((want * 0.8..want * 1.3).contains(&got), "{share}: {got}");
        }
        // If all endpoints are new, all of them are used.
        let load = |_| Load {
            share: FULL_SHARE / 10,
            ..FREE
        };
        let counts = counts(&[1; 4], 4_000, way, load);
        assert!(counts.iter().all(|&n| n > 800), "{counts:?}");
    }
}

/// A request with a hash goes to its endpoint from the start: if it went elsewhere at first, it would have to move
/// later.
#[test]
fn on_a_ring_a_small_share_changes_nothing() {
    let places = [1, 2, 3].map(|host| (([127, 0, 0, host], 1).into(), 1));
    let (ring, schedule) = (Ring::new(&places), Schedule::new(&[1; 3]));
    let small = Load {
        share: FULL_SHARE / 10,
        ..FREE
    };
    let (mut random, mut used) = (Random::new(7), [false; 3]);
    for _ in 0..1_000 {
        let (hash, random) = (random.next(), random.next());
        let chosen = |load: &dyn Fn(usize) -> Load| {
            choose(Picker::Ring(&ring, hash), &schedule, random, load)
        };
        let full = chosen(&|_| FREE);
        assert_eq!(chosen(&|i| [small, FREE, FREE][i]), full);
        assert_eq!(chosen(&|_| small), full);
        if let Choice::At(i) = full {
            used[i] = true;
        }
    }
    assert_eq!(used, [true; 3]);
}

#[test]
fn nothing_is_chosen_from_nothing() {
    for weights in [&[][..], &[0, 0]] {
        let schedule = Schedule::new(weights);
        for way in WAYS {
            assert_eq!(choose(way(3), &schedule, 9, |_| FREE), Choice::NoEndpoint);
        }
    }
    let ring = Ring::new(&[]);
    let chosen = choose(Picker::Ring(&ring, 7), &Schedule::default(), 9, |_| FREE);
    assert_eq!(chosen, Choice::NoEndpoint);
}

proptest! {
    /// For any loads: no request waits while a usable endpoint has room, and no full endpoint is chosen.
    #[test]
    fn a_choice_is_right(
        loads in prop::collection::vec((any::<bool>(), any::<bool>()), 1..90),
        turn: u64,
        random: u64,
    ) {
        let weights = vec![1; loads.len()];
        let places: Vec<_> = (0u16..).zip(&loads).map(|(i, _)| (([127, 0, 0, 1], i).into(), 1)).collect();
        let (schedule, ring) = (Schedule::new(&weights), Ring::new(&places));
        let load = |i: usize| Load { avoid: loads[i].0, full: loads[i].1, ..FREE };
        let pickers = [
            Picker::Turn(turn),
            Picker::LessBusy,
            Picker::Faster,
            Picker::Ring(&ring, random),
        ];
        for picker in pickers {
            let any_full = loads.iter().any(|load| load.1);
            let any_usable = loads.iter().any(|&(avoid, full)| !avoid && !full);
            let any_working = loads.iter().any(|&(avoid, _)| !avoid);
            match choose(picker, &schedule, random, load) {
                Choice::At(i) => {
                    prop_assert!(!loads[i].1);
                    prop_assert!(!loads[i].0 || !any_working || !any_full);
                }
                Choice::Full => prop_assert!(!any_usable),
                Choice::NoEndpoint => prop_assert!(false),
            }
        }
    }
}

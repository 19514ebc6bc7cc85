use std::time::Duration;

use proptest::prelude::*;

use super::window::Window;
use super::{Judgement, Latency, PERCENT, TIGHTEST};

const NEVER: [u64; 0] = [];

/// Steps with the same judgement, one a second, from `from` on: the seconds at which the level changed.
fn steps(latency: &mut Latency, from: u64, seconds: u64, judgement: Judgement) -> Vec<u64> {
    let all = from..from + seconds;
    all.filter(|second| latency.step(Duration::from_secs(*second), judgement))
        .collect()
}

#[test]
fn two_readings_above_tighten_and_ten_seconds_of_calm_relax() {
    let mut latency = Latency::default();
    assert_eq!((latency.level(), latency.percent()), (0, None));
    assert_eq!(steps(&mut latency, 0, 1, Judgement::Worst(101)), NEVER);
    assert_eq!(steps(&mut latency, 1, 1, Judgement::Worst(100)), NEVER);
    assert_eq!(steps(&mut latency, 2, 2, Judgement::Worst(101)), [3]);
    assert_eq!((latency.level(), latency.percent()), (1, Some(50)));
    // Between the marks nothing changes.
    assert_eq!(steps(&mut latency, 4, 1_000, Judgement::Worst(80)), NEVER);
    assert_eq!(
        steps(&mut latency, 2_000, 11, Judgement::Worst(79)),
        [2_010]
    );
    assert_eq!(latency.level(), 0);
    let all = steps(&mut latency, 3_000, 100, Judgement::Worst(1_000));
    assert_eq!(all, [3_001, 3_003, 3_005, 3_007]);
    assert_eq!((latency.level(), latency.percent()), (TIGHTEST, Some(5)));
}

#[test]
fn readings_with_an_unknown_one_between_them_are_not_in_a_row() {
    let mut latency = Latency::default();
    for second in (0..60).step_by(2) {
        assert_eq!(steps(&mut latency, second, 1, Judgement::Worst(500)), NEVER);
        assert_eq!(
            steps(&mut latency, second + 1, 1, Judgement::Unknown),
            NEVER
        );
    }
    assert_eq!(steps(&mut latency, 60, 2, Judgement::Worst(500)), [61]);
}

#[test]
fn without_a_judgement_or_an_objective_it_relaxes_slowly_and_fully() {
    for (judgement, every) in [(Judgement::Unknown, 30), (Judgement::NoObjective, 10)] {
        let mut latency = Latency::default();
        steps(&mut latency, 0, 100, Judgement::Worst(500));
        let at = steps(&mut latency, 100, 200, judgement);
        let wanted: Vec<u64> = (1..=4).map(|n| 100 + n * every + n - 1).collect();
        assert_eq!(at, wanted, "{judgement:?}");
        assert_eq!(latency.level(), 0);
    }
}

/// A pod whose p99 falls with what offline pods may use, read by way of the real window: `slope` is its p99 in percent of the
/// objective when they use everything. Returns the level at each second.
fn simulate(slope: u64, noise: &[u64]) -> Vec<usize> {
    let bounds: Vec<u64> = (1..=400).map(|n| n * 100).collect();
    let mut counts = vec![0u64; bounds.len() + 1];
    let (mut window, mut latency) = (Window::default(), Latency::default());
    let mut levels = Vec::new();
    for (second, noise) in noise.iter().enumerate() {
        let now = Duration::from_secs(second as u64);
        // 500 requests a second; 2 % of them are slow.
        let percent = 20 + slope * u64::from(PERCENT[latency.level()]) / 100;
        let slow_us = percent * 100 * noise / 100;
        counts[0] += 490;
        counts[usize::try_from(slow_us / 100).expect("small").min(400)] += 10;
        window.add(now, &bounds, &counts);
        // The objective is 10 ms.
        let judgement = window.p99_us(now).map_or(Judgement::Unknown, |p99| {
            Judgement::Worst(p99 * 100 / 10_000)
        });
        let before = latency.level();
        if latency.step(now, judgement) {
            window.begin_anew();
        }
        assert!(latency.level().abs_diff(before) <= 1 && latency.level() <= TIGHTEST);
        levels.push(latency.level());
    }
    levels
}

fn changes(levels: &[usize]) -> usize {
    levels.windows(2).filter(|two| two[0] != two[1]).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_judgements_keep_the_level_in_its_bounds(all in prop::collection::vec(0u64..300, 0..500)) {
        let mut latency = Latency::default();
        for (second, percent) in all.iter().enumerate() {
            let before = latency.level();
            let judgement = match percent {
                0..20 => Judgement::Unknown,
                20..30 => Judgement::NoObjective,
                percent => Judgement::Worst(*percent),
            };
            let changed = latency.step(Duration::from_secs(second as u64), judgement);
            prop_assert!(latency.level() <= TIGHTEST);
            prop_assert_eq!(latency.level().abs_diff(before), usize::from(changed));
            prop_assert_eq!(latency.percent().is_some(), latency.level() > 0);
            if *percent > 100 {
                prop_assert!(latency.level() >= before, "relaxed above the objective");
            }
            if (30..=100).contains(percent) {
                prop_assert!(latency.level() <= before, "tightened within the objective");
            }
            if latency.level() > before {
                let last = second.checked_sub(1).map(|last| all[last]);
                prop_assert!(last > Some(100) && *percent > 100, "tightened after one reading");
            }
        }
    }

    #[test]
    fn a_steady_load_converges_and_its_objective_is_kept(slope in 10u64..300) {
        let levels = simulate(slope, &[100; 1_800]);
        let late = &levels[900..];
        // At most one level is tried in vain, and ever more seldom.
        let (least, most) = (late.iter().min(), late.iter().max());
        prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{late:?}");
        prop_assert!(changes(late) <= 8, "{} changes", changes(late));
        let kept = |level: &&usize| 20 + slope * u64::from(PERCENT[**level]) / 100 <= 102;
        let kept = late.iter().filter(kept).count();
        prop_assert!(kept * 100 >= late.len() * 95, "{kept} of {}", late.len());
    }

    #[test]
    fn noise_does_not_make_it_oscillate(
        slope in 10u64..300,
        noise in prop::collection::vec(80u64..120, 1_200),
    ) {
        let levels = simulate(slope, &noise);
        for minute in levels[60..].chunks(60) {
            prop_assert!(changes(minute) <= 8, "{minute:?}");
        }
        prop_assert!(changes(&levels[600..]) <= 30, "{}", changes(&levels[600..]));
    }
}

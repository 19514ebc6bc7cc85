use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{Mode, NodeSample, Sample, Settings, Turbo};
use crate::cgroup::CpuCounters;

const PERIOD_US: u64 = 100_000;
const PROCESSORS: f64 = 4.0;

fn node(tick: u64, used: f64) -> NodeSample {
    NodeSample {
        at: Duration::from_millis(100 * tick),
        used,
        processors: PROCESSORS,
    }
}

/// A group with an origin of one processor.
fn sample(quota_us: u64, throttled: u64, throttled_us: u64) -> Sample {
    Sample {
        period_us: PERIOD_US,
        quota_us,
        origin_us: 100_000,
        counters: CpuCounters {
            used_us: 0,
            throttled,
            throttled_us,
        },
    }
}

fn one(sample: Sample) -> BTreeMap<u8, Sample> {
    BTreeMap::from([(0, sample)])
}

/// After samples of a group that used nothing, so that its budget is full.
fn saved_up(mut turbo: Turbo<u8>, quota_us: u64) -> Turbo<u8> {
    for tick in 0..60 {
        turbo.step(node(tick, 5.0), &one(sample(quota_us, 0, 0)));
    }
    turbo
}

fn reactive() -> Turbo<u8> {
    Turbo::new(Settings::new(Mode::Reactive))
}

#[test]
fn a_group_that_is_throttled_gets_its_part_of_a_hundredth_of_the_node() {
    let mut turbo = reactive();
    let two = |throttled: [(u64, u64); 2]| {
        BTreeMap::from([
            (0, sample(100_000, throttled[0].0, throttled[0].1)),
            (1, sample(100_000, throttled[1].0, throttled[1].1)),
        ])
    };
    // What happened before the first sample counts for nothing.
    let first = turbo.step(node(0, 20.0), &two([(5, 400_000), (0, 0)]));
    assert_eq!(first, BTreeMap::from([(0, 100_000), (1, 100_000)]));
    // They lacked 0.1 and 0.3 processors; the step is 0.04.
    let next = turbo.step(node(1, 20.0), &two([(6, 410_000), (1, 30_000)]));
    assert_eq!(next, BTreeMap::from([(0, 101_000), (1, 103_000)]));
    // Less than a step is given whole.
    let next = turbo.step(node(2, 20.0), &two([(7, 412_000), (1, 30_000)]));
    assert_eq!(next, BTreeMap::from([(0, 102_000), (1, 100_000)]));
}

#[test]
fn nothing_is_granted_near_the_alarm_mark_or_after_a_swing() {
    for (before, now) in [(79.5, 79.5), (20.0, 31.0), (31.0, 20.0)] {
        let mut turbo = reactive();
        turbo.step(node(0, before), &one(sample(100_000, 0, 0)));
        let next = turbo.step(node(1, now), &one(sample(100_000, 1, 50_000)));
        assert_eq!(next[&0], 100_000, "{before} {now}");
    }
    let mut turbo = reactive();
    turbo.step(node(0, 20.0), &one(sample(100_000, 0, 0)));
    turbo.step(node(1, 31.0), &one(sample(100_000, 0, 0)));
    // The swing is forgotten after a minute.
    let next = turbo.step(node(602, 31.0), &one(sample(100_000, 1, 50_000)));
    assert_eq!(next[&0], 104_000);
}

#[test]
fn above_the_high_mark_quota_comes_back_slowly_and_at_the_alarm_mark_at_once() {
    let step = |used: f64, throttled: u64| {
        let mut turbo = saved_up(reactive(), 180_000);
        turbo.step(node(200, used), &one(sample(180_000, throttled, 0)))[&0]
    };
    // (70 − 60) / (80 − 60) · 0.1 of the 80 ms that were granted.
    assert_eq!(step(70.0, 0), 176_000);
    assert_eq!(step(70.0, 1), 180_000, "it was throttled");
    assert_eq!(step(59.9, 0), 180_000);
    // At the alarm mark all that is not used comes back at once: the group uses nothing here.
    assert_eq!(step(80.0, 1), 100_000);
}

#[test]
fn the_average_of_a_minute_of_samples_stays_at_the_origin() {
    let mut turbo = reactive();
    let (mut quota, mut used_us) = (100_000, 0u64);
    for tick in 0..600 {
        // It wants two processors, and the kernel gives the quota.
        let now = Sample {
            counters: CpuCounters {
                used_us,
                throttled: tick,
                throttled_us: 50_000 * tick,
            },
            ..sample(quota, 0, 0)
        };
        quota = turbo.step(node(tick, 40.0), &one(now))[&0];
        assert!((100_000..=200_000).contains(&quota), "{quota}");
        used_us += quota;
    }
    let average = used_us as f64 / (600.0 * 100_000.0);
    assert!(average < 1.05, "{average}");
}

#[test]
fn prediction_grants_before_the_kernel_has_counted_and_needs_no_steady_past() {
    let with = |used_us: u64| {
        let mut turbo = saved_up(Turbo::new(Settings::new(Mode::Predictive)), 100_000);
        let mut now = sample(100_000, 0, 0);
        now.counters.used_us = used_us;
        turbo.step(node(60, 30.0), &one(now))[&0]
    };
    assert_eq!(with(84_000), 100_000);
    assert_eq!(with(100_000), 125_000);
}

#[test]
fn groups_without_a_limit_below_the_node_are_left_alone() {
    let mut turbo = reactive();
    for (origin_us, period_us) in [(0, PERIOD_US), (400_000, PERIOD_US), (1, 0)] {
        let odd = Sample {
            origin_us,
            period_us,
            ..sample(100_000, 0, 0)
        };
        assert!(turbo.step(node(0, 10.0), &one(odd)).is_empty());
    }
}

/// A group of a simulated node.
#[derive(Debug, Clone)]
struct Pod {
    /// Limit in hundredths of a processor.
    limit: u64,
    /// Wishes in hundredths of a processor, each for half a second.
    wants: Vec<u64>,
}

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let pod = (10u64..150, prop::collection::vec(0u64..400, 40));
    let pod = pod.prop_map(|(limit, wants)| Pod { limit, wants });
    prop::collection::vec(pod, 1..8)
}

/// Runs a node for 20 s; `others` is what its other work uses, in percent of the node, each for two seconds. Returns for
/// how many steps in a row at most the node was over the alarm mark only because of what was granted, and the quotas.
fn simulate(mode: Mode, pods: &[Pod], others: &[u64]) -> (usize, Vec<Vec<u64>>) {
    let settings = Settings::new(mode);
    let mut turbo = Turbo::new(settings);
    let mut quotas: Vec<u64> = pods.iter().map(|pod| pod.limit * 1_000).collect();
    let mut counters = vec![CpuCounters::default(); pods.len()];
    let (mut over, mut longest) = (0, 0);
    let mut history = Vec::new();
    for tick in 0..200usize {
        let other = others[tick / 20] as f64 / 100.0 * PROCESSORS;
        let (mut with, mut without) = (other, other);
        for (number, pod) in pods.iter().enumerate() {
            let want = pod.wants[tick / 5] * 1_000;
            let gets = want.min(quotas[number]);
            with += gets as f64 / PERIOD_US as f64;
            without += want.min(pod.limit * 1_000) as f64 / PERIOD_US as f64;
            let counters = &mut counters[number];
            counters.used_us += gets;
            if want > gets {
                counters.throttled += 1;
                counters.throttled_us += want - gets;
            }
        }
        let alarm = settings.alarm / 100.0 * PROCESSORS;
        over = match with > alarm + 1e-9 && without <= alarm {
            true => over + 1,
            false => 0,
        };
        longest = longest.max(over);
        let samples = pods.iter().zip(&quotas).zip(&counters).enumerate();
        let samples = samples.map(|(number, ((pod, quota), counters))| {
            let sample = Sample {
                period_us: PERIOD_US,
                quota_us: *quota,
                origin_us: pod.limit * 1_000,
                counters: *counters,
            };
            (number, sample)
        });
        let used = (with / PROCESSORS * 100.0).min(100.0);
        let decided = turbo.step(node(tick as u64, used), &samples.collect());
        for (number, quota) in decided {
            quotas[number] = quota;
        }
        history.push(quotas.clone());
    }
    (longest, history)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Work that was there before may grow up to its own limit at any time. What was granted makes room for it within
    /// a step, and never drives the node over the mark by itself.
    #[test]
    fn grants_do_not_drive_the_node_over_the_alarm_mark(
        pods in pods(),
        others in prop::collection::vec(0u64..70, 10),
        is_reactive: bool,
    ) {
        let mode = if is_reactive { Mode::Reactive } else { Mode::Predictive };
        let (longest, history) = simulate(mode, &pods, &others);
        prop_assert!(longest <= 1, "{longest} steps over the mark");
        for quotas in history {
            for (pod, quota) in pods.iter().zip(quotas) {
                prop_assert!(quota >= pod.limit * 1_000 && quota <= pod.limit * 2_000);
            }
        }
    }

    /// While nothing changes, a node that is below the mark stays below it.
    #[test]
    fn a_steady_node_never_passes_the_alarm_mark(pods in pods(), other in 0u64..70, is_reactive: bool) {
        let mode = if is_reactive { Mode::Reactive } else { Mode::Predictive };
        let steady: Vec<Pod> = pods
            .iter()
            .map(|pod| Pod { wants: vec![pod.wants[0]; 40], ..pod.clone() })
            .collect();
        let (longest, history) = simulate(mode, &steady, &[other; 10]);
        prop_assert_eq!(longest, 0);
        // A group that has enough is left alone.
        for (number, pod) in steady.iter().enumerate() {
            let has_enough = pod.wants[0] * 100 < pod.limit * 85;
            let origin = pod.limit * 1_000;
            prop_assert!(!has_enough || history.iter().all(|quotas| quotas[number] == origin));
        }
    }

    /// After a burst everything is as before: nothing is granted that is not needed any more.
    #[test]
    fn a_grant_is_given_back_when_the_node_is_busy_and_it_is_not_used(limit in 20u64..100, is_reactive: bool) {
        let mode = if is_reactive { Mode::Reactive } else { Mode::Predictive };
        let mut wants = vec![limit * 2; 2];
        wants.resize(40, limit / 2);
        let (_, history) = simulate(mode, &[Pod { limit, wants }], &[40, 75, 75, 75, 75, 75, 75, 75, 75, 75]);
        prop_assert!(history.iter().any(|quotas| quotas[0] > limit * 1_000), "granted in the burst");
        prop_assert!(history[150][0] < limit * 1_000 + 30_000, "{}", history[150][0]);
    }
}

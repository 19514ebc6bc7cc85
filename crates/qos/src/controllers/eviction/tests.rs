use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::{
    Advice, Candidate, Cause, CpuSample, Event, Eviction, INTERVAL, MemorySample, Order, Pressure,
    Sample,
};
use crate::now::Now;

const GIB: u64 = 1 << 30;

fn memory(some_percent: u32, available_percent: u64) -> Sample {
    Sample {
        memory: Some(MemorySample {
            pressure: Some(Pressure {
                some: some_percent * 100,
                full: 0,
            }),
            total: 100 * GIB,
            available: available_percent * GIB,
        }),
        cpu: None,
    }
}

fn cpu(some_percent: u32, busy: u32) -> Sample {
    Sample {
        memory: None,
        cpu: Some(CpuSample {
            some: some_percent * 100,
            busy,
        }),
    }
}

fn candidate(pod: &str, memory: u64, cpu_us: u64) -> Candidate {
    Candidate {
        pod: pod.to_owned(),
        memory,
        cpu_us: Some(cpu_us),
    }
}

/// The controller, with a clock that goes on by [`INTERVAL`] a step.
#[derive(Default)]
struct Bench {
    eviction: Eviction,
    steps: u32,
}

impl Bench {
    fn now(&self) -> Now {
        let since = INTERVAL * self.steps;
        Now {
            since,
            unix_s: 1_800_000_000 + since.as_secs(),
        }
    }

    fn step(&mut self, sample: &Sample, candidates: &[Candidate]) -> Vec<Event> {
        self.steps += 1;
        let now = self.now();
        self.eviction.step(now, sample, candidates)
    }

    fn steps(&mut self, steps: u32, sample: &Sample, candidates: &[Candidate]) -> Vec<Event> {
        let each = (0..steps).flat_map(|_| self.step(sample, candidates));
        each.collect()
    }

    fn advised(&self) -> Option<&str> {
        let first = self.eviction.advice().first();
        first.map(|advice| advice.pod.as_str())
    }
}

fn began(events: &[Event]) -> Vec<&Advice> {
    let began = events.iter().filter_map(|event| match event {
        Event::Began(advice) => Some(advice),
        Event::Ended(_) => None,
    });
    began.collect()
}

#[test]
fn pressure_that_lasts_makes_advice_once_and_calm_that_lasts_ends_it() {
    let pods = [
        candidate("a", 5, 0),
        candidate("b", 9 << 20, 0),
        candidate("c", 9 << 20, 0),
    ];
    let mut bench = Bench::default();
    assert!(bench.steps(6, &memory(25, 15), &pods).is_empty());
    let events = bench.steps(20, &memory(25, 15), &pods);
    let all = began(&events);
    assert_eq!(all.len(), 1, "{events:?}");
    // The first by name among those that have the most, since the seventh sample.
    assert_eq!((all[0].pod.as_str(), all[0].cause), ("b", Cause::Memory));
    assert_eq!(all[0].since_s, 1_800_000_035);
    assert_eq!(
        all[0].why,
        "memory is short for 30 s: 15 % is available, some work waits for it 25 % of the time, all work 0 %; of the offline pods it has the most, 9 MiB"
    );
    // Between the marks nothing changes, nor by a minute that is interrupted.
    assert!(bench.steps(50, &memory(15, 15), &pods).is_empty());
    assert!(bench.steps(12, &memory(5, 15), &pods).is_empty());
    assert!(bench.steps(1, &memory(15, 15), &pods).is_empty());
    assert!(bench.steps(12, &memory(5, 15), &pods).is_empty());
    let events = bench.steps(1, &memory(5, 15), &pods);
    assert!(matches!(&events[..], [Event::Ended(advice)] if advice.pod == "b"));
    assert!(bench.eviction.advice().is_empty());
}

#[test]
fn pressure_counts_only_while_memory_is_short() {
    let pods = [candidate("a", 5, 0)];
    let mut bench = Bench::default();
    // An offline pod waits at its own limit.
    assert!(bench.steps(30, &memory(90, 30), &pods).is_empty());
    // Without swap nothing waits until the kernel kills.
    assert!(!bench.steps(7, &memory(0, 3), &pods).is_empty());
    let untold = Sample {
        memory: Some(MemorySample {
            pressure: None,
            total: 100 * GIB,
            available: 3 * GIB,
        }),
        cpu: None,
    };
    let mut bench = Bench::default();
    assert!(!bench.steps(7, &untold, &pods).is_empty());
}

#[test]
fn the_pod_that_uses_the_processors_is_advised() {
    let mut bench = Bench::default();
    let mut used = [0, 0, 0];
    // Of 5 s: almost nothing, two processors, one.
    let mut pods = || {
        used = [used[0] + 400_000, used[1] + 10_000_000, used[2] + 5_000_000];
        let names = ["a", "b", "c"].into_iter().zip(used);
        let pods = names.map(|(name, used)| candidate(name, 100 * GIB, used));
        pods.collect::<Vec<_>>()
    };
    for _ in 0..6 {
        assert!(bench.step(&cpu(60, 99), &pods()).is_empty());
    }
    let events = bench.step(&cpu(60, 99), &pods());
    let all = began(&events);
    assert_eq!((all[0].pod.as_str(), all[0].cause), ("b", Cause::Cpu));
    assert!(
        all[0].why.ends_with("200 % of a processor"),
        "{}",
        all[0].why
    );
    // What a quota holds back waits on an idle node, too.
    let mut bench = Bench::default();
    for _ in 0..30 {
        assert!(bench.step(&cpu(90, 50), &pods()).is_empty());
    }
    // Pods that use nothing would free nothing.
    let idle = [candidate("a", GIB, 7)];
    assert!(bench.steps(30, &cpu(90, 99), &idle).is_empty());
    let unknown = [Candidate {
        cpu_us: None,
        ..candidate("a", GIB, 7)
    }];
    assert!(bench.steps(30, &cpu(90, 99), &unknown).is_empty());
}

#[test]
fn the_advised_pod_stays_until_it_is_gone_or_another_has_twice_as_much() {
    let mut bench = Bench::default();
    let of = |a: u64, b: u64| [candidate("a", a, 0), candidate("b", b, 0)];
    bench.steps(7, &memory(50, 5), &of(100, 90));
    assert_eq!(bench.advised(), Some("a"));
    assert!(bench.step(&memory(50, 5), &of(100, 199)).is_empty());
    let events = bench.step(&memory(50, 5), &of(100, 200));
    assert!(
        matches!(&events[..], [Event::Ended(a), Event::Began(b)] if a.pod == "a" && b.pod == "b")
    );
    bench.step(&memory(50, 5), &of(100, 0));
    assert_eq!(bench.advised(), Some("a"));
    bench.step(&memory(50, 5), &[]);
    assert_eq!(bench.advised(), None);
    // While pressure lasts, the next one is advised at once; when the one that is gone was enough, none is.
    bench.step(&memory(50, 5), &of(100, 90));
    assert_eq!(bench.advised(), Some("a"));
    let b = [candidate("b", 90, 0)];
    bench.step(&memory(0, 60), &b);
    assert_eq!(bench.advised(), None);
    assert!(bench.steps(6, &memory(50, 5), &b).is_empty());
    assert!(!bench.step(&memory(50, 5), &b).is_empty());
}

#[test]
fn time_of_which_nothing_is_known_is_no_pressure() {
    let pods = [candidate("a", 5, 0)];
    let mut bench = Bench::default();
    bench.steps(5, &memory(50, 5), &pods);
    bench.steps += 100;
    assert!(bench.steps(6, &memory(50, 5), &pods).is_empty());
    assert!(!bench.step(&memory(50, 5), &pods).is_empty());
}

#[test]
fn an_eviction_asks_first_and_kills_after_ten_seconds_until_the_pod_is_gone() {
    let pods = [candidate("a", 5, 0)];
    let allowed = BTreeSet::from(["a"]);
    let mut bench = Bench::default();
    bench.steps(7, &memory(50, 5), &pods);
    let began = bench.now().since;
    let at = |bench: &mut Bench, second: u64| {
        bench
            .eviction
            .order(began + Duration::from_secs(second), &allowed)
    };
    assert_eq!(bench.eviction.order(began, &BTreeSet::new()), None);
    assert!(matches!(at(&mut bench, 0), Some(Order::Terminate(pod, _)) if pod == "a"));
    assert_eq!(at(&mut bench, 9), None);
    let kill = Some(Order::Kill("a".to_owned()));
    assert_eq!(
        (at(&mut bench, 10), at(&mut bench, 11)),
        (kill.clone(), kill)
    );
    bench.eviction.is_gone();
    for second in 12..60 {
        assert_eq!(at(&mut bench, second), None);
    }
    // The pressure stays.
    assert!(matches!(at(&mut bench, 60), Some(Order::Terminate(..))));
}

proptest! {
    /// Whatever the samples are: only candidates that have something are advised, and only after half a minute in which every
    /// sample was high.
    #[test]
    fn only_candidates_are_advised_and_only_after_lasting_pressure(
        samples in prop::collection::vec((0u32..=100, 0u64..=40, 0u32..=100, 0u32..=100, prop::collection::vec((0usize..4, 0u64..4, 0u64..9_000_000), 0..4)), 1..120),
        lasting in prop::collection::vec(1usize..12, 120),
    ) {
        let names = ["a", "b", "c", "d"];
        let mut bench = Bench::default();
        let mut high: Vec<[bool; 2]> = Vec::new();
        for ((some, available, waits, busy, pods), times) in samples.into_iter().zip(lasting) {
            for _ in 0..times {
                let sample = Sample { memory: memory(some, available).memory, cpu: cpu(waits, busy).cpu };
                high.push([available < 4 || some >= 20 && available < 20, waits >= 40 && busy >= 95]);
                let there: BTreeSet<&str> = pods.iter().map(|(pod, ..)| names[*pod]).collect();
                let candidates: Vec<Candidate> = there.iter().map(|name| {
                    let (_, memory, cpu) = pods.iter().find(|(pod, ..)| names[*pod] == *name).expect("there");
                    candidate(name, *memory, cpu * u64::from(bench.steps))
                }).collect();
                let events = bench.step(&sample, &candidates);
                for advice in began(&events) {
                    let of = usize::from(advice.cause == Cause::Cpu);
                    let lasted = high.iter().rev().take_while(|one| one[of]).count();
                    prop_assert!(lasted >= 7, "{lasted} samples: {advice:?}");
                    prop_assert!(there.contains(advice.pod.as_str()));
                    let of = candidates.iter().find(|one| one.pod == advice.pod).expect("there");
                    prop_assert!(advice.cause == Cause::Cpu || of.memory > 0);
                }
                for advice in bench.eviction.advice() {
                    prop_assert!(there.contains(advice.pod.as_str()));
                }
            }
        }
    }

    /// Noise that is smaller than the gap between the marks makes at most one change.
    #[test]
    fn noise_makes_nothing_swing(
        base in 0u32..=90,
        available in 5u64..20,
        noise in prop::collection::vec(-4i32..=4, 50..400),
    ) {
        let pods = [candidate("a", 100, 0), candidate("b", 99, 0)];
        let mut bench = Bench::default();
        let mut changes = 0;
        for by in noise {
            let some = base.saturating_add_signed(by);
            // What pods have is noisy, too.
            let mut now = pods.clone();
            now[1].memory = 99u64.saturating_add_signed(i64::from(by) * 5);
            changes += bench.step(&memory(some, available), &now).len();
        }
        prop_assert!(changes <= 1, "{changes} changes");
    }

    /// At most one eviction a minute begins, and only of pods that are allowed; a pod that is killed was asked ten seconds
    /// before.
    #[test]
    fn at_most_one_eviction_a_minute(
        seconds in prop::collection::vec((any::<bool>(), 0usize..4, prop::bool::weighted(0.1)), 100..600),
    ) {
        let names = ["a", "b", "c", "d"];
        let mut eviction = Eviction::default();
        let mut last: Option<(u64, String)> = None;
        for (second, (is_high, allowed, is_gone)) in (0u64..).zip(seconds) {
            let now = Now { since: Duration::from_secs(second), unix_s: second };
            let pods: Vec<Candidate> = names.iter().map(|name| candidate(name, second % 7 + 1, 0)).collect();
            if second % 5 == 0 {
                // Mostly high.
                let some = if is_high || second % 4 != 0 { 50 } else { 15 };
                eviction.step(now, &memory(some, 5), &pods);
            }
            let allowed = BTreeSet::from([names[allowed], "a"]);
            match eviction.order(now.since, &allowed) {
                Some(Order::Terminate(pod, _)) => {
                    prop_assert!(allowed.contains(pod.as_str()));
                    prop_assert!(last.as_ref().is_none_or(|(at, _)| second - at >= 60));
                    last = Some((second, pod));
                }
                Some(Order::Kill(pod)) => {
                    prop_assert!(allowed.contains(pod.as_str()));
                    let (at, asked) = last.as_ref().expect("asked before");
                    prop_assert!(*asked == pod && second - at >= 10);
                }
                None => {}
            }
            if is_gone {
                eviction.is_gone();
            }
        }
    }
}

//! The latency loop on control groups of this machine, with histograms of the test.

use std::thread::available_parallelism;

use heddle_model::{Class, Qos};

use super::super::tests::{Tree, agent, at, everything, offline};
use super::{Agent, Latencies, MAX_DEPTH, MAX_GROUPS, groups_below};
use crate::arbiter::journal::Journal;
use crate::cgroup::{ControlGroup, Knob, Value};
use crate::controllers::turbo;

const GROUPS: [&str; 5] = ["web", "batch", "batch/a", "batch/a/deep", "small"];

/// The microseconds of quota, of 100 ms each, that are a part of all processors.
fn part(percent: u64) -> u64 {
    let processors = available_parallelism().expect("processors").get();
    u64::try_from(processors).expect("few") * 100_000 * percent / 100
}

/// Lets seconds pass in which the pod `test/web` has 200 requests each, of this duration. Returns the last second.
fn pass(
    agent: &mut Agent<Journal>,
    counts: &mut [u64; 3],
    from: u64,
    for_s: u64,
    slow: bool,
) -> u64 {
    for second in from..from + for_s {
        counts[usize::from(slow)] += 200;
        let seen = Latencies {
            bounds_us: vec![1_000, 50_000],
            pods: [("test/web".to_owned(), counts.to_vec())].into(),
        };
        agent.saw(at(second), &seen);
        agent.tick(at(second));
    }
    from + for_s
}

fn web() -> Qos {
    Qos {
        latency_p99_ms: Some(5),
        ..Qos::default()
    }
}

#[test]
fn a_missed_objective_limits_offline_pods_and_their_containers_and_gives_everything_back() {
    let Some(mut tree) = Tree::new("latency", &GROUPS[..]) else {
        return;
    };
    let quotas = |tree: &Tree| GROUPS.map(|path| tree.value(path, Knob::CpuQuota));
    tree.set("batch/a", Knob::CpuQuota, Value::Amount(90_000));
    tree.set("small", Knob::CpuQuota, Value::Amount(2_000));
    tree.set("small", Knob::CpuBurst, Value::Amount(1_000));
    let found = quotas(&tree);
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    let batch = Qos {
        quota_turbo: true,
        quota_burst_us: Some(60_000),
        ..offline()
    };
    agent.set_pods(vec![
        tree.pod("web", web()),
        tree.pod("batch", batch),
        tree.pod("small", offline()),
    ]);
    let mut counts = [0; 3];
    let now = pass(&mut agent, &mut counts, 0, 10, false);
    assert_eq!(
        quotas(&tree),
        found,
        "nothing is limited while the objective is kept"
    );
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(60_000));
    let status = agent.latency().expect("a pod has an objective");
    assert_eq!((status.level, status.percent), (0, None));
    assert_eq!(status.pods[0].p99_us, Some(990));

    let now = pass(&mut agent, &mut counts, now, 60, true);
    let status = agent.latency().expect("a pod has an objective");
    assert_eq!((status.level, status.percent), (4, Some(5)));
    // `small` keeps its own, which is less than its share; `batch` gets the rest.
    let share = Value::Amount(part(5) - 2_000);
    let wanted = [Value::Max, share, share, Value::Max, Value::Amount(2_000)];
    assert_eq!(quotas(&tree), wanted);
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(0));
    assert_eq!(tree.value("small", Knob::CpuBurst), Value::Amount(1_000));
    let held = agent.held().iter();
    let mut why = held.filter(|(key, _)| key.knob == Knob::CpuQuota);
    let why = &why.next().expect("a quota").1.why;
    assert!(
        why.contains("the p99 of test/web is 4") && why.contains("5 %"),
        "{why}"
    );
    assert!(agent.left_alone.is_empty(), "{:?}", agent.left_alone);

    // Without a proxy it is relaxed step by step, and then all is as it was.
    let mut now = now;
    for level in (0..4).rev() {
        let began = now;
        while agent.latency().is_some_and(|status| status.level > level) {
            agent.tick(at(now));
            now += 1;
        }
        assert!(
            (30..45).contains(&(now - began)),
            "{level}: {}",
            now - began
        );
    }
    agent.tick(at(now + 1));
    assert_eq!(quotas(&tree), found);
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(60_000));
    assert!(agent.left_alone.is_empty(), "{:?}", agent.left_alone);
    assert!(agent.restore());
    assert_eq!(quotas(&tree), found);
}

/// Turbo gives these pods nothing: their containers are idle, and that of `large` has all processors already.
#[test]
fn at_the_end_of_a_limit_turbo_keeps_none_of_its_quotas() {
    let groups = [
        "web", "batch", "batch/a", "batch/b", "batch/c", "large", "large/a",
    ];
    let Some(mut tree) = Tree::new("latency-turbo", &groups[..]) else {
        return;
    };
    let quotas = |tree: &Tree| groups.map(|path| tree.value(path, Knob::CpuQuota));
    tree.set("batch", Knob::CpuQuota, Value::Amount(part(60)));
    for container in ["batch/a", "batch/b", "batch/c"] {
        tree.set(container, Knob::CpuQuota, Value::Amount(part(20)));
    }
    tree.set("large/a", Knob::CpuQuota, Value::Amount(part(150)));
    let found = quotas(&tree);
    let folder = tempfile::tempdir().expect("a folder");
    let settings = super::super::Settings {
        turbo: Some(turbo::Settings::new(turbo::Mode::Predictive)),
        ..everything()
    };
    let mut agent = agent(settings, folder.path());
    let wish = Qos {
        quota_turbo: true,
        quota_burst_us: Some(1_000),
        ..offline()
    };
    agent.set_pods(vec![
        tree.pod("web", web()),
        tree.pod("batch", wish.clone()),
        tree.pod("large", wish),
    ]);
    let mut now = pass(&mut agent, &mut [0; 3], 0, 60, true);
    for path in &groups[1..] {
        let quota = tree.value(path, Knob::CpuQuota);
        assert!(quota < Value::Amount(part(20)), "{path}: {quota}");
        assert_eq!(tree.value(path, Knob::CpuBurst), Value::Amount(0));
    }
    while agent.latency().is_some_and(|status| status.level > 0) {
        agent.tick(at(now));
        now += 1;
    }
    assert_eq!(quotas(&tree), found, "in the sweep that ends the limit");
    agent.tick(at(now));
    assert_eq!(quotas(&tree), found, "with turbo again");
    assert!(!agent.turbo.is_empty());
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(1_000));
    assert!(agent.left_alone.is_empty(), "{:?}", agent.left_alone);
    assert!(agent.restore());
    assert_eq!(quotas(&tree), found);
}

#[test]
fn at_the_end_quotas_and_what_was_saved_up_are_put_back_together() {
    let Some(mut tree) = Tree::new("latency-end", &["web", "batch", "batch/a"]) else {
        return;
    };
    for path in ["batch", "batch/a"] {
        tree.set(path, Knob::CpuQuota, Value::Amount(90_000));
        tree.set(path, Knob::CpuBurst, Value::Amount(80_000));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = agent(everything(), folder.path());
    first.set_pods(vec![tree.pod("web", web()), tree.pod("batch", offline())]);
    pass(&mut first, &mut [0; 3], 0, 30, true);
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(0));
    assert!(tree.value("batch", Knob::CpuQuota) < Value::Amount(90_000));
    // A process that is killed puts nothing back.
    drop(first);
    let mut next = agent(everything(), folder.path());
    assert!(next.restore());
    for path in ["batch", "batch/a"] {
        assert_eq!(tree.value(path, Knob::CpuQuota), Value::Amount(90_000));
        assert_eq!(tree.value(path, Knob::CpuBurst), Value::Amount(80_000));
    }
}

#[test]
fn an_agent_without_the_loop_and_an_offline_pod_ask_for_nothing() {
    let Some(tree) = Tree::new("latency-off", &["web", "batch"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let settings = super::super::Settings {
        latency: false,
        ..everything()
    };
    let mut off = agent(settings, folder.path());
    off.set_pods(vec![tree.pod("web", web()), tree.pod("batch", offline())]);
    pass(&mut off, &mut [0; 3], 0, 30, true);
    assert!(!off.has_objectives());
    assert_eq!(
        (off.latency(), tree.value("batch", Knob::CpuQuota)),
        (None, Value::Max)
    );
    assert!(off.restore());
    // A pod that was offline does not become online while it runs, and its objective does not count.
    drop(off);
    let mut on = agent(everything(), folder.path());
    let offline = Qos {
        class: Class::Offline,
        ..web()
    };
    on.set_pods(vec![tree.pod("web", offline)]);
    on.tick(at(0));
    on.set_pods(vec![tree.pod("web", web())]);
    on.tick(at(2));
    assert!(!on.has_objectives());
    assert!(on.restore());
}

#[test]
fn groups_below_a_pod_are_bounded_and_its_containers_come_first() {
    let pod = ControlGroup::new("jobs/a").expect("a group");
    let below = |many: usize| {
        let children = |group: &ControlGroup| {
            let count = if *group == pod { 3 } else { many };
            let names = (0..count).map(|one| one.to_string());
            let groups = names.map(|name| group.child(&name).expect("a group"));
            groups.collect()
        };
        groups_below(&pod, children).collect::<Vec<ControlGroup>>()
    };
    for many in [MAX_GROUPS - 3, MAX_GROUPS, 100 * MAX_GROUPS] {
        let all = below(many);
        assert_eq!(all.len(), MAX_GROUPS, "{many}");
        let containers = ["jobs/a/0", "jobs/a/1", "jobs/a/2"];
        assert!(all.iter().map(ControlGroup::as_str).take(3).eq(containers));
    }
    let chains = below(1);
    assert_eq!(chains.len(), 3 * MAX_DEPTH);
    assert_eq!(below(0).len(), 3);
}

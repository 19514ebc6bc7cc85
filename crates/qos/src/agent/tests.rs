//! The agent on control groups of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{Class, Qos};
use heddle_skips::skipped;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::{Agent, Now, Pod, Settings};
use crate::arbiter::journal::{Journal, StateFolder};
use crate::cgroup::{ControlGroup, Groups, Knob, Mounts, System, Value};
use crate::controllers::{eviction, turbo};

/// Groups of a test, removed at the end: a tree in each hierarchy.
pub(super) struct Tree {
    pub(in crate::agent) system: System,
    root: String,
    pub(in crate::agent) roots: Vec<PathBuf>,
}

impl Tree {
    /// `None`, reported, where this process may not make control groups.
    pub(in crate::agent) fn new(name: &str, groups: &[&str]) -> Option<Tree> {
        let made = Tree::made(name, groups);
        made.map_err(|error| skipped(&format!("no control groups: {error}")))
            .ok()
    }

    fn made(name: &str, groups: &[&str]) -> io::Result<Tree> {
        let root = format!("heddle-test-{}-{name}", std::process::id());
        let mounts = Mounts::find()?;
        let roots = mounts.folders().map(|at| at.join(&root)).collect();
        let system = System::new(mounts);
        let tree = Tree {
            system,
            root,
            roots,
        };
        for at in &tree.roots {
            for group in groups {
                make(at, group)?;
            }
        }
        Ok(tree)
    }

    pub(in crate::agent) fn group(&self, path: &str) -> ControlGroup {
        ControlGroup::new(&format!("{}/{path}", self.root)).expect("a group")
    }

    pub(in crate::agent) fn value(&self, path: &str, knob: Knob) -> Value {
        self.system.read(&self.group(path), knob).expect("read")
    }

    pub(in crate::agent) fn set(&mut self, path: &str, knob: Knob, value: Value) {
        let group = self.group(path);
        self.system.write(&group, knob, value).expect("written");
    }

    pub(in crate::agent) fn pod(&self, path: &str, qos: Qos) -> Pod {
        Pod {
            name: format!("test/{path}"),
            group: self.group(path),
            qos,
            is_resizing: false,
            is_of_kubelet: false,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for root in &self.roots {
            remove(root);
        }
    }
}

/// Makes a group below another. With version 2 a group has the files of a controller only if its parent says so.
fn make(at: &Path, path: &str) -> io::Result<()> {
    let mut group = at.to_owned();
    for name in Path::new(path) {
        fs::create_dir_all(&group)?;
        let below = group.join("cgroup.subtree_control");
        if below.exists() {
            fs::write(&below, "+cpu +memory")?;
            // Not every machine has it.
            let _without = fs::write(below, "+io");
        }
        group.push(name);
    }
    fs::create_dir_all(group)
}

/// Control groups are removed from the leaves up; their files go with them.
pub(super) fn remove(at: &Path) {
    for (_, child) in crate::cgroup::folders(at).unwrap_or_default() {
        remove(&child);
    }
    let _gone = fs::remove_dir(at);
}

pub(super) fn everything() -> Settings {
    Settings {
        preemption: true,
        burst: true,
        turbo: None,
        memory: true,
        io: false,
        eviction: eviction::Mode::Off,
        latency: true,
        root: None,
    }
}

pub(super) fn agent(settings: Settings, journal: &Path) -> Agent<Journal> {
    let folder = StateFolder::open(journal).expect("a folder");
    let (journal, held) = Journal::open(&folder).expect("a journal");
    let system = System::new(Mounts::find().expect("mounts"));
    Agent::new(settings, system, journal, held).expect("an agent")
}

pub(super) fn at(seconds: u64) -> Now {
    Now {
        since: Duration::from_secs(seconds),
        unix_s: 1_800_000_000 + seconds,
    }
}

pub(super) fn offline() -> Qos {
    Qos {
        class: Class::Offline,
        ..Qos::default()
    }
}

#[test]
fn offline_pods_yield_and_give_memory_and_everything_is_put_back() {
    let Some(mut tree) = Tree::new("classes", &["web", "batch/container"]) else {
        return;
    };
    tree.set("batch", Knob::CpuShare, Value::Amount(300));
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    let pods = vec![
        tree.pod("web", Qos::default()),
        tree.pod("batch", offline()),
    ];
    agent.set_pods(pods.clone());
    agent.tick(at(0));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    assert_ne!(tree.value("web", Knob::CpuShare), Value::Idle);
    assert!(tree.value("batch", Knob::Memory) < Value::Max);
    assert_eq!(tree.value("web", Knob::Memory), Value::Max);
    assert_eq!(agent.held().len(), 2);

    // Once offline, it stays so.
    agent.set_pods(vec![tree.pod("batch", Qos::default())]);
    agent.tick(at(2));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    // Online pods may become offline.
    agent.set_pods(vec![tree.pod("web", offline()), pods[1].clone()]);
    agent.tick(at(4));
    assert_eq!(tree.value("web", Knob::CpuShare), Value::Idle);
    // A pod that is no longer there gets back what it had.
    agent.set_pods(vec![tree.pod("web", offline())]);
    agent.tick(at(6));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Amount(300));
    assert_eq!(tree.value("batch", Knob::Memory), Value::Max);

    assert!(agent.restore());
    assert_ne!(tree.value("web", Knob::CpuShare), Value::Idle);
    assert!(agent.held().is_empty());
}

#[test]
fn the_limit_of_all_pods_counts_as_the_memory_of_the_node() {
    let Some(tree) = Tree::new("root", &["pods/batch"]) else {
        return;
    };
    let total: u64 = 512 << 20;
    for root in &tree.roots {
        // Each hierarchy has one of these files, or none.
        for file in ["memory.limit_in_bytes", "memory.max"] {
            let file = root.join("pods").join(file);
            if file.exists() {
                fs::write(file, total.to_string()).expect("a limit");
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        root: Some(tree.group("pods")),
        ..everything()
    };
    let mut agent = agent(settings, folder.path());
    agent.set_pods(vec![tree.pod("pods/batch", offline())]);
    agent.tick(at(0));
    let limit = tree.value("pods/batch", Knob::Memory);
    let limit = limit.amount().expect("an amount");
    // In whole pages.
    assert!(limit.abs_diff(total / 10 * 8) < 1 << 16, "{limit}");
    // What the kernel rounds is not taken for another program's value.
    agent.tick(at(1));
    assert!(agent.left_alone.is_empty(), "{:?}", agent.left_alone);
    assert!(agent.restore());
}

#[test]
fn the_next_agent_puts_back_what_a_killed_one_left() {
    let Some(tree) = Tree::new("killed", &["batch", "gone"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = agent(everything(), folder.path());
    first.set_pods(vec![
        tree.pod("batch", offline()),
        tree.pod("gone", offline()),
    ]);
    first.tick(at(0));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    // A process that is killed puts nothing back.
    drop(first);
    for root in &tree.roots {
        remove(&root.join("gone"));
    }
    let mut next = agent(everything(), folder.path());
    assert_eq!(next.held().len(), 4);
    assert!(next.restore());
    assert_ne!(tree.value("batch", Knob::CpuShare), Value::Idle);
    assert_eq!(tree.value("batch", Knob::Memory), Value::Max);
    assert!(Journal::look(folder.path()).expect("read").held.is_empty());
}

#[test]
fn containers_may_save_up_quota_and_their_pod_the_sum() {
    let Some(mut tree) = Tree::new("burst", &["web/a", "web/b"]) else {
        return;
    };
    tree.set("web", Knob::CpuQuota, Value::Amount(90_000));
    tree.set("web/a", Knob::CpuQuota, Value::Amount(50_000));
    tree.set("web/b", Knob::CpuQuota, Value::Amount(20_000));
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    let wish = |us| Qos {
        quota_burst_us: Some(us),
        ..Qos::default()
    };
    agent.set_pods(vec![tree.pod("web", wish(30_000))]);
    agent.tick(at(0));
    let bursts =
        |tree: &Tree| ["web", "web/a", "web/b"].map(|path| tree.value(path, Knob::CpuBurst));
    let wanted = [50_000, 30_000, 20_000].map(Value::Amount);
    assert_eq!(bursts(&tree), wanted);
    agent.set_pods(vec![tree.pod("web", Qos::default())]);
    agent.tick(at(2));
    assert_eq!(bursts(&tree), [Value::Amount(0); 3]);
}

#[test]
fn a_pod_that_is_resized_is_as_without_us_until_it_has_new_values() {
    let Some(mut tree) = Tree::new("resized", &["batch/a"]) else {
        return;
    };
    tree.set("batch", Knob::CpuShare, Value::Amount(300));
    tree.set("batch", Knob::CpuQuota, Value::Amount(50_000));
    tree.set("batch/a", Knob::CpuQuota, Value::Amount(50_000));
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    let wish = Qos {
        quota_burst_us: Some(40_000),
        ..offline()
    };
    let pod = tree.pod("batch", wish);
    let resized = Pod {
        is_resizing: true,
        ..pod.clone()
    };
    agent.set_pods(vec![pod.clone()]);
    agent.tick(at(0));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(40_000));

    agent.set_pods(vec![resized.clone()]);
    agent.tick(at(5));
    assert!(agent.held().is_empty());
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Amount(300));
    assert_eq!(tree.value("batch", Knob::Memory), Value::Max);
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(0));
    // What a kubelet writes, and what the kernel would have refused before: a weight, and a quota below the burst.
    tree.set("batch", Knob::CpuShare, Value::Amount(500));
    tree.set("batch/a", Knob::CpuQuota, Value::Amount(30_000));
    tree.set("batch", Knob::CpuQuota, Value::Amount(30_000));
    agent.tick(at(10));
    assert!(agent.held().is_empty());

    agent.set_pods(vec![pod.clone()]);
    agent.tick(at(11));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(30_000));

    // A value that a kubelet wrote too early does not keep the agent off afterwards.
    tree.set("batch", Knob::CpuShare, Value::Amount(700));
    agent.tick(at(12));
    agent.set_pods(vec![resized]);
    agent.tick(at(13));
    agent.set_pods(vec![pod]);
    agent.tick(at(14));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    assert!(agent.restore());
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Amount(700));
    assert_eq!(tree.value("batch/a", Knob::CpuBurst), Value::Amount(0));
}

#[test]
fn a_pod_that_is_started_anew_may_be_online() {
    let Some(tree) = Tree::new("anew", &["batch"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    agent.set_pods(vec![tree.pod("batch", offline())]);
    agent.tick(at(0));
    assert!(tree.value("batch", Knob::Memory) < Value::Max);
    for root in &tree.roots {
        remove(&root.join("batch"));
        fs::create_dir(root.join("batch")).expect("made");
    }
    agent.set_pods(vec![tree.pod("batch", Qos::default())]);
    agent.tick(at(10));
    agent.tick(at(20));
    assert_ne!(tree.value("batch", Knob::CpuShare), Value::Idle);
    assert_eq!(tree.value("batch", Knob::Memory), Value::Max);
    assert!(agent.held().is_empty());
}

/// Uses a processor in a group until it is killed.
struct Busy(std::process::Child);

impl Busy {
    fn within(tree: &Tree, path: &str) -> Busy {
        let files = tree
            .roots
            .iter()
            .map(|root| root.join(path).join("cgroup.procs"));
        let joins = files.map(|file| format!("echo $$ > {}; ", file.display()));
        let script = joins.collect::<String>() + "while :; do :; done";
        let shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .spawn();
        Busy(shell.expect("a shell"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// On real groups: the quota of a container that uses all of its own grows, its pod's with it, and both are put back.
#[test]
fn turbo_raises_the_quota_of_a_container_and_of_its_pod() {
    let Some(mut tree) = Tree::new("turbo", &["web/a", "web/b"]) else {
        return;
    };
    tree.set("web", Knob::CpuQuota, Value::Amount(20_000));
    tree.set("web/a", Knob::CpuQuota, Value::Amount(10_000));
    tree.set("web/b", Knob::CpuQuota, Value::Amount(10_000));
    let folder = tempfile::tempdir().expect("a folder");
    let turbo = turbo::Settings {
        // Other tests use the processors, too.
        high: 1_000.0,
        alarm: 2_000.0,
        ..turbo::Settings::new(turbo::Mode::Predictive)
    };
    let settings = Settings {
        turbo: Some(turbo),
        ..everything()
    };
    let mut agent = agent(settings, folder.path());
    let wish = Qos {
        quota_turbo: true,
        ..Qos::default()
    };
    agent.set_pods(vec![tree.pod("web", wish)]);
    let busy = Busy::within(&tree, "web/a");
    let began = Instant::now();
    let quotas =
        |tree: &Tree| ["web", "web/a", "web/b"].map(|path| tree.value(path, Knob::CpuQuota));
    let raised = loop {
        let now = Now {
            since: began.elapsed(),
            unix_s: 0,
        };
        let pause = agent.tick(now);
        let quotas = quotas(&tree);
        if quotas[1] > Value::Amount(10_000) {
            break quotas;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{quotas:?}");
        thread::park_timeout(pause);
    };
    let [pod, container, other] = raised.map(|value| value.amount().expect("an amount"));
    assert_eq!((other, pod - 20_000), (10_000, container - 10_000));
    let granted = agent.snapshot().turbo_cores.expect("turbo is on");
    assert!(
        (granted - (container - 10_000) as f64 / 1e5).abs() < 1e-9,
        "{granted}"
    );
    drop(busy);
    assert!(agent.restore());
    let wanted = [20_000, 10_000, 10_000].map(Value::Amount);
    assert_eq!(quotas(&tree), wanted);
}

/// Lets time pass; nothing tells when it is enough.
fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// On real groups: beside an online pod that wants all of a processor, an offline pod gets almost none of it, and half
/// again after the agent has put everything back.
#[test]
fn an_offline_pod_leaves_the_processor_to_an_online_one() {
    let Some(tree) = Tree::new("yields", &["web", "batch"]) else {
        return;
    };
    // What is started from here on runs on the processor that this thread runs on now.
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).expect("pinned");
    let _busy = ["web", "batch"].map(|path| Busy::within(&tree, path));
    let used = |path| {
        let counters = tree.system.cpu_files(&tree.group(path));
        let counters = counters.and_then(|files| files.read());
        counters.expect("read").used_us as f64
    };
    // The part of the time of both that the offline pod gets.
    let part = || {
        let before = (used("web"), used("batch"));
        pause(Duration::from_secs(1));
        let (web, batch) = (used("web") - before.0, used("batch") - before.1);
        batch / (web + batch)
    };
    let began = Instant::now();
    let reaches = |low: f64, high: f64| {
        while !(low..=high).contains(&part()) {
            assert!(began.elapsed() < Duration::from_secs(60), "{low} to {high}");
        }
    };
    reaches(0.3, 0.7);
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    agent.set_pods(vec![
        tree.pod("web", Qos::default()),
        tree.pod("batch", offline()),
    ]);
    agent.tick(at(0));
    reaches(0.0, 0.05);
    assert!(agent.restore());
    reaches(0.3, 0.7);
}

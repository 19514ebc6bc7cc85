//! Evictions on control groups and processes of this machine. What the machine says of pressure is that of the test.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::Qos;

use super::super::tests::{Tree, agent, at, everything, offline};
use super::super::{Agent, Pod, Settings};
use crate::arbiter::journal::{Journal, StateFolder, Store};
use crate::cgroup::{ControlGroup, Mounts, System, Version};
use crate::controllers::eviction::{MemorySample, Mode, Pressure, Sample};

/// Memory is short.
const SHORT: Sample = Sample {
    memory: Some(MemorySample {
        pressure: Some(Pressure {
            some: 5_000,
            full: 2_000,
        }),
        total: 1 << 30,
        available: 1 << 20,
    }),
    cpu: None,
};

fn settings(eviction: Mode) -> Settings {
    Settings {
        preemption: false,
        burst: false,
        memory: false,
        eviction,
        ..everything()
    }
}

/// A process in a group, ended with the test.
struct Process(Child);

impl Process {
    /// One that ends when it is asked to, or does not.
    fn within(tree: &Tree, path: &str, is_stubborn: bool) -> Process {
        let files = tree
            .roots
            .iter()
            .map(|root| root.join(path).join("cgroup.procs"));
        let joins = files.map(|file| format!("echo $$ > {}; ", file.display()));
        let trap = match is_stubborn {
            true => "trap '' TERM; ",
            false => "",
        };
        let script = joins.collect::<String>() + trap + "exec sleep 1000";
        let shell = Command::new("sh")
            .args(["-c", &script])
            .spawn()
            .expect("a shell");
        let process = Process(shell);
        let began = Instant::now();
        while !tree
            .system
            .all_processes(&tree.group(path))
            .expect("read")
            .contains(&process.id())
            || !process.is_asleep()
        {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "it is in its group"
            );
            thread::park_timeout(Duration::from_millis(5));
        }
        process
    }

    fn id(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Whether the shell is `sleep` by now, with its way of dealing with signals.
    fn is_asleep(&self) -> bool {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.id()));
        name.is_ok_and(|name| name.trim() == "sleep")
    }

    /// Waits for its end, at most so long.
    fn ends_within(&mut self, limit: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < limit {
            if self.0.try_wait().expect("waited").is_some() {
                return true;
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        false
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().expect("waited").is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

const SOON: Duration = Duration::from_secs(20);

/// Ticks once a second for so long.
fn ticks<S: Store>(agent: &mut Agent<S>, seconds: std::ops::Range<u64>) {
    for second in seconds {
        agent.tick(at(second));
    }
}

#[test]
fn a_pod_of_a_folder_is_asked_to_end_and_then_killed_and_no_online_pod_is() {
    let Some(tree) = Tree::new("evicted", &["web", "batch/container", "other"]) else {
        return;
    };
    let mut web = Process::within(&tree, "web", false);
    let mut stubborn = Process::within(&tree, "batch/container", true);
    let mut other = Process::within(&tree, "other", false);
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(settings(Mode::Act), folder.path());
    agent.evictions.sample = Some(SHORT);
    let pods = [
        tree.pod("web", Qos::default()),
        tree.pod("batch", offline()),
        tree.pod("other", offline()),
    ];
    agent.set_pods(vec![pods[0].clone(), pods[1].clone()]);
    ticks(&mut agent, 0..30);
    assert!(agent.remarks().advice.is_empty(), "not yet");
    ticks(&mut agent, 30..31);
    let remarks = agent.remarks();
    assert_eq!(remarks.advice[0].pod, "test/batch");
    assert_eq!(remarks.evicted.expect("evicted").pod, "test/batch");
    ticks(&mut agent, 31..40);
    assert!(stubborn.runs(), "it was only asked");
    ticks(&mut agent, 40..41);
    assert!(stubborn.ends_within(SOON), "it was killed");

    // The next one: a minute after the first, and it ends when it is asked to.
    agent.set_pods(pods.to_vec());
    ticks(&mut agent, 41..90);
    assert!(other.runs());
    assert_eq!(agent.remarks().advice[0].pod, "test/other");
    ticks(&mut agent, 90..91);
    assert!(other.ends_within(SOON), "it was asked");
    ticks(&mut agent, 91..300);
    assert!(agent.remarks().advice.is_empty(), "no offline pod is left");
    assert!(web.runs());
}

/// Files as those of groups: the pod's processes can be read until it is asked to end, and not from then on.
#[test]
fn a_pod_whose_processes_can_no_longer_be_read_is_not_gone_and_the_kernel_kills_it() {
    for version in [Version::V1, Version::V2] {
        let dir = tempfile::tempdir().expect("a folder");
        let pod = dir.path().join("jobs/batch");
        let file = |name: &str| pod.join(name);
        std::fs::create_dir_all(&pod).expect("made");
        let script = "trap '' TERM; echo ready; read -r _";
        let shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut stubborn = Process(shell.expect("a shell"));
        let mut said = [0; 6];
        let output = stubborn.0.stdout.as_mut().expect("its output");
        output.read_exact(&mut said).expect("it is ready");
        let id = stubborn.id().to_string();
        for (name, text) in [
            ("cgroup.procs", id.as_str()),
            ("cgroup.kill", ""),
            ("memory.limit_in_bytes", "4096"),
            ("memory.usage_in_bytes", "4096"),
            ("memory.max", "max"),
            ("memory.current", "4096"),
        ] {
            std::fs::write(file(name), text).expect("written");
        }

        let folder = StateFolder::open(&dir.path().join("state")).expect("a folder");
        let (journal, held) = Journal::open(&folder).expect("a journal");
        let system = System::new(Mounts::all_at(dir.path(), version));
        let agent = Agent::new(settings(Mode::Act), system, journal, held);
        let mut agent = agent.expect("an agent");
        agent.evictions.sample = Some(SHORT);
        agent.set_pods(vec![Pod {
            name: "test/batch".to_owned(),
            group: ControlGroup::new("jobs/batch").expect("a group"),
            qos: offline(),
            is_resizing: false,
            is_of_kubelet: false,
        }]);
        ticks(&mut agent, 0..31);
        assert!(agent.evictions.target.is_some(), "it was asked to end");
        std::fs::remove_file(file("cgroup.procs")).expect("removed");
        std::fs::create_dir(file("cgroup.procs")).expect("made");
        ticks(&mut agent, 31..45);
        let target = agent.evictions.target.as_ref().expect("it is not gone");
        let is_v2 = version == Version::V2;
        assert_eq!((target.is_killed, target.is_warned), (is_v2, !is_v2));
        let killed = std::fs::read_to_string(file("cgroup.kill")).expect("read");
        assert_eq!(killed == "1", is_v2);
        assert!(stubborn.runs(), "a file of a test kills nothing");

        std::fs::remove_dir_all(&pod).expect("removed");
        ticks(&mut agent, 45..46);
        assert!(agent.evictions.target.is_none(), "it is gone");
    }
}

/// Who may not be ended, however short memory is.
#[test]
fn only_offline_pods_of_a_folder_are_evicted() {
    let paths = ["online", "resized", "kubelet", "shared/online"];
    let Some(tree) = Tree::new("spared", &paths) else {
        return;
    };
    let mut all = paths.map(|path| Process::within(&tree, path, false));
    let pod = |path: &str, qos: Qos| tree.pod(path, qos);
    let pods = vec![
        pod("online", Qos::default()),
        Pod {
            is_resizing: true,
            ..pod("resized", offline())
        },
        Pod {
            is_of_kubelet: true,
            ..pod("kubelet", offline())
        },
        // An offline pod with an online one below it.
        pod("shared", offline()),
        pod("shared/online", Qos::default()),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(settings(Mode::Act), folder.path());
    agent.evictions.sample = Some(SHORT);
    agent.set_pods(pods);
    ticks(&mut agent, 0..200);
    let remarks = agent.remarks();
    // The kubelet's pod is advised, and left to the API server.
    let advised: Vec<&str> = remarks
        .advice
        .iter()
        .map(|advice| advice.pod.as_str())
        .collect();
    assert_eq!(advised, ["test/kubelet"]);
    assert_eq!(remarks.evicted, None);
    assert!(all.iter_mut().all(Process::runs));
}

#[test]
fn advice_alone_ends_no_process() {
    let Some(tree) = Tree::new("advised", &["batch"]) else {
        return;
    };
    let mut batch = Process::within(&tree, "batch", false);
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(settings(Mode::Advise), folder.path());
    agent.evictions.sample = Some(SHORT);
    agent.set_pods(vec![tree.pod("batch", offline())]);
    ticks(&mut agent, 0..200);
    assert_eq!(agent.remarks().advice.len(), 1);
    assert_eq!(agent.remarks().evicted, None);
    assert!(batch.runs());
    // It ends with the pressure.
    agent.evictions.sample = Some(Sample::default());
    ticks(&mut agent, 200..270);
    assert!(agent.remarks().advice.is_empty());
}

/// With version 1 the kernel tells the pressure of the machine alone, in which pods count that wait because they yield.
#[test]
fn pods_that_yield_are_not_advised_for_processors_with_version_1() {
    let Some(tree) = Tree::new("yielding", &["batch"]) else {
        return;
    };
    let _batch = Process::within(&tree, "batch", false);
    let folder = tempfile::tempdir().expect("a folder");
    for preemption in [false, true] {
        let settings = Settings {
            preemption,
            ..settings(Mode::Advise)
        };
        let mut agent = agent(settings, folder.path());
        agent.set_pods(vec![tree.pod("batch", offline())]);
        agent.tick(at(0));
        let candidates = agent.candidates();
        let is_v1 = tree.system.cpu_version() == Some(Version::V1);
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0].cpu_us.is_none(), preemption && is_v1);
        assert!(candidates[0].memory > 0);
        assert!(agent.restore());
    }
}

/// The machine's own numbers are understood, whatever they say.
#[test]
fn the_machine_is_sampled() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(_tree) = Tree::new("sampled", &[]) else {
        return;
    };
    let mut agent = agent(settings(Mode::Advise), folder.path());
    let sample = agent.sample();
    let memory = sample.memory.expect("memory is told");
    assert!(memory.available <= memory.total && memory.total > 1 << 20);
    assert_eq!(memory.pressure.is_some(), agent.evictions.untold.is_none());
}

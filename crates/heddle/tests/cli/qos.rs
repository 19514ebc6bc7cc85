//! `heddle qos` on control groups of this machine.

mod disks;
mod kubelet;
mod latency;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_skips::skipped;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Folder, as_str, eventually, heddle, text};

mod metrics;
mod network;
mod node;
mod operator;
mod proxy;
mod state;

/// Where the hierarchies of the processors and of memory are mounted, with version 1 or 2.
const ROOTS: [&str; 4] = [
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/cpuacct",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup",
];

/// Groups of a test, removed at the end.
struct Groups {
    name: String,
    roots: Vec<PathBuf>,
    folder: Folder,
}

impl Groups {
    /// `None`, reported, where this process may not make control groups.
    fn new(name: &str, pods: &[&str]) -> Option<Groups> {
        let made = Groups::made(name, pods);
        made.map_err(|error| skipped(&format!("no control groups: {error}")))
            .ok()
    }

    fn made(name: &str, pods: &[&str]) -> io::Result<Groups> {
        let name = format!("heddle-test-{}-{name}", std::process::id());
        let is_v1 = Path::new(ROOTS[0]).join("cpu.shares").exists() || Path::new(ROOTS[0]).is_dir();
        let roots = match is_v1 {
            true => &ROOTS[..3],
            false => &ROOTS[3..],
        };
        let groups = Groups {
            roots: roots.iter().map(PathBuf::from).collect(),
            name,
            folder: Folder::new(),
        };
        for root in &groups.roots {
            let group = root.join(&groups.name);
            fs::create_dir_all(&group)?;
            for pod in pods {
                let mut at = group.clone();
                for name in Path::new(pod) {
                    // With version 2 a group has the files of a controller only if its parent says so.
                    let below = at.join("cgroup.subtree_control");
                    if below.exists() {
                        fs::write(below, "+cpu +memory")?;
                    }
                    at.push(name);
                    fs::create_dir_all(&at)?;
                }
            }
        }
        Ok(groups)
    }

    fn file(&self, pod: &str, file: &str) -> PathBuf {
        self.roots[0].join(&self.name).join(pod).join(file)
    }

    /// The file of a group's weight.
    fn weight(&self) -> &'static str {
        match self.file("", "cpu.shares").exists() {
            true => "cpu.shares",
            false => "cpu.weight",
        }
    }

    fn read(&self, pod: &str, file: &str) -> String {
        let text = fs::read_to_string(self.file(pod, file)).expect("read");
        text.trim_end().to_owned()
    }

    /// A manifest of the pod, with these annotations, too.
    fn manifest(&self, pod: &str, annotations: &str) {
        let text = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: {pod}\n  namespace: qos\n  \
             annotations: {{heddle.dev/cgroup: {}/{pod}, {annotations}}}\nspec: {{ports: [{{port: 80}}]}}\n",
            self.name
        );
        self.folder.write(&format!("{pod}.yaml"), &text);
    }

    fn state(&self) -> PathBuf {
        self.folder.path("qos")
    }

    fn start(&self, more: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
        command.args(["qos", "run", as_str(&self.folder.manifests())]);
        command.args(["--state", as_str(&self.state())]).args(more);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("started")
    }

    /// Runs `heddle qos status` or `restore`: its exit code, and what it said.
    fn ask(&self, command: &str) -> (Option<i32>, String) {
        let output = heddle(&["qos", command, "--state", as_str(&self.state())]);
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for root in &self.roots {
            remove(&root.join(&self.name));
        }
    }
}

/// Control groups are removed from the leaves up; their files go with them.
fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _gone = fs::remove_dir(group);
}

/// Lets time pass; nothing tells when it is enough.
fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("signalled");
}

const OFFLINE: &str = "volcano.sh/preemptable: \"true\"";

#[test]
fn an_agent_follows_its_folder_says_what_it_changed_and_puts_it_back() {
    let Some(groups) = Groups::new("agent", &["web", "batch"]) else {
        return;
    };
    let weight = groups.weight();
    fs::write(groups.file("batch", weight), "200").expect("written");
    groups.manifest("web", "heddle.dev/class: online");
    let mut agent = groups.start(&[]);
    eventually("it runs", || groups.ask("status").0 == Some(0));
    groups.manifest("batch", OFFLINE);
    eventually("the batch pod yields", || {
        groups.read("batch", "cpu.idle") == "1"
    });
    assert_eq!(groups.read("web", "cpu.idle"), "0");

    let (code, said) = groups.ask("status");
    assert_eq!(code, Some(0));
    let line = said.lines().find(|line| line.contains("cpu-share"));
    let line = line.expect("a line of the pod");
    for part in [
        "qos/batch",
        "offline",
        "200",
        "idle",
        "ago",
        "yields the processors",
    ] {
        assert!(line.contains(part), "{part}: {said}");
    }
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(5), "{said}");
    let second = groups.start(&[]).wait().expect("ended");
    assert_eq!(second.code(), Some(5), "one agent alone");

    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    assert_eq!(groups.read("batch", "cpu.idle"), "0");
    assert_eq!(groups.read("batch", weight), "200");
    assert_eq!(groups.ask("status").0, Some(4));
}

#[test]
fn a_dry_run_changes_nothing() {
    let Some(groups) = Groups::new("dry", &["batch"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args([
        "qos",
        "run",
        "--dry-run",
        as_str(&groups.folder.manifests()),
    ]);
    command.args(["--state", as_str(&groups.state())]);
    let log = groups.folder.path("log");
    let errors = fs::File::create(&log).expect("a file");
    let mut agent = command.stderr(errors).spawn().expect("started");
    let said = || fs::read_to_string(&log).expect("read");
    eventually("it says what it would do", || said().contains("to idle"));
    assert_eq!(groups.read("batch", "cpu.idle"), "0");
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0), "{}", said());
    assert!(said().contains("a dry run"), "{}", said());
    assert!(!groups.state().exists());
}

#[test]
fn restore_puts_back_what_a_killed_agent_left() {
    let Some(groups) = Groups::new("restore", &["batch"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    let mut agent = groups.start(&[]);
    eventually("processors and memory are changed", || {
        groups.ask("status").1.contains("2 settings changed")
    });
    assert_eq!(groups.read("batch", "cpu.idle"), "1");
    signal(&agent, Signal::KILL);
    agent.wait().expect("ended");
    let (code, said) = groups.ask("status");
    assert_eq!(code, Some(6));
    assert!(
        said.contains("no agent runs") && said.contains("heddle qos restore"),
        "{said}"
    );
    let (code, said) = groups.ask("restore");
    assert_eq!((code, said.as_str()), (Some(0), "2 settings put back\n"));
    assert_eq!(groups.read("batch", "cpu.idle"), "0");
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(0));
    assert!(said.starts_with("nothing is changed"), "{said}");
}

#[test]
fn mistakes_in_annotations_are_told() {
    let folder = Folder::new();
    folder.write(
        "a.yaml",
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: a\n  annotations:\n    \
         heddle.dev/class: ofline\n    heddle.dev/cgroup: ../x\n    volcano.sh/quota-turbo: \"yes\"\n    \
         volcano.sh/quota-burst-time: \"-1\"\n    heddle.dev/latency-p99: \"5\"\nspec: {address: 127.1.0.1, ports: [{port: 80}]}\n",
    );
    let of_the_mount = "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: b\n  annotations: \
                        {heddle.dev/cgroup: /sys/fs/cgroup/cpu/x}\nspec: {address: 127.1.0.2, ports: [{port: 80}]}\n";
    folder.write("b.yaml", of_the_mount);
    let output = heddle(&["validate", as_str(&folder.manifests())]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for part in [
        "as /proc/PID/cgroup has it (write one below the root",
        "\"ofline\" is no class (use online or offline)",
        "\"../x\" is no path of a control group",
        "\"yes\" is neither true nor false",
        "\"-1\" is no time in microseconds",
        "\"5\" is no duration from 1ms to 10s (write it with its unit, such as 5ms)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Kills the agent at 200 moments while another program writes the same files. What that program wrote last stays, and
/// everything else is as it was.
#[test]
fn an_agent_that_is_killed_two_hundred_times_overwrites_no_foreign_value() {
    let Some(groups) = Groups::new("killed", &["batch", "web"]) else {
        return;
    };
    let (weight, quota) = match groups.file("web", "cpu.shares").exists() {
        true => ("cpu.shares", "cpu.cfs_quota_us"),
        false => ("cpu.weight", "cpu.max"),
    };
    fs::write(groups.file("batch", weight), "200").expect("written");
    fs::write(groups.file("web", quota), "30000").expect("written");
    groups.manifest("batch", OFFLINE);
    groups.manifest("web", "volcano.sh/quota-burst-time: \"9000\"");
    let burst = match quota {
        "cpu.max" => "cpu.max.burst",
        _ => "cpu.cfs_burst_us",
    };

    let stop = AtomicBool::new(false);
    let last = thread::scope(|scope| {
        // As a kubelet does: it writes a burst now and then, and never reads.
        let writer = scope.spawn(|| {
            let mut number = 10_000;
            while !stop.load(Ordering::Relaxed) {
                number = 10_000 + (number + 7) % 10_000;
                fs::write(groups.file("web", burst), number.to_string()).expect("written");
                pause(Duration::from_millis(23));
            }
            number.to_string()
        });
        let killed_after = |wait: &dyn Fn()| {
            let mut agent = groups.start(&[]);
            wait();
            signal(&agent, Signal::KILL);
            agent.wait().expect("ended");
        };
        let began = Instant::now();
        killed_after(&|| {
            eventually("the batch pod yields", || {
                groups.read("batch", "cpu.idle") == "1"
            });
        });
        let works_after = began.elapsed();
        assert_eq!(groups.ask("restore").0, Some(0));

        let mut killed_at_work = 0;
        for kill in 0..200 {
            // From before its first line to well within its work.
            killed_after(&|| pause(works_after * 2 * kill / 200));
            killed_at_work += u32::from(groups.read("batch", "cpu.idle") == "1");
        }
        assert!(killed_at_work > 20, "{killed_at_work}");
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer")
    });
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(groups.read("batch", "cpu.idle"), "0");
    assert_eq!(groups.read("batch", weight), "200");
    assert_eq!(groups.read("web", burst), last);
    assert!(groups.read("web", quota).starts_with("30000"));
}

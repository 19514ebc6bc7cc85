//! Pod bandwidth, in network namespaces: one is the node, one the pod.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heddle_skips::skipped;
use rustix::process::Signal;

use super::{Groups, OFFLINE, as_str, eventually, pause, signal, text};

/// A process that keeps a network namespace.
struct Namespace(Child);

impl Namespace {
    fn new() -> Namespace {
        let mut command = Command::new("unshare");
        let keeper = command.args(["-n", "sleep", "600"]).spawn();
        let namespace = Namespace(keeper.expect("unshare"));
        let own = fs::read_link("/proc/self/ns/net").expect("own");
        eventually("it has a namespace of its own", || {
            fs::read_link(namespace.path()).is_ok_and(|link| link != own)
        });
        namespace
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    /// A command of words in the namespace.
    fn command(&self, command: &str) -> Command {
        let mut within = Command::new("nsenter");
        within.args(["-t", &self.0.id().to_string(), "-n"]);
        within.args(command.split_ascii_whitespace());
        within
    }

    fn run(&self, command: &str) -> String {
        let done = self.command(command).output().expect("nsenter");
        assert!(done.status.success(), "{command}: {}", text(&done.stderr));
        text(&done.stdout)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A running agent, which does not outlive its test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A node with an offline pod.
struct Node {
    // Its process ends before its group is removed.
    _pod: Namespace,
    node: Namespace,
    groups: Groups,
    config: PathBuf,
}

impl Node {
    /// `None`, reported, where this process may not make what it needs.
    fn new(name: &str) -> Option<Node> {
        if !rustix::process::geteuid().is_root() {
            skipped("needs root");
            return None;
        }
        let has = |program: &str| {
            let version = Command::new(program)
                .arg("-V")
                .stdout(Stdio::null())
                .status();
            version.is_ok_and(|status| status.success())
        };
        if !["ip", "tc", "nsenter"].into_iter().all(has) {
            skipped("needs ip, tc and nsenter (apt-get install iproute2 util-linux)");
            return None;
        }
        let groups = Groups::new(name, &["batch"])?;
        let (node, pod) = (Namespace::new(), Namespace::new());
        for root in &groups.roots {
            let procs = root.join(&groups.name).join("batch/cgroup.procs");
            fs::write(procs, pod.0.id().to_string()).expect("moved");
        }
        for command in [
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
            "ip link add name eth0 type veth peer name eth0-peer",
            "ip link add name veth1 type veth peer name veth1-peer",
            "ip link set dev eth0 up",
            "ip link set dev veth1 up",
        ] {
            node.run(command);
        }
        node.run(&format!("ip link set dev veth1-peer netns {}", pod.0.id()));
        groups.manifest("batch", OFFLINE);
        let config = groups.folder.path("settings.yaml");
        let settings = "qos:\n  memory: false\n  network:\n    enabled: true\n    link_bytes_per_s: 125000000\n";
        fs::write(&config, settings).expect("written");
        Some(Node {
            groups,
            node,
            _pod: pod,
            config,
        })
    }

    fn start(&self, more: &str) -> Agent {
        let heddle = env!("CARGO_BIN_EXE_heddle");
        let folder = self.groups.folder.manifests();
        let (state, config) = (self.groups.state(), &self.config);
        let mut command = self.node.command(&format!(
            "{heddle} qos run {} --state {} --config {} {more}",
            as_str(&folder),
            as_str(&state),
            as_str(config)
        ));
        let log = fs::File::create(self.log()).expect("created");
        let command = command.stdout(Stdio::null()).stderr(log);
        Agent(command.spawn().expect("started"))
    }

    fn log(&self) -> PathBuf {
        self.groups.folder.path("agent.log")
    }

    /// Runs `heddle qos restore` in the node.
    fn restore(&self) -> (Option<i32>, String) {
        let state = self.groups.state();
        let heddle = env!("CARGO_BIN_EXE_heddle");
        let mut command = self
            .node
            .command(&format!("{heddle} qos restore --state {}", as_str(&state)));
        let output = command.output().expect("nsenter");
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    }

    fn is_clean(&self) -> bool {
        let qdiscs = self.node.run("tc qdisc show");
        !qdiscs.contains("htb") && !qdiscs.contains("clsact")
    }
}

#[test]
fn an_offline_pod_is_limited_and_everything_is_put_back() {
    let Some(node) = Node::new("network") else {
        return;
    };
    let mut agent = node.start("");
    eventually("the pod is marked and limited", || {
        node.groups.ask("status").1.contains("5 settings changed")
    });
    let (_, said) = node.groups.ask("status");
    for part in [
        "mark of veth1",
        "0x10/0x30",
        "clsact of veth1",
        "qdisc of veth1",
        "qdisc of eth0",
        "htb 4ed1:",
        "noqueue",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        node.node
            .run("tc filter show dev veth1 ingress")
            .contains("heddle_offline")
    );
    eventually("it may use what is free", || {
        node.node
            .run("tc class show dev eth0")
            .contains("rate 960Mbit")
    });
    signal(&agent.0, Signal::KILL);
    agent.0.wait().expect("ended");
    assert!(!node.is_clean());
    let (code, said) = node.restore();
    assert_eq!((code, said.as_str()), (Some(0), "5 settings put back\n"));
    assert!(node.is_clean());

    let mut agent = node.start("");
    eventually("it is limited again", || !node.is_clean());
    node.groups.manifest("web", "heddle.dev/class: online");
    let gone = node.groups.folder.manifests().join("batch.yaml");
    fs::remove_file(gone).expect("removed");
    eventually("nothing is left for it", || node.is_clean());
    signal(&agent.0, Signal::TERM);
    assert_eq!(agent.0.wait().expect("ended").code(), Some(0));
}

#[test]
fn a_dry_run_says_what_it_would_do_to_the_network() {
    let Some(node) = Node::new("rehearsed") else {
        return;
    };
    let mut agent = node.start("--dry-run");
    pause(Duration::from_millis(800));
    assert!(node.is_clean());
    signal(&agent.0, Signal::TERM);
    agent.0.wait().expect("ended");
    let said = fs::read_to_string(node.log()).expect("read");
    for part in [
        "mark of veth1",
        "qdisc of eth0 would go from noqueue to htb 4ed1:",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Kills the agent at 200 moments while another program has filters and queueing disciplines of its own at the same
/// interfaces. They stay, and nothing of the agent is left after the next start.
#[test]
fn an_agent_that_is_killed_two_hundred_times_overwrites_nothing_in_the_network() {
    let Some(node) = Node::new("netkill") else {
        return;
    };
    let stop = AtomicBool::new(false);
    let mut killed_at_work = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let run = |command: &str| {
                let output = node.node.command(command).output().expect("nsenter");
                output.status.success()
            };
            while !stop.load(Ordering::Relaxed) {
                // Refused where something of the agent is in the way: then it stays as it is.
                run("tc qdisc add dev veth1 clsact");
                run("tc filter add dev veth1 egress prio 9 protocol all u32 match u32 0 0 flowid 1:1");
                run("tc qdisc replace dev eth0 root handle 9: pfifo limit 66");
                pause(Duration::from_millis(20));
                run("tc qdisc delete dev eth0 root handle 9:");
                run("tc filter delete dev veth1 egress prio 9");
                pause(Duration::from_millis(20));
            }
            run("tc qdisc replace dev eth0 root handle 9: pfifo limit 77");
            run("tc qdisc add dev veth1 clsact");
            run("tc filter replace dev veth1 egress prio 9 protocol all u32 match u32 0 0 flowid 1:1");
        });
        for kill in 0..200u64 {
            let mut agent = node.start("");
            // From before its first line to well within its work.
            pause(Duration::from_micros(kill * 400));
            signal(&agent.0, Signal::KILL);
            agent.0.wait().expect("ended");
            let qdiscs = node.node.run("tc qdisc show");
            killed_at_work += u32::from(qdiscs.contains("htb 4ed1:"));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(killed_at_work > 20, "{killed_at_work}");
    let (code, said) = node.restore();
    assert_eq!(code, Some(0), "{said}");
    let qdiscs = node.node.run("tc qdisc show");
    assert!(!qdiscs.contains("htb"), "{qdiscs}");
    assert!(qdiscs.contains("limit 77p"), "{qdiscs}");
    let filters = node.node.run("tc filter show dev veth1 egress");
    assert!(filters.contains("u32"), "{filters}");
    let filters = node.node.run("tc filter show dev veth1 ingress");
    assert!(!filters.contains("heddle"), "{filters}");
}

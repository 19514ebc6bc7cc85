//! The network of the experiment, in network namespaces that a process each keeps. It goes away with them.
//!
//! ```text
//!   online  10.1.1.2 ─┐                                             ┌─ 10.4.1.2  iperf3 -s
//!                     ├─ node ── eth0 ── router ──tbf── far (counted)┤
//!   offline 10.1.2.2 ─┘                                             └─ 10.4.2.2  iperf3 -s
//! ```

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::of_process;
use crate::child::{Child, Confinement, words};

/// What the bottleneck queues, in bytes: 20 ms.
const QUEUE_MS: u64 = 20;
pub(super) const PORT: &str = "5201";
/// A process has entered its namespace after this.
const ENTERED_WITHIN: Duration = Duration::from_secs(5);

/// Which of the two flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Online,
    Offline,
}

impl Flow {
    pub(super) const ALL: [Flow; 2] = [Flow::Online, Flow::Offline];

    pub(super) fn name(self) -> &'static str {
        match self {
            Flow::Online => "online",
            Flow::Offline => "offline",
        }
    }

    /// The address of its server.
    pub(super) fn server(self) -> &'static str {
        match self {
            Flow::Online => "10.4.1.2",
            Flow::Offline => "10.4.2.2",
        }
    }

    /// The address of its pod where that is a workload of the node's own network.
    pub(super) fn workload(self) -> &'static str {
        match self {
            Flow::Online => "127.1.0.11",
            Flow::Offline => "127.1.0.12",
        }
    }
}

/// A network namespace, and the process that keeps it.
struct Place {
    keeper: Child,
}

/// The namespaces, and the servers.
pub(super) struct Stage {
    node: Place,
    pods: [Place; 2],
    far: Place,
    _others: [Place; 3],
    _servers: [Child; 2],
    folder: tempfile::TempDir,
}

/// Where the bytes of both flows are counted behind the bottleneck.
pub(super) struct Counters {
    pid: u32,
}

impl Place {
    fn new(name: &str, groups: &[PathBuf], folder: &tempfile::TempDir) -> anyhow::Result<Place> {
        let place = Confinement {
            groups: groups.to_vec(),
            ..Confinement::default()
        };
        let command = words(["unshare", "-n", "sleep", "infinity"]);
        let log = folder.path().join(name);
        let mut keeper = Child::start(name, &place, &command, &log, false)?;
        let own = fs::read_link("/proc/self/ns/net")?;
        let theirs = format!("/proc/{}/ns/net", keeper.pid());
        keeper.wait_until(ENTERED_WITHIN, || {
            fs::read_link(&theirs)
                .is_ok_and(|link| link != own)
                .then_some(())
        })?;
        let place = Place { keeper };
        place.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")?;
        place.run("ip link set dev lo up")?;
        // BBR, the default of some hosts, ignores the losses by which flows share a bottleneck.
        place
            .run("sysctl -qw net.ipv4.tcp_congestion_control=cubic")
            .or_else(|_| place.run("sysctl -qw net.ipv4.tcp_congestion_control=reno"))?;
        Ok(place)
    }

    fn pid(&self) -> u32 {
        self.keeper.pid()
    }

    fn within<Word: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = Word>) -> Vec<OsString> {
        let pid = self.pid().to_string();
        let mut within = words(["nsenter", "-t", &pid, "-n"]);
        within.extend(words(command));
        within
    }

    /// Runs a command of words.
    fn run(&self, command: &str) -> anyhow::Result<String> {
        let all = self.within(command.split_ascii_whitespace());
        let (program, arguments) = all.split_first().context("a program")?;
        let done = Command::new(program).args(arguments).output()?;
        if !done.status.success() {
            bail!(
                "{command}: {}",
                String::from_utf8_lossy(&done.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Makes a veth pair to another place, with an address of a /24 at both ends.
    fn connect(
        &self,
        (name, address): (&str, &str),
        other: &Place,
        (theirs, their_address): (&str, &str),
    ) -> anyhow::Result<()> {
        let pid = other.pid();
        self.run(&format!(
            "ip link add name {name} type veth peer name {theirs} netns {pid}"
        ))?;
        for (place, name, address) in [(self, name, address), (other, theirs, their_address)] {
            place.run(&format!("ip address add {address}/24 dev {name}"))?;
            place.run(&format!("ip link set dev {name} up"))?;
        }
        Ok(())
    }
}

impl Stage {
    /// Makes the network, whose bottleneck carries `link` bytes per second. The offline pod's process is in `groups`.
    ///
    /// # Errors
    /// When the kernel refuses, or a server does not start.
    pub(super) fn new(link: u64, groups: &[PathBuf]) -> anyhow::Result<Stage> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let place = |name: &str| Place::new(name, &[], &folder);
        let (node, router, far) = (place("node")?, place("router")?, place("far")?);
        let pods = [place("online")?, Place::new("offline", groups, &folder)?];
        let sinks = [place("sink1")?, place("sink2")?];

        node.connect(("veth1", "10.1.1.1"), &pods[0], ("eth0", "10.1.1.2"))?;
        node.connect(("veth2", "10.1.2.1"), &pods[1], ("eth0", "10.1.2.2"))?;
        node.connect(("eth0", "10.2.0.1"), &router, ("in", "10.2.0.2"))?;
        router.connect(("out", "10.3.0.1"), &far, ("eth0", "10.3.0.2"))?;
        far.connect(("sink1", "10.4.1.1"), &sinks[0], ("eth0", "10.4.1.2"))?;
        far.connect(("sink2", "10.4.2.1"), &sinks[1], ("eth0", "10.4.2.2"))?;
        for (place, via) in [
            (&pods[0], "10.1.1.1"),
            (&pods[1], "10.1.2.1"),
            (&node, "10.2.0.2"),
            (&far, "10.3.0.1"),
            (&sinks[0], "10.4.1.1"),
            (&sinks[1], "10.4.2.1"),
        ] {
            place.run(&format!("ip route add default via {via}"))?;
        }
        router.run("ip route add 10.1.0.0/16 via 10.2.0.1")?;
        router.run("ip route add 10.4.0.0/16 via 10.3.0.2")?;
        let queue = link * QUEUE_MS / 1_000;
        router.run(&format!(
            "tc qdisc add dev out root tbf rate {}bit burst 128kb limit {queue}",
            link * 8
        ))?;

        let server = |place: &Place, name: &str| {
            let command = place.within(["iperf3", "-s", "-p", PORT]);
            let log = folder.path().join(name);
            let mut server =
                Child::start("iperf3 -s", &Confinement::default(), &command, &log, false)?;
            let pid = server.pid();
            // Its port is 5201, 1451 in hexadecimal, and the state of a listener is 0A (proc_pid_net(5)).
            let listens = || {
                let files = ["net/tcp", "net/tcp6"].map(|file| of_process(pid, file));
                let listens = |text: &String| {
                    text.lines()
                        .any(|line| line.contains(":1451 ") && line.contains(" 0A "))
                };
                files.iter().flatten().any(listens).then_some(())
            };
            server.wait_until(ENTERED_WITHIN, listens)?;
            anyhow::Ok(server)
        };
        let servers = [server(&sinks[0], "server1")?, server(&sinks[1], "server2")?];
        let [sink1, sink2] = sinks;
        Ok(Stage {
            node,
            pods,
            far,
            _others: [router, sink1, sink2],
            _servers: servers,
            folder,
        })
    }

    /// Starts a flow of so many seconds: from its pod, or from the node's own network via the listener at an address.
    ///
    /// # Errors
    /// When iperf3 cannot be started.
    pub(super) fn flow(
        &self,
        flow: Flow,
        via: Option<&str>,
        seconds: u64,
    ) -> anyhow::Result<Child> {
        let (from, to) = match (via, flow) {
            (Some(listener), _) => (&self.node, listener),
            (None, Flow::Online) => (&self.pods[0], flow.server()),
            (None, Flow::Offline) => (&self.pods[1], flow.server()),
        };
        let seconds = seconds.to_string();
        let command = from.within(["iperf3", "-c", to, "-p", PORT, "-t", &seconds]);
        let log = self.folder.path().join(format!("{}.log", flow.name()));
        Child::start("iperf3", &Confinement::default(), &command, &log, false)
    }

    /// A command in the node's namespace.
    pub(super) fn in_node(&self, command: Vec<OsString>) -> Vec<OsString> {
        self.node.within(command)
    }

    /// Whether the node's interface has the class of offline pods.
    pub(super) fn is_limited(&self) -> bool {
        let classes = self.node.run("tc class show dev eth0");
        classes.is_ok_and(|text| text.contains("4ed1:2"))
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            pid: self.far.pid(),
        }
    }
}

impl Counters {
    /// Bytes of the online and the offline flow that have come through the bottleneck (`proc_pid_net(5)`, `dev`).
    ///
    /// # Errors
    /// When the stage is gone.
    pub(super) fn read(&self) -> anyhow::Result<[u64; 2]> {
        let text = of_process(self.pid, "net/dev")?;
        let sent = |name: &str| {
            let mut lines = text.lines();
            let counters =
                lines.find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
            // Eight of what is received, then the bytes of what is sent.
            let sent = counters?.split_ascii_whitespace().nth(8);
            sent?.parse().ok()
        };
        let both = sent("sink1").zip(sent("sink2"));
        let (online, offline) = both.context("net/dev is not understood")?;
        Ok([online, offline])
    }
}

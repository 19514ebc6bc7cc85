//! Programs of other projects: finds them, and runs them in pods.

use std::env;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use heddle_skips::skipped;
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Stage, pause, until};

/// Debian's folders of programs that are not in every user's `PATH`.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/lib/git-core", "/usr/lib/postgresql"];
/// Timeout of a client program, in seconds.
const TIME_LIMIT: &str = "60";
/// How long a server may take to end after SIGTERM.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Whether all programs are installed. If not, reports a skip, or fails where every test is required.
pub(crate) fn are_here(programs: &[&str]) -> bool {
    let missing = programs.iter().copied().filter(|name| find(name).is_none());
    let missing: Vec<&str> = missing.collect();
    if missing.is_empty() {
        return true;
    }
    let why = format!(
        "these programs are not installed: {} (scripts/setup.sh test installs them)",
        missing.join(", ")
    );
    assert!(env::var_os("CI").is_none(), "{why}");
    skipped(&why);
    false
}

/// The path of a program, if it is installed.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(MORE_FOLDERS.map(PathBuf::from));
    // PostgreSQL's programs are in a folder for each version.
    let versions = Path::new("/usr/lib/postgresql").read_dir();
    folders.extend(
        versions
            .into_iter()
            .flatten()
            .flatten()
            .map(|version| version.path().join("bin")),
    );
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|found| found.is_file())
}

/// The path of an installed program.
pub(crate) fn path(name: &str) -> String {
    let found = find(name).unwrap_or_else(|| panic!("{name} is not installed"));
    found.to_string_lossy().into_owned()
}

/// A server in a pod, which is stopped on drop.
pub(crate) struct Serving(Child);

impl Serving {
    pub(crate) fn pid(&self) -> Pid {
        let pid = i32::try_from(self.0.id()).ok();
        pid.and_then(Pid::from_raw).expect("a number")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It is our child and has not been waited for, so its pid cannot be reused.
            let _ended = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_WITHIN;
        while let Ok(None) = self.0.try_wait() {
            if Instant::now() > deadline {
                let _ended = self.0.kill();
                let _reaped = self.0.wait();
                return;
            }
            pause(Duration::from_millis(10));
        }
    }
}

impl Stage {
    /// Starts a server in a pod, and waits until it listens on the port.
    pub(crate) fn serve(&self, pod: &str, port: u16, argv: &[&str]) -> Serving {
        let mut command = self.pod(pod).command(argv[0]).expect("a pod");
        command.args(&argv[1..]);
        self.serve_by(pod, port, command)
    }

    pub(crate) fn serve_by(&self, pod: &str, port: u16, mut command: Command) -> Serving {
        let log = self.folder().join(format!("{pod}.log"));
        let output = File::create(&log).expect("a log");
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a log"))
            .stderr(output)
            .spawn();
        let shown = command.get_program().display().to_string();
        let mut serving = Serving(child.unwrap_or_else(|error| panic!("{shown}: {error}")));
        let pid = serving.0.id();
        until(&format!("{shown} listens on port {port}"), || {
            if let Ok(Some(status)) = serving.0.try_wait() {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                panic!("{shown} has ended, {status}: {said}");
            }
            listens(pid, port)
        });
        serving
    }

    /// Runs a program in a pod to its end, with a timeout.
    pub(crate) fn run(&self, pod: &str, argv: &[&str]) -> Output {
        let mut command = self.pod(pod).command("timeout").expect("a pod");
        let command = command.arg(TIME_LIMIT).args(argv).stdin(Stdio::null());
        command.output().expect("timeout runs")
    }

    /// The output of a program in a pod, which must succeed.
    pub(crate) fn says(&self, pod: &str, argv: &[&str]) -> String {
        let output = self.run(pod, argv);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "in {pod}, {}: {}\n{said}{}",
            argv.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        said
    }

    /// Checks that the traffic of `work` is carried by the mesh from a pod to a Service: both nodes count exchanges
    /// between the two, and between the nodes only encrypted traffic is captured.
    pub(crate) fn is_carried(&self, from: &str, to: &str, work: impl FnOnce()) {
        let mut nodes = vec![self.node_of(from), self.node_of(to)];
        nodes.dedup();
        let counted = |node: &str| self.counters(node).carried(from, to).exchanges;
        let before: Vec<u64> = nodes.iter().map(|node| counted(node)).collect();
        let underlay = self.hear_underlay();
        work();
        for (node, before) in nodes.iter().zip(before) {
            until(
                &format!("node {node} has counted what {from} and {to} say"),
                || counted(node) > before,
            );
        }
        let heard = underlay.stop();
        let pods: Vec<IpAddr> = self.pod_addresses();
        let in_the_clear = heard.of(&pods);
        assert_eq!(
            in_the_clear.packets, 0,
            "{from} and {to}: packets of pods between the nodes: {heard:?}"
        );
        // Pods on one node exchange no packets between nodes; otherwise something must have been captured.
        let crossed = nodes.len() > 1;
        assert!(
            !crossed || heard.all().payload > 0,
            "{from} and {to}: nothing heard"
        );
    }
}

/// Whether a process listens on a port in the namespace of `pid` (proc(5), /proc/net/tcp: state 0A).
fn listens(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].into_iter().any(|file| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        let mut rows = table.lines().skip(1);
        rows.any(|row| {
            let fields: Vec<&str> = row.split_whitespace().collect();
            let own = format!(":{port:04X}");
            fields.get(1).is_some_and(|local| local.ends_with(&own)) && fields.get(3) == Some(&"0A")
        })
    })
}

/// Bytes in which a missing or repeated piece is noticed.
pub(crate) fn pattern(length: u32) -> Vec<u8> {
    let mixed = (0..length).map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]);
    mixed.collect()
}

/// A path as text.
pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

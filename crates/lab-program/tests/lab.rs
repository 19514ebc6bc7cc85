//! Tests with real labs. They need root; without it they report that they were skipped.
//!
//! Pods run this test program itself, as one of the two ignored tests at the end.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::lab::{self, Family, Lab, LabName, Plan, Programs};
use heddle_skips::skipped;
use tempfile::TempDir;

#[path = "lab/operating.rs"]
mod operating;

const PROGRAM: &str = env!("CARGO_BIN_EXE_heddle-lab");
/// Environment variables for the tests at the end.
const SERVE: &str = "LAB_TEST_SERVES";
const ASK: &str = "LAB_TEST_ASKS";

/// A lab's file and manifests; dropping it removes what a failed test leaves of the lab.
struct Written {
    folder: TempDir,
    name: LabName,
}

impl Written {
    /// `None`: no lab is possible here, which is reported.
    fn new(letter: char, more: &str, manifests: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skipped("a lab needs root (run the tests with sudo)");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let name = format!("t{letter}{}", std::process::id());
        fs::create_dir(folder.path().join("mesh")).expect("a folder");
        fs::write(folder.path().join("mesh/all.yaml"), manifests).expect("manifests");
        let head = format!("name: {name}\nnodes: [one, two]\nmanifests: mesh\n");
        fs::write(folder.path().join("lab.yaml"), head + more).expect("a file");
        let name = LabName::parse(&name).expect("a name");
        Some(Self { folder, name })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("lab.yaml")
    }

    fn up(&self) -> Lab {
        let plan = Plan::read(&self.file()).expect("a plan");
        Lab::up_with(&plan, &programs(), &mut |what| eprintln!("  {what}")).expect("up")
    }

    /// Everything on this machine that is named after the lab.
    fn traces(&self) -> Vec<String> {
        let name = self.name.as_str();
        let mut traces = Vec::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let mounts: Vec<&str> = mounts.lines().collect();
        traces.extend(
            mounts
                .iter()
                .filter(|line| line.contains(name))
                .map(|line| (*line).to_owned()),
        );
        let roots = mounts.iter().filter(|line| line.contains(" - cgroup"));
        let roots = roots.filter_map(|line| line.split(' ').nth(4));
        for folder in roots.chain(["/run/netns", "/run/heddle/lab"]) {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path().display().to_string());
            traces.extend(paths.filter(|path| path.contains(name)));
        }
        traces
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if lab::labs().contains(&self.name) {
            let _left = lab::down(&self.name);
        }
    }
}

fn programs() -> Programs {
    Programs {
        lab: PROGRAM.into(),
        heddle: Programs::find().ok().and_then(|programs| programs.heddle),
        envoy: None,
        keep: false,
    }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("runs")
}

fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr];
    texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// A pod that answers with its name on port 80 of both families.
fn pod(name: &str, node: &str) -> String {
    let program = std::env::current_exe().expect("this program");
    format!(
        "---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  ports: [{{port: 80}}]
  command: [{}, --ignored, --exact, --nocapture, serves]
  env: [{{name: {SERVE}, value: {name}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, appProtocol: http}}]}}
",
        program.display()
    )
}

/// A pod without a program.
fn idle(name: &str, node: &str) -> String {
    let text = pod(name, node);
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("  command") && !line.starts_with("  env"));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The response that `from` gets from `to`, a host and port, at the addresses of `family`; retried until it answers.
fn ask(lab: &Lab, from: &str, to: &str, family: Family) -> String {
    let program = std::env::current_exe().expect("this program");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut command = lab
            .pod(from)
            .expect("a pod")
            .command(&program)
            .expect("a command");
        command.args(["--ignored", "--exact", "--nocapture", "asks"]);
        let output = run(command.env(ASK, format!("{to} {}", family == Family::V4)));
        let text = said(&output);
        if let Some((_, answer)) = text.split_once("ANSWER ") {
            return answer.lines().next().unwrap_or_default().to_owned();
        }
        assert!(Instant::now() < deadline, "{from} to {to}: {text}");
        thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn pods_of_two_nodes_find_each_other_by_name_and_nothing_is_left_of_them() {
    let manifests = pod("near", "one") + &pod("far", "two") + &idle("caller", "one");
    let more = "carried: nothing\npods: {shop/far: {cpus: 0.5}}\n";
    let Some(written) = Written::new('a', more, &manifests) else {
        return;
    };
    // Given pods on two nodes without a mesh …
    let lab = written.up();
    assert!(lab.is_ready());
    assert!(!written.traces().is_empty());
    // … then each is found by its name, in both families and on either node, and sees the caller's own address.
    for to in ["near", "far"] {
        for family in [Family::V4, Family::V6] {
            for name in [to.to_owned(), format!("{to}.shop.svc.cluster.local")] {
                let own = lab
                    .pod("shop/caller")
                    .expect("caller")
                    .plan()
                    .address(family);
                let expected = format!("{to} {}", own.expect("an address"));
                assert_eq!(
                    ask(&lab, "shop/caller", &format!("{name}:80"), family),
                    expected
                );
            }
        }
    }
    // An unknown name fails at once.
    let mut getent = lab
        .pod("shop/caller")
        .expect("caller")
        .command("getent")
        .expect("getent");
    let since = Instant::now();
    assert!(!run(getent.args(["hosts", "nowhere"])).status.success());
    assert!(since.elapsed() < Duration::from_secs(3));
    // A pod has its own host name, one interface besides lo, and its CPU limit.
    let mut command = lab.pod("shop/far").expect("far").command("sh").expect("sh");
    let text = said(&run(command.args([
        "-c",
        "hostname; ls /proc/sys/net/ipv4/conf; cat /proc/self/cgroup",
    ])));
    assert!(text.starts_with("far\n"), "{text}");
    assert!(text.contains("\neth0\n"), "{text}");
    let group = format!("/heddle-lab-{}/node-two/pods/shop.far\n", written.name);
    assert!(text.contains(&group), "{text}");
    let held = fs::read_to_string(quota(&text, &group)).expect("a quota");
    assert!(held.starts_with("50000"), "{held}");
    // The host's network has none of the lab's links.
    for link in ["pods", "br0", "to1", "p1"] {
        assert!(!Path::new("/sys/class/net").join(link).exists(), "{link}");
    }

    lab.down().expect("down");
    assert_eq!(written.traces(), Vec::<String>::new());
}

#[test]
fn a_name_with_many_addresses_is_answered_whole() {
    let pods = 60;
    let group = |text: String| text.replace("labels: {", "labels: {group: all, ");
    let pods_of_it = (0..pods).map(|pod| group(idle(&format!("p{pod}"), "one")));
    let manifests: String = pods_of_it.collect();
    let service = "---
apiVersion: v1
kind: Service
metadata: {name: all, namespace: shop}
spec: {clusterIP: None, selector: {group: all}, ports: [{port: 80}]}
";
    let manifests = manifests + service;
    let Some(written) = Written::new('h', "carried: nothing\n", &manifests) else {
        return;
    };
    // Given a name with too many addresses for a datagram, then the client repeats the query over TCP.
    let lab = written.up();
    let caller = lab.pod("shop/p0").expect("a pod");
    let mut getent = caller.command("getent").expect("getent");
    let text = said(&run(getent.args(["ahostsv4", "all"])));
    let streams = text.lines().filter(|line| line.contains("STREAM"));
    assert_eq!(streams.count(), pods, "{text}");
}

#[test]
fn programs_that_know_nothing_of_the_mesh_are_carried_by_it() {
    let manifests = pod("near", "one") + &pod("far", "two") + &idle("caller", "one");
    for (letter, carried, hooks) in [
        ('m', "node", "auto"),
        ('n', "pod", "auto"),
        ('o', "node", "nft"),
    ] {
        let more = format!("carried: {carried}\nhooks: {hooks}\n");
        let Some(written) = Written::new(letter, &more, &manifests) else {
            return;
        };
        if !intercepts() {
            return;
        }
        // Given pods that call each other at cluster addresses, which only a mesh serves …
        let lab = written.up();
        // … then the calls succeed, in both families, on the same node and between nodes.
        for to in ["near", "far"] {
            for family in [Family::V4, Family::V6] {
                let answer = ask(&lab, "shop/caller", &format!("{to}:80"), family);
                let expected = format!("{to} ");
                assert!(
                    answer.starts_with(&expected),
                    "{carried}, {hooks}: {answer}"
                );
            }
        }
        if carried == "node" {
            // A released pod is outside the mesh, and inside again after it is enrolled again.
            let caller = lab.pod("shop/caller").expect("caller");
            caller.release().expect("released");
            let program = std::env::current_exe().expect("this program");
            let mut command = caller.command(program).expect("a command");
            command
                .args(["--ignored", "--exact", "--nocapture", "asks"])
                .env(ASK, "far:80 true");
            let output = run(&mut command);
            assert!(!said(&output).contains("ANSWER"), "{}", said(&output));
            caller.enroll().expect("enrolled");
            assert!(ask(&lab, "shop/caller", "far:80", Family::V4).starts_with("far "));
        }
        lab.down().expect("down");
        assert_eq!(written.traces(), Vec::<String>::new());
    }
}

/// Whether a heddle is found that can intercept; if not, that is reported.
fn intercepts() -> bool {
    let Some(heddle) = programs().heddle else {
        skipped("there is no heddle beside heddle-lab (cargo build -p heddle)");
        return false;
    };
    let help = run(Command::new(&heddle).args(["node", "--help"]));
    let knows = said(&help).contains("--intercept");
    if !knows {
        skipped(&format!("{} has no --intercept", heddle.display()));
    }
    knows
}

/// The file with the CPU quota of a group, in version 1 or 2.
fn quota(groups: &str, group: &str) -> PathBuf {
    let v1 = groups.lines().any(|line| {
        line.split(':')
            .nth(1)
            .is_some_and(|names| names.split(',').any(|name| name == "cpu"))
    });
    let group = group.trim().trim_start_matches('/');
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let root = mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let is_it = match v1 {
            true => {
                back.starts_with("cgroup ")
                    && back
                        .rsplit(' ')
                        .next()?
                        .split(',')
                        .any(|name| name == "cpu")
            }
            false => back.starts_with("cgroup2 "),
        };
        is_it.then(|| front.split(' ').nth(4))?
    });
    let file = if v1 { "cpu.cfs_quota_us" } else { "cpu.max" };
    Path::new(root.expect("a hierarchy")).join(group).join(file)
}

#[test]
fn a_lab_whose_processes_were_all_killed_goes_without_a_trace() {
    let manifests = pod("web", "one") + &idle("caller", "two");
    let Some(written) = Written::new('b', "carried: nothing\n", &manifests) else {
        return;
    };
    // Given a lab whose `heddle-lab up` has ended …
    let up = run(Command::new(PROGRAM).arg("up").arg(written.file()));
    assert!(up.status.success(), "{}", said(&up));
    let again = run(Command::new(PROGRAM).arg("up").arg(written.file()));
    assert!(!again.status.success());
    assert!(
        said(&again).contains("is there already"),
        "{}",
        said(&again)
    );
    let lab = Lab::open(&written.name).expect("it is there");
    // … with a process that has no note and a session of its own …
    let mut stray = lab
        .pod("shop/caller")
        .expect("caller")
        .command("setsid")
        .expect("setsid");
    let mut stray = stray
        .args(["--fork", "sleep", "1000"])
        .spawn()
        .expect("stray");
    stray.wait().expect("setsid ends");
    // … when every process with a note is killed …
    for process in lab.processes() {
        assert!(process.runs(), "{}", process.what);
        let pid = rustix::process::Pid::from_raw(process.pid).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    }
    // … then `down` removes everything, and a second `down` finds nothing.
    let down = || run(Command::new(PROGRAM).args(["down", written.name.as_str()]));
    let first = down();
    assert!(first.status.success(), "{}", said(&first));
    assert_eq!(written.traces(), Vec::<String>::new());
    assert!(said(&down()).contains("there is no lab"));
}

#[test]
fn a_lab_that_was_interrupted_while_it_was_made_goes_without_a_trace() {
    let manifests: String = (0..60).map(|pod| idle(&format!("p{pod}"), "one")).collect();
    let Some(written) = Written::new('c', "carried: nothing\n", &manifests) else {
        return;
    };
    for after_ms in [30, 80, 160] {
        let mut up = Command::new(PROGRAM)
            .arg("up")
            .arg(written.file())
            .spawn()
            .expect("up");
        thread::park_timeout(Duration::from_millis(after_ms));
        up.kill().expect("killed");
        up.wait().expect("ends");
        if !written.traces().is_empty() {
            lab::down(&written.name).expect("down");
        }
        assert_eq!(
            written.traces(),
            Vec::<String>::new(),
            "after {after_ms} ms"
        );
    }
}

#[test]
fn a_lab_is_taken_down_by_the_command_that_was_told_to_stop_making_it() {
    let manifests: String = (0..200)
        .map(|pod| idle(&format!("p{pod}"), "one"))
        .collect();
    let Some(written) = Written::new('i', "carried: nothing\n", &manifests) else {
        return;
    };
    let up = Command::new(PROGRAM)
        .arg("up")
        .arg(written.file())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("up");
    // Given a lab that is being made …
    let deadline = Instant::now() + Duration::from_secs(20);
    while written.traces().is_empty() {
        assert!(Instant::now() < deadline, "nothing is made");
        thread::park_timeout(Duration::from_millis(5));
    }
    // … when `heddle-lab up` gets a signal, then the lab is removed, and the exit code is not 0.
    let pid = i32::try_from(up.id()).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("told");
    let output = up.wait_with_output().expect("ends");
    assert!(!output.status.success());
    assert!(said(&output).contains("interrupted"), "{}", said(&output));
    assert_eq!(written.traces(), Vec::<String>::new());
}

#[test]
fn a_lab_that_cannot_be_made_whole_is_removed() {
    let broken = pod("web", "one").replace("  command: [", "  command: [/no/such/program, ");
    let Some(written) = Written::new('d', "carried: nothing\n", &broken) else {
        return;
    };
    let up = run(Command::new(PROGRAM).arg("up").arg(written.file()));
    assert!(!up.status.success());
    let text = said(&up);
    assert!(
        text.contains("cannot start the program of pod shop/web: /no/such/program"),
        "{text}"
    );
    assert_eq!(written.traces(), Vec::<String>::new());
}

#[test]
fn without_root_a_lab_is_refused_with_the_reason() {
    let Some(written) = Written::new('e', "carried: nothing\n", &idle("web", "one")) else {
        return;
    };
    let public = fs::Permissions::from_mode(0o755);
    fs::set_permissions(written.folder.path(), public).expect("permissions");
    let copy = written.folder.path().join("heddle-lab");
    // Copied by another process: if this one opened the file for writing, a child forked by another test could hold
    // the descriptor for a moment, and the kernel would refuse to run the file (ETXTBSY).
    let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status();
    assert!(
        copied.expect("cp").success(),
        "a copy that any user may run"
    );
    let output = Command::new(&copy)
        .arg("up")
        .arg(written.file())
        .uid(65534)
        .gid(65534)
        .output();
    let text = match output {
        Ok(output) => said(&output),
        Err(error) => {
            let shown = copy.display();
            skipped(&format!("the user nobody cannot run {shown}: {error}"));
            return;
        }
    };
    assert!(
        text.contains("a lab needs root: this process lacks CAP_SYS_ADMIN"),
        "{text}"
    );
    assert_eq!(written.traces(), Vec::<String>::new());
}

/// Not a test: the program of a pod. Sends every client its name and the client's address.
#[test]
#[ignore = "a program of a pod"]
fn serves() {
    let Ok(name) = std::env::var(SERVE) else {
        return;
    };
    let listener = TcpListener::bind("[::]:80").expect("port 80");
    for stream in listener.incoming().flatten() {
        let name = name.clone();
        thread::spawn(move || answer(stream, &name));
    }
}

fn answer(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    let from = match stream.peer_addr()?.ip() {
        IpAddr::V6(address) => address.to_canonical(),
        address => address,
    };
    let mut request = [0; 4096];
    let _some = stream.read(&mut request)?;
    let body = format!("{name} {from}\n");
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    stream.shutdown(Shutdown::Write)
}

/// Not a test: connects to the given address, and prints the response.
#[test]
#[ignore = "a program of a pod"]
fn asks() {
    let Ok(text) = std::env::var(ASK) else {
        return;
    };
    let (to, is_v4) = text.split_once(' ').expect("host, port and family");
    let wanted = is_v4 == "true";
    let addresses = to.to_socket_addrs().expect("a name that is known");
    let mut addresses = addresses.filter(|address| address.is_ipv4() == wanted);
    let address = addresses.next().expect("an address of the family");
    let mut stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a time limit");
    let host = to.rsplit_once(':').map_or(to, |(host, _)| host);
    write!(
        stream,
        "GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
    println!("ANSWER {body}");
}

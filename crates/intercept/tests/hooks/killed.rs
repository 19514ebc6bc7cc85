//! Holders that are killed again and again while a program keeps connecting.

use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heddle_intercept::channel::{pair, receive, send};
use heddle_intercept::hooks::{self, Hooks, Kind, Options, Range};
use heddle_intercept::{Exclude, Fate, PodId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::agent::wait;
use crate::capture::Capture;
use crate::datagrams::{Talk, node_addresses, settle};
use crate::stage::{Pod, Stage, on_stage};

/// Environment variable that makes a process of this test program a holder.
const HOLDS: &str = "HEDDLE_TEST_HOLDS";

/// The task of a holder process. The pod's listeners come with the message.
#[derive(Serialize, Deserialize)]
struct Task {
    pods_cgroup: PathBuf,
    own_cgroup: PathBuf,
    bpffs: PathBuf,
    range: String,
    netns: PathBuf,
    addresses: Vec<std::net::IpAddr>,
}

struct Holder {
    process: Child,
    /// The process ends when this is closed.
    _channel: OwnedFd,
}

impl Holder {
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Starts a holder, and waits until it has enrolled the pod.
fn start(stage: &Stage, pod: &Pod) -> Holder {
    let (channel, theirs) = pair().unwrap();
    let process = Command::new("/proc/self/exe")
        .args([
            "--exact",
            "killed::holds",
            "--ignored",
            "--nocapture",
            "--quiet",
        ])
        .env(HOLDS, "1")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let options = stage.options(Kind::Bpf);
    let task = Task {
        pods_cgroup: options.pods_cgroup,
        own_cgroup: options.own_cgroup,
        bpffs: stage.bpffs(),
        range: "10.96.0.0/12".to_owned(),
        netns: format!("/proc/{}/fd/{}", std::process::id(), pod.netns.as_raw_fd()).into(),
        addresses: pod.addresses.clone(),
    };
    send(
        &channel,
        &task,
        &[pod.outbound.as_fd(), pod.inbound.as_fd()],
    )
    .unwrap();
    wait(channel.as_fd());
    assert!(
        receive::<String>(&channel).unwrap().is_some(),
        "the pod was enrolled"
    );
    Holder {
        process,
        _channel: channel,
    }
}

/// Not a test: the main function of the holder process.
#[test]
#[ignore = "the other side of tests that start it themselves"]
fn holds() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let channel = std::io::stdin();
    wait(channel.as_fd());
    let (task, listeners) = receive::<Task>(channel.as_fd()).unwrap().unwrap();
    let [outbound, inbound] = <[OwnedFd; 2]>::try_from(listeners)
        .unwrap()
        .map(TcpListener::from);
    let range = Range {
        network: task.range.parse().unwrap(),
        inside: true,
    };
    let options = Options {
        pods_cgroup: task.pods_cgroup,
        own_cgroup: task.own_cgroup,
        bpffs: Some(task.bpffs),
        ranges: vec![range],
        kind: Kind::Bpf,
    };
    let mut hooks = Hooks::open(&options).unwrap();
    let netns = std::fs::File::open(task.netns).unwrap();
    let pod = hooks::Pod {
        id: PodId(0),
        netns: netns.as_fd(),
        addresses: &task.addresses,
        outbound: &outbound,
        inbound: &inbound,
        exclude: &Exclude::default(),
        fate: Fate::Refuse,
    };
    hooks.enroll(&pod).unwrap();
    send(channel.as_fd(), &"held", &[]).unwrap();
    // Wait until this process is killed.
    wait(channel.as_fd());
}

/// Stops the connecting thread when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn not_a_packet_escapes_while_holders_come_and_go() {
    on_stage(|stage| {
        let pod = stage.pod(1);
        let mut holder = start(stage, &pod);
        let capture = Capture::start();
        let (steered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    match stage.connect(&pod, "10.96.0.1:80") {
                        Ok(_) => steered.fetch_add(1, Ordering::Relaxed),
                        Err(Errno::CONNREFUSED) => refused.fetch_add(1, Ordering::Relaxed),
                        // No other error may occur, not even while one holder's hooks replace another's.
                        Err(error) => panic!("{error}"),
                    };
                    while pod.outbound.accept().is_ok() {}
                }
            });
            // Stops the thread also when an assertion here fails.
            let _over = Over(&is_over);
            let more = |count: &AtomicUsize| {
                let before = count.load(Ordering::Relaxed);
                let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
                while count.load(Ordering::Relaxed) < before + 20 {
                    assert!(
                        std::time::Instant::now() < deadline,
                        "nothing happens any more: {steered:?} {refused:?}"
                    );
                    std::thread::yield_now();
                }
            };
            for _ in 0..5 {
                more(&steered);
                holder.kill();
                more(&refused);
                holder = start(stage, &pod);
            }
            more(&steered);
        });
        assert_eq!(capture.heard(), 0, "not a packet left the pod");
        holder.kill();
    });
}

#[test]
fn a_socket_that_was_connected_before_its_holder_was_killed_is_silent() {
    on_stage(|stage| {
        node_addresses();
        let pod = stage.pod(1);
        let mut holder = start(stage, &pod);
        let talk = Talk::new(stage, &pod, "10.96.0.1:9");
        for _ in 0..3 {
            talk.goes_on();
            holder.kill();
            settle(&talk);
            let capture = Capture::start();
            for _ in 0..20 {
                talk.say();
            }
            assert_eq!(capture.heard(), 0, "not a packet left the pod");
            holder = start(stage, &pod);
        }
        talk.goes_on();
        holder.kill();
    });
}

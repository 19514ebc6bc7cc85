//! The table of connections in their handshake.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use heddle_intercept::hooks::{FullTables, Hooks};
use heddle_intercept::{Family, original_destination};
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::stage::{Pod, Stage, accept, on_stage, run, within_pod};

/// Limit of handshakes of one pod.
const MOST: usize = 1024;
/// Limit of handshakes of all pods, and the number that every pod can always have.
const MOST_OF_ALL: usize = 32 * 1024;
const KEPT: usize = 4;

pub(crate) fn count(hooks: &Hooks) -> usize {
    match hooks {
        Hooks::Bpf(bpf) => bpf.handshakes(),
        Hooks::Nft(..) => panic!("hooks of another kind"),
    }
}

#[test]
fn nothing_is_left_of_ten_thousand_connections() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        for number in 0..10_000_u32 {
            let to = format!("10.96.{}.{}:80", number / 250, number % 250);
            let client = stage.connect(&pod, &to).unwrap();
            let (server, _) = accept(&pod.outbound);
            assert_eq!(original_destination(&server).unwrap(), to.parse().unwrap());
            // Close with a reset, so that ten thousand ports do not stay in TIME-WAIT.
            sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        }
        assert_eq!(count(&hooks), 0);
    });
}

/// Drops the SYNs of the pod's connections, so that handshakes stay unfinished.
fn silence(pod: &Pod) {
    within_pod(pod, || {
        run("nft", "add table inet silence");
        run(
            "nft",
            "add chain inet silence in { type filter hook input priority 0; }",
        );
        run("nft", "add rule inet silence in tcp dport 15001 drop");
    });
}

/// Starts a connection, which stays in its handshake.
fn begin(stage: &Stage, pod: &Pod) -> Result<OwnedFd, Errno> {
    let to: SocketAddr = "10.96.0.1:80".parse().unwrap();
    let socket = stage
        .apps
        .socket(pod.netns.as_fd(), Family::V4, SocketType::STREAM, 0);
    let socket = socket.unwrap();
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    match rustix::net::connect(&socket, &to) {
        Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
        Ok(()) => panic!("the dial was answered"),
    }
}

#[test]
fn a_pod_that_opens_many_at_once_is_refused_and_no_other() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, other) = (stage.pod(1), stage.pod(2));
        silence(&pod);
        pod.enroll(&mut hooks);
        other.enroll(&mut hooks);
        let waiting: Vec<OwnedFd> = (0..MOST).map(|_| begin(stage, &pod).unwrap()).collect();
        assert_eq!(count(&hooks), MOST);
        assert_eq!(hooks.full(), FullTables::default());
        assert_eq!(begin(stage, &pod).unwrap_err(), Errno::CONNREFUSED);
        let refused = FullTables {
            handshakes: 1,
            visits: 0,
        };
        assert_eq!(hooks.full(), refused);
        stage.connect(&other, "10.96.0.1:80").unwrap();
        accept(&other.outbound);
        drop(waiting);
        assert_eq!(count(&hooks), 0, "who gives up is forgotten");
        begin(stage, &pod).unwrap();
        assert_eq!(hooks.full(), refused, "there is room again");
    });
}

/// Whether this process may open that many descriptors. If not, reports a skip.
pub(crate) fn may_have(descriptors: usize) -> bool {
    let limits = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(descriptors).unwrap();
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if limits.maximum.is_some_and(|most| most < wanted)
        || setrlimit(Resource::Nofile, raised).is_err()
    {
        heddle_skips::skipped(&format!("{wanted} descriptors are not to be had"));
        return false;
    }
    true
}

#[test]
fn pods_that_open_many_at_once_leave_room_for_others() {
    if !may_have(MOST_OF_ALL / 2 + 1_000) {
        return;
    }
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let hostile = MOST_OF_ALL / 2 / MOST;
        let pods = (1..=hostile + 2).map(|number| stage.pod(number.try_into().unwrap()));
        let pods: Vec<Pod> = pods.collect();
        for pod in &pods {
            silence(pod);
            pod.enroll(&mut hooks);
        }
        // Given several pods that have as many handshakes as one pod may have …
        let mut waiting = Vec::new();
        for pod in &pods[..hostile] {
            waiting.extend((0..MOST).map(|_| begin(stage, pod).unwrap()));
        }
        assert_eq!(count(&hooks), MOST_OF_ALL / 2);
        // … then they get no more, and every other pod gets its reserved share …
        assert_eq!(begin(stage, &pods[0]).unwrap_err(), Errno::CONNREFUSED);
        for pod in &pods[hostile..] {
            let some: Vec<OwnedFd> = (0..KEPT).map(|_| begin(stage, pod).unwrap()).collect();
            assert_eq!(begin(stage, pod).unwrap_err(), Errno::CONNREFUSED);
            waiting.extend(some);
        }
        // … and when those are over, it may have as many as any pod.
        drop(waiting);
        assert_eq!(count(&hooks), 0);
        let last = &pods[hostile];
        let more: Vec<OwnedFd> = (0..10 * KEPT)
            .map(|_| begin(stage, last).unwrap())
            .collect();
        assert_eq!(count(&hooks), more.len());
    });
}

//! What is remembered of connections until their listener has them.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use heddle_intercept::hooks::Hooks;
use heddle_intercept::{Family, original_destination};
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use crate::stage::{accept, on_stage};

/// As many as the programs remember of one pod.
const MOST: usize = 1024;

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
        pod.enrol(&mut hooks);
        for number in 0..10_000_u32 {
            let to = format!("10.96.{}.{}:80", number / 250, number % 250);
            let client = stage.connect(&pod, &to).unwrap();
            let (server, _) = accept(&pod.outbound);
            assert_eq!(original_destination(&server).unwrap(), to.parse().unwrap());
            // Reset, so that ten thousand ports do not wait for stray packets.
            sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        }
        assert_eq!(count(&hooks), 0);
    });
}

#[test]
fn a_pod_that_opens_many_at_once_is_refused_and_no_other() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, other) = (stage.pod(1), stage.pod(2));
        // Nobody answers the first packets, so that handshakes last.
        crate::stage::within_pod(&pod, || crate::stage::run("nft", "add table inet silence"));
        crate::stage::within_pod(&pod, || {
            crate::stage::run(
                "nft",
                "add chain inet silence in { type filter hook input priority 0; }",
            );
            crate::stage::run("nft", "add rule inet silence in tcp dport 15001 drop");
        });
        pod.enrol(&mut hooks);
        other.enrol(&mut hooks);
        let begin = |to: &str| {
            let to: SocketAddr = to.parse().unwrap();
            let socket = stage
                .apps
                .socket(pod.netns.as_fd(), Family::V4, SocketType::STREAM, 0);
            let socket = socket.unwrap();
            rustix::io::ioctl_fionbio(&socket, true).unwrap();
            rustix::net::connect(&socket, &to)
                .map(|()| unreachable!())
                .map_err(|error| (error, socket))
        };
        let mut waiting = Vec::new();
        for _ in 0..MOST {
            let (error, socket) = begin("10.96.0.1:80").unwrap_err();
            assert_eq!(error, Errno::INPROGRESS);
            waiting.push(socket);
        }
        assert_eq!(count(&hooks), MOST);
        assert_eq!(begin("10.96.0.1:80").unwrap_err().0, Errno::CONNREFUSED);
        stage.connect(&other, "10.96.0.1:80").unwrap();
        accept(&other.outbound);
        drop(waiting);
        assert_eq!(count(&hooks), 0, "who gives up is forgotten");
        assert_eq!(begin("10.96.0.1:80").unwrap_err().0, Errno::INPROGRESS);
    });
}

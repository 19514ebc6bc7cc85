//! Datagrams of sockets that were connected while a proxy served the pod, and datagrams that arrive.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use heddle_intercept::hooks::{Hooks, Kind, Options, uninstall};
use heddle_intercept::{Exclude, Family, Fate};
use rustix::net::SocketType;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::capture::Capture;
use crate::stage::{Pod, Stage, ip, on_stage};

/// Addresses of the node, inside and outside the mesh.
const MESH: [&str; 2] = ["10.96.0.1", "fd96::1"];
const ELSEWHERE: &str = "10.111.0.1";

/// A socket on the node, and one in a pod that is connected to it.
#[derive(Debug)]
pub(crate) struct Talk {
    node: UdpSocket,
    app: UdpSocket,
}

impl Talk {
    pub(crate) fn new(stage: &Stage, pod: &Pod, at: &str) -> Talk {
        let at: SocketAddr = at.parse().unwrap();
        let talk = Talk {
            node: bound(UdpSocket::bind(at)),
            app: socket(stage, pod, Family::of(at)),
        };
        talk.app.connect(at).unwrap();
        talk
    }

    /// Sends a datagram to the node. Whether the sender gets an error when it is dropped depends on the kernel.
    pub(crate) fn say(&self) {
        let _ = self.app.send(b"question");
    }

    /// Checks that datagrams pass in both directions.
    pub(crate) fn goes_on(&self) {
        // Clear pending errors of datagrams that were refused before.
        let _ = (self.node.take_error(), self.app.take_error());
        self.app.send(b"question").unwrap();
        hear(&self.node, b"question");
        self.answer(b"answer");
        hear(&self.app, b"answer");
    }

    fn answer(&self, text: &[u8]) {
        self.node
            .send_to(text, self.app.local_addr().unwrap())
            .unwrap();
    }
}

fn bound(socket: std::io::Result<UdpSocket>) -> UdpSocket {
    let socket = socket.unwrap();
    let patience = Some(Duration::from_secs(5));
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// Makes a UDP socket of a program in the pod.
fn socket(stage: &Stage, pod: &Pod, family: Family) -> UdpSocket {
    let netns = pod.netns.as_fd();
    let made = stage.apps.socket(netns, family, SocketType::DGRAM, 0);
    bound(made.map(UdpSocket::from))
}

fn hear(socket: &UdpSocket, text: &[u8]) {
    let mut heard = [0; 64];
    let length = socket.recv(&mut heard).expect("a datagram");
    assert_eq!(heard[..length], *text);
}

/// Two talks with mesh addresses of the node.
fn talks(stage: &Stage, pod: &Pod) -> [Talk; 2] {
    ["10.96.0.1:9", "[fd96::1]:9"].map(|at| Talk::new(stage, pod, at))
}

/// Adds these addresses to the node, and pins the thread to one processor. So its packets stay in one queue and in
/// order: a test that has received the last one knows that missing earlier ones were dropped.
pub(crate) fn node_addresses() {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).unwrap();
    for address in MESH {
        let bits = if address.contains(':') { 128 } else { 32 };
        ip(&format!("address add {address}/{bits} dev lo"));
    }
    ip(&format!("address add {ELSEWHERE}/32 dev lo"));
}

/// Waits until datagrams are refused: the kernel takes some time to notice that the holder has ended.
pub(crate) fn settle(talk: &Talk) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let moment = Some(Duration::from_millis(50));
    let patience = talk.node.read_timeout().unwrap();
    talk.node.set_read_timeout(moment).unwrap();
    talk.say();
    while talk.node.recv(&mut [0; 64]).is_ok() {
        assert!(Instant::now() < deadline, "datagrams are not refused");
        talk.say();
    }
    talk.node.set_read_timeout(patience).unwrap();
}

/// Checks that no datagrams pass in either direction, except DNS.
pub(crate) fn assert_silent(stage: &Stage, pod: &Pod, talks: &[Talk]) {
    let server = socket(stage, pod, Family::V4);
    let at: SocketAddr = "10.90.1.2:9000".parse().unwrap();
    rustix::net::bind(&server, &at).unwrap();
    let capture = Capture::start();
    for talk in talks {
        talk.say();
    }
    assert_eq!(capture.heard(), 0, "not a packet left the pod");
    // Datagrams to the pod are dropped, unless they come from outside the mesh.
    for talk in talks {
        talk.answer(b"not heard");
    }
    for from in ["10.96.0.1:9001", "10.96.0.1:53", "10.111.0.1:9001"] {
        let node = UdpSocket::bind(from).unwrap();
        node.send_to(from.as_bytes(), "10.90.1.2:9000").unwrap();
    }
    hear(&server, b"10.111.0.1:9001");
    Talk::new(stage, pod, "10.96.0.1:53").goes_on();
}

/// The same for both kinds of hooks while the holder lives.
pub(crate) fn meet_their_fate(stage: &Stage, kind: Kind) {
    let mut hooks = Hooks::open(&stage.options(kind)).unwrap();
    node_addresses();
    let (pod, open) = (stage.pod(1), stage.pod(2));
    for (pod, fate) in [(&pod, Fate::Refuse), (&open, Fate::Pass)] {
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, fate).unwrap();
    }
    let (talks, open) = (talks(stage, &pod), open_talk(stage, &open));
    for _ in 0..2 {
        talks.iter().for_each(Talk::goes_on);
        open.goes_on();
        hooks.died().unwrap();
        assert_silent(stage, &pod, &talks);
        open.goes_on();
        hooks.serve(pod.id, Fate::Refuse).unwrap();
    }
    talks.iter().for_each(Talk::goes_on);
    hooks.died().unwrap();
    hooks.release(pod.id).unwrap();
    talks.iter().for_each(Talk::goes_on);
}

fn open_talk(stage: &Stage, pod: &Pod) -> Talk {
    Talk::new(stage, pod, "10.96.0.1:10")
}

#[test]
fn a_socket_that_was_connected_before_is_silent_without_a_proxy() {
    on_stage(|stage| meet_their_fate(stage, Kind::Bpf));
}

#[test]
fn it_is_silent_without_a_holder_until_the_next_one_or_the_guards_removal() {
    on_stage(|stage| {
        node_addresses();
        let (pod, open) = (stage.pod(1), stage.pod(2));
        let mut hooks = stage.hooks();
        for (pod, fate) in [(&pod, Fate::Refuse), (&open, Fate::Pass)] {
            pod.enroll(&mut hooks);
            hooks.serve(pod.id, fate).unwrap();
        }
        let (talks, open) = (talks(stage, &pod), open_talk(stage, &open));
        talks.iter().for_each(Talk::goes_on);
        drop(hooks);
        settle(&talks[0]);
        assert_silent(stage, &pod, &talks);
        open.goes_on();
        // The pod is not yet enrolled with the next holder.
        let mut hooks = stage.hooks();
        assert_silent(stage, &pod, &talks);
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        talks.iter().for_each(Talk::goes_on);
        drop(hooks);
        settle(&talks[0]);
        assert_silent(stage, &pod, &talks);
        uninstall(&stage.bpffs()).unwrap();
        talks.iter().for_each(Talk::goes_on);
    });
}

#[test]
fn it_is_silent_without_a_guard_while_there_is_a_holder() {
    on_stage(|stage| {
        node_addresses();
        let pod = stage.pod(1);
        let options = Options {
            bpffs: None,
            ..stage.options(Kind::Bpf)
        };
        let mut hooks = Hooks::open(&options).unwrap();
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        let talks = talks(stage, &pod);
        // This also completes neighbour discovery, so that later packets do not wait for it.
        talks.iter().for_each(Talk::goes_on);
        hooks.died().unwrap();
        assert_silent(stage, &pod, &talks);
        drop(hooks);
        talks.iter().for_each(Talk::goes_on);

        // The same when the guard is removed while the holder lives.
        let mut hooks = stage.hooks();
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        uninstall(&stage.bpffs()).unwrap();
        talks.iter().for_each(Talk::goes_on);
        hooks.died().unwrap();
        assert_silent(stage, &pod, &talks);
    });
}

/// Excluded traffic passes in both directions.
pub(crate) fn exceptions_go_on(stage: &Stage, kind: Kind) {
    node_addresses();
    ip("address add 10.97.0.1/32 dev lo");
    let pod = stage.pod(1);
    let exclude = Exclude {
        inbound_ports: vec!["161".parse().unwrap()],
        outbound_ports: vec!["7000-7010".parse().unwrap()],
        outbound_networks: vec!["10.97.0.0/16".parse().unwrap()],
    };
    let mut hooks = Hooks::open(&stage.options(kind)).unwrap();
    hooks.enroll(&pod.hooked(&exclude, Fate::Refuse)).unwrap();
    hooks.serve(pod.id, Fate::Refuse).unwrap();
    let talks =
        ["10.96.0.1:7005", "10.97.0.1:9", "10.111.0.1:9"].map(|at| Talk::new(stage, &pod, at));
    let mut talks = Vec::from(talks);
    let served = Talk {
        node: bound(UdpSocket::bind("10.96.0.1:9")),
        app: socket(stage, &pod, Family::V4),
    };
    let at: SocketAddr = "10.90.1.2:161".parse().unwrap();
    rustix::net::bind(&served.app, &at).unwrap();
    served.app.connect("10.96.0.1:9").unwrap();
    talks.push(served);
    hooks.died().unwrap();
    talks.iter().for_each(Talk::goes_on);
}

#[test]
fn what_is_excluded_goes_on() {
    on_stage(|stage| exceptions_go_on(stage, Kind::Bpf));
}

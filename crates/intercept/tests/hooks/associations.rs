//! SCTP, which the mesh does not carry: its packets pass while a proxy serves the pod, and are dropped while the pod
//! is refused.
//!
//! The kernel may lack SCTP, and the hooks see only packets. So the tests send and receive packets with raw sockets,
//! with the SCTP header (RFC 9260 section 3.1).

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use heddle_intercept::hooks::{Hooks, Kind, uninstall};
use heddle_intercept::{Exclude, Family, Fate};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, sendto};

use crate::datagrams::node_addresses;
use crate::stage::{Pod, Stage, ip, on_stage};

/// IP protocol number of SCTP.
const SCTP: u32 = 132;

/// Number of the next packet, which tells packets apart.
static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

/// A socket on the node and one in a pod.
struct Talk {
    node: OwnedFd,
    app: OwnedFd,
    /// The address of each, with the ports in the packets.
    at_node: SocketAddr,
    at_app: SocketAddr,
}

impl Talk {
    fn new(stage: &Stage, pod: &Pod, at_node: &str, at_app: &str) -> Talk {
        let (at_node, at_app): (SocketAddr, SocketAddr) =
            (at_node.parse().unwrap(), at_app.parse().unwrap());
        let family = Family::of(at_node);
        // Programs of the node are in no control group of the test.
        let node = crate::agent::raw(family, SCTP).unwrap();
        let app = stage
            .apps
            .socket(pod.netns.as_fd(), family, SocketType::RAW, SCTP)
            .unwrap();
        for (socket, at) in [(&node, at_node), (&app, at_app)] {
            rustix::net::bind(socket, &SocketAddr::new(at.ip(), 0)).unwrap();
            let patience = Some(Duration::from_secs(5));
            set_socket_timeout(socket, Timeout::Recv, patience).unwrap();
        }
        Talk {
            node,
            app,
            at_node,
            at_app,
        }
    }

    /// Checks that packets pass in both directions.
    fn goes_on(&self) {
        for (from, to) in [(&self.app, &self.node), (&self.node, &self.app)] {
            let sent = self.send(from).expect("sent");
            assert!(hears(to, &sent), "from {} to {}", self.at_app, self.at_node);
        }
    }

    /// Checks that no packet arrives in either direction.
    fn is_stopped(&self, control: &Talk) {
        for (from, to, further) in [
            (&self.app, &self.node, (&control.app, &control.node)),
            (&self.node, &self.app, (&control.node, &control.app)),
        ] {
            // The sender may get an error.
            let sent = self.send(from).unwrap_or_default();
            // If the first packet had passed, it would have arrived before this later one.
            let last = control.send(further.0).expect("sent");
            assert!(hears(further.1, &last), "what is left alone goes on");
            set_socket_timeout(to, Timeout::Recv, Some(Duration::from_millis(20))).unwrap();
            assert!(sent.is_empty() || !hears(to, &sent), "to {}", self.at_node);
            set_socket_timeout(to, Timeout::Recv, Some(Duration::from_secs(5))).unwrap();
        }
    }

    /// Sends a packet from one end to the other.
    fn send(&self, from: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let is_apps = std::ptr::eq(from, &raw const self.app);
        let (from_at, to_at) = match is_apps {
            true => (self.at_app, self.at_node),
            false => (self.at_node, self.at_app),
        };
        let tag = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let packet = [
            &from_at.port().to_be_bytes()[..],
            &to_at.port().to_be_bytes(),
            &tag.to_be_bytes(),
            b"\0\0\0\0",
            // In place of an SCTP chunk.
            b"a chunk.",
        ]
        .concat();
        let to = SocketAddr::new(to_at.ip(), 0);
        sendto(from, &packet, SendFlags::empty(), &to)?;
        Ok(packet)
    }
}

/// Whether this packet arrives, whatever other packets arrive before it.
fn hears(socket: &OwnedFd, packet: &[u8]) -> bool {
    let mut heard = [0; 256];
    let patience = Instant::now() + Duration::from_secs(5);
    while Instant::now() < patience {
        // With IPv4, a raw socket receives the IP header, too.
        match recv(socket, &mut heard, RecvFlags::empty()) {
            Ok((length, _)) if heard[..length].ends_with(packet) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            // An ICMP error for an earlier packet.
            Err(_) => {}
        }
    }
    false
}

/// Talks with mesh addresses of both families, and with one outside the mesh.
fn talks(stage: &Stage, pod: &Pod) -> ([Talk; 2], Talk) {
    let inside = [
        ("10.96.0.1:9", "10.90.1.2:3868"),
        ("[fd96::1]:9", "[fd90:1::2]:3868"),
    ];
    let outside = Talk::new(stage, pod, "10.111.0.1:9", "10.90.1.2:3868");
    (
        inside.map(|(node, app)| Talk::new(stage, pod, node, app)),
        outside,
    )
}

fn meets_its_fate(stage: &Stage, kind: Kind) {
    node_addresses();
    let (pod, open) = (stage.pod(1), stage.pod(2));
    let mut hooks = Hooks::open(&stage.options(kind)).unwrap();
    for (pod, fate) in [(&pod, Fate::Refuse), (&open, Fate::Pass)] {
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, fate).unwrap();
    }
    let (inside, outside) = talks(stage, &pod);
    let open = Talk::new(stage, &open, "10.96.0.1:10", "10.90.2.2:3868");
    for _ in 0..2 {
        // While a proxy serves, packets pass without being carried by the mesh …
        for talk in inside.iter().chain([&outside, &open]) {
            talk.goes_on();
        }
        // … and without one they are dropped, except to addresses outside the mesh and for pods with the fate to
        // pass.
        hooks.died().unwrap();
        for talk in &inside {
            talk.is_stopped(&outside);
        }
        outside.goes_on();
        open.goes_on();
        hooks.serve(pod.id, Fate::Refuse).unwrap();
    }
    hooks.died().unwrap();
    hooks.release(pod.id).unwrap();
    inside.iter().for_each(Talk::goes_on);
}

#[test]
fn sctp_passes_while_a_proxy_serves_and_is_stopped_where_the_pod_is_refused() {
    on_stage(|stage| meets_its_fate(stage, Kind::Bpf));
}

#[test]
fn packet_filters_do_the_same_with_sctp() {
    on_stage(|stage| meets_its_fate(stage, Kind::Nft));
}

#[test]
fn sctp_is_stopped_by_the_guard_when_there_is_no_holder() {
    on_stage(|stage| {
        node_addresses();
        let pod = stage.pod(1);
        let mut hooks = stage.hooks();
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        let (inside, outside) = talks(stage, &pod);
        inside.iter().for_each(Talk::goes_on);
        let told = crate::datagrams::Talk::new(stage, &pod, "10.96.0.1:9");
        told.goes_on();
        drop(hooks);
        crate::datagrams::settle(&told);
        for talk in &inside {
            talk.is_stopped(&outside);
        }
        uninstall(&stage.bpffs()).unwrap();
        inside.iter().for_each(Talk::goes_on);
    });
}

/// SCTP has its ports at the same offset as UDP, so excluded ports pass.
///
/// Packet filter rules recognise replies from an excluded outbound port by connection tracking, and these packets
/// form no association. So with nft only exclusions that need no connection tracking are tested.
fn exceptions_go_on(stage: &Stage, kind: Kind) {
    node_addresses();
    ip("address add 10.97.0.1/32 dev lo");
    let pod = stage.pod(1);
    let exclude = Exclude {
        inbound_ports: vec!["3868".parse().unwrap()],
        outbound_ports: vec!["7000-7010".parse().unwrap()],
        outbound_networks: vec!["10.97.0.0/16".parse().unwrap()],
    };
    let mut hooks = Hooks::open(&stage.options(kind)).unwrap();
    hooks.enroll(&pod.hooked(&exclude, Fate::Refuse)).unwrap();
    hooks.serve(pod.id, Fate::Refuse).unwrap();
    let talk = |node, app| Talk::new(stage, &pod, node, app);
    let mut excluded = vec![
        talk("10.97.0.1:9", "10.90.1.2:40000"),
        talk("10.96.0.1:9", "10.90.1.2:3868"),
    ];
    if kind == Kind::Bpf {
        excluded.push(talk("10.96.0.1:7005", "10.90.1.2:40000"));
    }
    let other = talk("10.96.0.1:9", "10.90.1.2:40000");
    hooks.died().unwrap();
    excluded.iter().for_each(Talk::goes_on);
    let outside = talk("10.111.0.1:9", "10.90.1.2:40000");
    other.is_stopped(&outside);
}

#[test]
fn sctp_that_is_excluded_goes_on() {
    on_stage(|stage| exceptions_go_on(stage, Kind::Bpf));
}

#[test]
fn sctp_that_is_excluded_goes_on_with_packet_filters() {
    on_stage(|stage| exceptions_go_on(stage, Kind::Nft));
}

//! Against the kernel, in network namespaces of their own.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use heddle_model::PacketMark;

use super::TrafficControl;
use crate::cgroup;
use crate::network::kernel::{Filter, Hook, Kernel, Limited, OFFLINE, ROOT};
use crate::network::links;
use crate::network::testing::{in_namespace, run};

fn system() -> TrafficControl {
    let mounts = cgroup::Mounts::find().expect("control groups");
    TrafficControl::open(cgroup::System::new(mounts)).expect("opened")
}

const PAIR: [&str; 3] = [
    "ip link add name a type veth peer name b",
    "ip link set dev a up",
    "ip link set dev b up",
];

#[test]
fn a_root_has_two_classes_and_goes_away_as_it_came() {
    in_namespace(&PAIR, || {
        let mut kernel = system();
        let a = kernel.link("a").expect("there").index;
        let before = kernel.qdisc(a, Hook::Root).expect("read").expect("one");
        assert_eq!((before.kind.as_str(), before.handle), ("noqueue", 0));

        let limited = Limited::Marked(PacketMark::OFFLINE);
        kernel.add_root(a, limited, false).expect("added");
        kernel.fill_root(a, limited, 1_000_000).expect("filled");
        let root = kernel.qdisc(a, Hook::Root).expect("read").expect("one");
        assert_eq!((root.kind.as_str(), root.handle), ("htb", ROOT));
        let classes = run("tc class show dev a");
        assert!(
            classes.contains("4ed1:2 root prio 1 rate 8Mbit ceil 8Mbit"),
            "{classes}"
        );
        assert!(
            classes.contains("4ed1:1 root prio 0 rate 8796Gbit"),
            "{classes}"
        );
        kernel.set_rate(a, 10_000_000_000).expect("changed");
        let classes = run("tc class show dev a");
        assert!(
            classes.contains("4ed1:2 root prio 1 rate 80Gbit ceil 80Gbit"),
            "{classes}"
        );
        assert_eq!(kernel.class_bytes(a).expect("read").offline, 0);

        kernel.delete_root(a).expect("deleted");
        assert_eq!(kernel.qdisc(a, Hook::Root).expect("read"), Some(before));
        let gone = kernel.set_rate(a, 1_000).expect_err("gone");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound, "{gone}");
        assert!(kernel.class_bytes(a).is_err());
    });
}

#[test]
fn a_root_of_another_program_is_replaced_and_put_back_only_when_asked() {
    in_namespace(&PAIR, || {
        let mut kernel = system();
        let a = kernel.link("a").expect("there").index;
        run("tc qdisc add dev a root handle 9: pfifo limit 77");
        let before = kernel.qdisc(a, Hook::Root).expect("read").expect("one");
        let limited = Limited::All;
        let refused = kernel.add_root(a, limited, false).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{refused}");
        let refused = kernel.delete_root(a).expect_err("not ours");
        assert_ne!(refused.kind(), io::ErrorKind::NotFound, "{refused}");

        kernel.add_root(a, limited, true).expect("replaced");
        kernel.fill_root(a, limited, 5_000).expect("filled");
        let shown = run("tc qdisc show dev a");
        assert!(
            shown.contains("htb 4ed1: root") && shown.contains("default 0x2"),
            "{shown}"
        );
        kernel.put_back_root(a, &before).expect("put back");
        assert_eq!(kernel.qdisc(a, Hook::Root).expect("read"), Some(before));
        assert!(run("tc qdisc show dev a").contains("limit 77p"));
    });
}

#[test]
fn several_queues_come_back() {
    in_namespace(
        &[
            "ip link add name a numtxqueues 2 numrxqueues 2 type veth peer name b numtxqueues 2 numrxqueues 2",
            "ip link set dev a up",
        ],
        || {
            let mut kernel = system();
            let a = kernel.link("a").expect("there").index;
            run("tc qdisc add dev a root handle 9: mq");
            let before = kernel.qdisc(a, Hook::Root).expect("read").expect("one");
            kernel.add_root(a, Limited::All, true).expect("replaced");
            kernel.put_back_root(a, &before).expect("put back");
            assert_eq!(kernel.qdisc(a, Hook::Root).expect("read"), Some(before));
        },
    );
}

/// Sends datagrams from the other namespace through a and out of c, and counts them by class.
#[test]
fn packets_that_are_received_get_the_mark_and_the_class() {
    let commands = [
        &PAIR[..],
        &[
            "ip link add name c type veth peer name d",
            "ip link set dev c up",
            "ip link set dev d up",
            "ip address add 10.9.0.1/24 dev a",
            "ip address add 10.8.0.1/24 dev c",
            "ip neighbour add 10.8.0.2 lladdr 02:00:00:00:00:02 dev c",
            "sysctl -qw net.ipv4.ip_forward=1",
        ],
    ]
    .concat();
    in_namespace(&commands, || {
        let mut kernel = system();
        let [a, c] = ["a", "c"].map(|name| kernel.link(name).expect("there").index);
        kernel.add_clsact(a).expect("added");
        let again = kernel.add_clsact(a).expect_err("there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "{again}");
        kernel.add_marker(a, PacketMark::OFFLINE).expect("added");
        let filters = kernel.filters(a).expect("read");
        assert!(
            matches!(&filters[..], [one] if one.is_ours()),
            "{filters:?}"
        );
        let limited = Limited::Marked(PacketMark::OFFLINE);
        kernel.add_root(c, limited, false).expect("added");
        kernel.fill_root(c, limited, 1_000_000).expect("filled");

        // A child in a namespace of its own is the pod.
        let mut pod = std::process::Command::new("unshare");
        let mut pod = pod.args(["-n", "sleep", "30"]).spawn().expect("unshare");
        let netns = format!("/proc/{}/ns/net", pod.id());
        let own = std::fs::read_link("/proc/thread-self/ns/net").expect("own");
        while std::fs::read_link(&netns).is_ok_and(|link| link == own) {
            std::thread::yield_now();
        }
        run(&format!("ip link set dev b netns {}", pod.id()));
        let within = |command: &str| run(&format!("nsenter -t {} -n {command}", pod.id()));
        within("ip address add 10.9.0.2/24 dev b");
        within("ip link set dev b up");
        within("ip route add default via 10.9.0.1");
        let there = File::open(&netns).expect("opened");
        let pairs = links::pairs(&mut kernel.netlink).expect("read");
        let id = links::namespace_id(&mut kernel.netlink, there.as_fd()).expect("read");
        let peers = pairs.iter().filter(|(peer, _)| Some(*peer) == id);
        let peers: Vec<&str> = peers.map(|(_, link)| link.name.as_str()).collect();
        assert_eq!(peers, ["a"]);

        let send = ["bash", "-c", "echo x > /dev/udp/10.8.0.2/9"];
        let mut pods = std::process::Command::new("nsenter");
        let pid = pod.id().to_string();
        let sent = pods.args(["-t", &pid, "-n"]).args(send).status();
        assert!(sent.expect("nsenter").success());
        let own = std::process::Command::new(send[0])
            .args(&send[1..])
            .status();
        assert!(own.expect("bash").success());
        let own = std::process::Command::new(send[0])
            .args(&send[1..])
            .status();
        assert!(own.expect("bash").success());
        // The pod asks for the node's hardware address first.
        let end = Instant::now() + Duration::from_secs(10);
        let mut bytes = kernel.class_bytes(c).expect("read");
        while bytes.offline == 0 && Instant::now() < end {
            std::thread::yield_now();
            bytes = kernel.class_bytes(c).expect("read");
        }
        assert_eq!(bytes.offline, 44, "of the pod");
        assert!(bytes.online >= 88, "of the node: {bytes:?}");
        assert!(kernel.link_bytes(c).expect("read").sent >= 44 * 3);
        assert!(run("tc -s class show dev c").contains(&format!("4ed1:{}", OFFLINE & 0xffff)));

        kernel.delete_marker(a).expect("deleted");
        run("tc filter add dev a egress prio 3 protocol all u32 match u32 0 0 flowid 1:1");
        let filters = kernel.filters(a).expect("read");
        let is_theirs = |filter: &Filter| filter.is_egress && filter.priority == 3;
        assert!(
            !filters.is_empty() && filters.iter().all(is_theirs),
            "{filters:?}"
        );
        kernel.delete_clsact(a).expect("deleted");
        assert_eq!(kernel.qdisc(a, Hook::Ingress).expect("read"), None);
        pod.kill().expect("killed");
        pod.wait().expect("reaped");
    });
}

#[test]
fn an_interface_that_is_not_there_is_not_found() {
    in_namespace(&[], || {
        let mut kernel = system();
        let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        assert!(kernel.link("a").is_err_and(missing));
        assert!(kernel.add_root(77, Limited::All, false).is_err_and(missing));
        assert!(kernel.add_clsact(77).is_err_and(missing));
        assert!(kernel.link_bytes(77).is_err_and(missing));
        assert!(kernel.class_bytes(77).is_err_and(missing));
        let marker = kernel.add_marker(77, PacketMark::OFFLINE);
        assert!(marker.is_err_and(missing));
    });
}

/// What the mesh's proxy sends for offline callers has no mark: it needs no privilege to say that it may wait.
#[test]
fn packets_of_lower_effort_are_of_the_limited_class() {
    use std::net::UdpSocket;

    use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass};

    let commands = [
        &PAIR[..],
        &[
            "ip address add 10.9.0.1/24 dev a",
            "ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev a",
            "sysctl -qw net.ipv6.conf.a.disable_ipv6=0",
            "ip -6 address add fd00::1/64 dev a nodad",
            "ip -6 neighbour add fd00::2 lladdr 02:00:00:00:00:02 dev a",
        ],
    ]
    .concat();
    in_namespace(&commands, || {
        let mut kernel = system();
        let a = kernel.link("a").expect("there").index;
        let limited = Limited::Marked(PacketMark::OFFLINE);
        kernel.add_root(a, limited, false).expect("added");
        kernel.fill_root(a, limited, 1_000_000).expect("filled");
        // Bytes of the field for the network: DSCP, and two bits of congestion notification.
        for (field, is_limited) in [(0, false), (0x04, true), (0x06, true), (0x08, false)] {
            for to in ["10.9.0.2:9", "[fd00::2]:9"] {
                let before = kernel.class_bytes(a).expect("read").offline;
                let socket = match to.starts_with('[') {
                    true => {
                        let socket = UdpSocket::bind("[::]:0").expect("bound");
                        set_ipv6_tclass(&socket, field).expect("set");
                        socket
                    }
                    false => {
                        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
                        let field = u8::try_from(field).expect("a byte");
                        set_ip_tos(&socket, field).expect("set");
                        socket
                    }
                };
                socket.send_to(b"x", to).expect("sent");
                let after = kernel.class_bytes(a).expect("read").offline;
                assert_eq!(after > before, is_limited, "{field:#x} {to}");
            }
        }
    });
}

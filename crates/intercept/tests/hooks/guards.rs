//! The guard, which remains when the holder is gone.

use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use heddle_intercept::hooks::{Hooks, uninstall};
use heddle_intercept::sockopt::netns_cookie;
use heddle_intercept::{Exclude, Family, Fate};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{SendFlags, SocketType, sendto};

use crate::capture::Capture;
use crate::stage::{Pod, Stage, accept, dial, ip, on_stage, within_pod};

fn datagram(stage: &Stage, pod: &Pod) -> Result<(), Errno> {
    let to: SocketAddr = "10.96.0.1:9".parse().unwrap();
    let socket = stage
        .apps
        .socket(pod.netns.as_fd(), Family::V4, SocketType::DGRAM, 0);
    sendto(socket.unwrap(), b"?", SendFlags::empty(), &to).map(drop)
}

/// Waits until datagrams are refused: the kernel takes some time to notice that the holder has ended.
fn settle(stage: &Stage, pod: &Pod) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while datagram(stage, pod) != Err(Errno::CONNREFUSED) {
        assert!(Instant::now() < deadline, "datagrams are not refused");
        std::thread::yield_now();
    }
}

fn assert_silent(stage: &Stage, pod: &Pod) {
    settle(stage, pod);
    let capture = Capture::start();
    for to in ["10.96.0.1:80", "[fd96::1]:80"] {
        assert_eq!(
            stage.connect(pod, to).unwrap_err(),
            Errno::CONNREFUSED,
            "{to}"
        );
    }
    assert_eq!(datagram(stage, pod), Err(Errno::CONNREFUSED));
    assert_eq!(capture.heard(), 0, "not a packet left the pod");
    let to = SocketAddr::new(pod.addresses[0], 80);
    let refused = dial(to).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

fn assert_steered(stage: &Stage, pod: &Pod) {
    stage.connect(pod, "10.96.0.1:80").unwrap();
    accept(&pod.outbound);
    datagram(stage, pod).unwrap();
    dial(SocketAddr::new(pod.addresses[0], 80)).unwrap();
    accept(&pod.inbound);
}

#[test]
fn a_strict_pod_stays_silent_without_a_holder_until_the_next_one_or_its_removal() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, other, open) = (stage.pod(1), stage.pod(2), stage.pod(3));
        let _apps = [&pod, &other].map(|pod| stage.serve(pod, "[::]:80"));
        let open_app = stage.serve(&open, "[::]:80");
        for pod in [&pod, &other, &open] {
            pod.enroll(&mut hooks);
            assert_steered(stage, pod);
        }
        hooks.serve(open.id, Fate::Pass).unwrap();
        drop(hooks);
        assert_silent(stage, &pod);
        assert_silent(stage, &other);
        dial("10.90.3.2:80").unwrap();
        accept(&open_app);
        datagram(stage, &open).unwrap();

        // The next holder refuses pods that are not enrolled yet, and serves the others.
        let mut hooks = stage.hooks();
        assert_silent(stage, &other);
        pod.enroll(&mut hooks);
        assert_steered(stage, &pod);
        assert_silent(stage, &other);
        hooks.release(pod.id).unwrap();
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
        drop(hooks);
        assert_silent(stage, &other);

        // 4 hooks, 2 tables, 1 pod with 1 interface.
        assert_eq!(uninstall(&stage.bpffs()).unwrap(), 9);
        assert!(!stage.bpffs().exists());
        let node = TcpListener::bind("10.90.2.1:80").unwrap();
        stage.connect(&other, "10.90.2.1:80").unwrap();
        accept(&node);
        assert_eq!(uninstall(&stage.bpffs()).unwrap(), 0);
    });
}

#[test]
fn a_pod_that_the_next_holder_lets_pass_is_not_refused_by_the_guard_of_the_one_before() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "10.90.1.2:80");
        pod.enroll(&mut hooks);
        drop(hooks);
        let mut hooks = stage.hooks();
        hooks
            .enroll(&pod.hooked(&Exclude::default(), Fate::Pass))
            .unwrap();
        assert_steered(stage, &pod);
        hooks.died().unwrap();
        dial("10.90.1.2:80").unwrap();
        accept(&app);
        drop(hooks);
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
        dial("10.90.1.2:80").unwrap();
        accept(&app);
    });
}

/// A path that makes attaching a guard to the pod's namespace fail if something exists there.
fn obstacle(stage: &Stage, pod: &Pod) -> PathBuf {
    let cookie = netns_cookie(&pod.outbound).unwrap();
    stage.bpffs().join(format!("pod-{cookie}-new"))
}

#[test]
fn a_pod_that_cannot_be_enrolled_again_is_refused_on() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let _app = stage.serve(&pod, "[::]:80");
        pod.enroll(&mut hooks);
        drop(hooks);
        let mut hooks = stage.hooks();
        let obstacle = obstacle(stage, &pod);
        std::fs::create_dir(&obstacle).unwrap();
        for _ in 0..2 {
            let exclude = Exclude::default();
            let refused = hooks.enroll(&pod.hooked(&exclude, Fate::Refuse));
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("cannot be pinned"), "{refused}");
            assert_silent(stage, &pod);
            let guarded = hooks.guarded();
            let addresses = guarded.into_iter().flat_map(|guarded| guarded.addresses);
            assert_eq!(addresses.count(), pod.addresses.len());
        }
        std::fs::remove_dir(&obstacle).unwrap();
        drop(hooks);
        assert_silent(stage, &pod);
        let mut hooks = stage.hooks();
        assert_silent(stage, &pod);
        pod.enroll(&mut hooks);
        assert_steered(stage, &pod);
    });
}

#[test]
fn a_guard_that_could_not_be_set_is_tried_again() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let _app = stage.serve(&pod, "[::]:80");
        hooks
            .enroll(&pod.hooked(&Exclude::default(), Fate::Pass))
            .unwrap();
        let obstacle = obstacle(stage, &pod);
        std::fs::create_dir(&obstacle).unwrap();
        for _ in 0..2 {
            let refused = hooks.serve(pod.id, Fate::Refuse).unwrap_err().to_string();
            assert!(refused.contains("cannot be pinned"), "{refused}");
            assert_steered(stage, &pod);
        }
        std::fs::remove_dir(&obstacle).unwrap();
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        assert_steered(stage, &pod);
        drop(hooks);
        assert_silent(stage, &pod);
    });
}

#[test]
fn an_address_that_could_not_be_written_is_written_the_next_time() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let mut pod = stage.pod(1);
        within_pod(&pod, || ip("address add 10.90.1.3/24 dev eth0"));
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        let table = Map::HashMap(MapData::from_pin(stage.bpffs().join("addresses")).unwrap());
        let mut table = HashMap::<_, [u8; 16], u64>::try_from(table).unwrap();
        let fillers = |number: u64| u128::from(number).to_be_bytes();
        let full = (1..100_000).find(|number| table.insert(fillers(*number), 0, 0).is_err());
        pod.addresses.push("10.90.1.3".parse().unwrap());
        let refused = hooks.readdress(pod.id, &pod.addresses).unwrap_err();
        assert!(refused.to_string().contains("a pod's address"), "{refused}");
        dial("10.90.1.3:80").unwrap_err();
        for number in 1..full.unwrap() {
            table.remove(&fillers(number)).unwrap();
        }
        hooks.readdress(pod.id, &pod.addresses).unwrap();
        dial("10.90.1.3:80").unwrap();
        accept(&pod.inbound);
    });
}

#[test]
fn an_address_that_a_pod_lost_without_a_holder_is_its_own_no_more() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let mut pod = stage.pod(1);
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        pod.addresses.push("10.90.1.1".parse().unwrap());
        pod.enroll(&mut hooks);
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
        drop(hooks);
        let mut hooks = stage.hooks();
        pod.addresses.pop();
        pod.enroll(&mut hooks);
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&pod.outbound);
        assert_steered(stage, &pod);
    });
}

#[test]
fn interfaces_of_a_pod_may_come_and_go_while_it_is_enrolled() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                within_pod(&pod, || {
                    while !is_over.load(Ordering::Relaxed) {
                        ip("link add passing type veth peer name by");
                        ip("link delete passing");
                    }
                });
            });
            for _ in 0..20 {
                let exclude = Exclude::default();
                let enrolled = hooks.enroll(&pod.hooked(&exclude, Fate::Refuse));
                let released = hooks.release(pod.id);
                is_over.store(enrolled.is_err(), Ordering::Relaxed);
                enrolled.unwrap();
                released.unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn what_is_excluded_stays_so_without_a_holder() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let exclude = Exclude {
            inbound_ports: vec!["22".parse().unwrap()],
            outbound_ports: vec!["7000".parse().unwrap()],
            ..Exclude::default()
        };
        hooks.enroll(&pod.hooked(&exclude, Fate::Refuse)).unwrap();
        drop(hooks);
        let _second = stage.hooks();
        let node = TcpListener::bind("10.90.1.1:7000").unwrap();
        stage.connect(&pod, "10.90.1.1:7000").unwrap();
        accept(&node);
        let app = stage.serve(&pod, "10.90.1.2:22");
        dial("10.90.1.2:22").unwrap();
        accept(&app);
        assert_silent(stage, &pod);
    });
}

#[test]
fn guards_of_pods_that_are_gone_are_removed() {
    on_stage(|stage| {
        let mut hooks: Hooks = stage.hooks();
        let (pod, gone) = (stage.pod(1), stage.pod(2));
        pod.enroll(&mut hooks);
        gone.enroll(&mut hooks);
        drop(hooks);
        drop(gone);
        let pins = || std::fs::read_dir(stage.bpffs()).unwrap().count();
        assert_eq!(pins(), 12);
        // The kernel removes namespaces a while after the last descriptor is closed.
        let deadline = Instant::now() + Duration::from_secs(5);
        while pins() > 9 && Instant::now() < deadline {
            drop(stage.hooks());
        }
        assert_eq!(pins(), 9);
        assert_silent(stage, &pod);
    });
}

#[test]
fn a_holder_that_lives_goes_on_without_its_guard() {
    on_stage(|stage| {
        let mut before = stage.hooks();
        let (pod, unclaimed) = (stage.pod(1), stage.pod(2));
        let app = stage.serve(&unclaimed, "10.90.2.2:80");
        unclaimed.enroll(&mut before);
        drop(before);
        let mut hooks = stage.hooks();
        pod.enroll(&mut hooks);
        assert_silent(stage, &unclaimed);
        assert_eq!(uninstall(&stage.bpffs()).unwrap(), 12);
        let node = TcpListener::bind("10.90.2.1:80").unwrap();
        stage.connect(&unclaimed, "10.90.2.1:80").unwrap();
        accept(&node);
        // The guard of its namespace reads the earlier holder's table, and the kernel detaches it after a while.
        let deadline = Instant::now() + Duration::from_secs(5);
        while dial("10.90.2.2:80").is_err() {
            assert!(Instant::now() < deadline, "no call gets through");
        }
        accept(&app);
        assert_steered(stage, &pod);
        hooks.died().unwrap();
        assert_silent(stage, &pod);
    });
}

#[test]
fn a_guarded_pod_is_not_reached_by_an_address_that_the_holder_does_not_know() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:80");
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        ip("address add 169.254.90.1/16 dev pod1");
        within_pod(&pod, || {
            ip("address add 10.90.1.3/24 dev eth0");
            ip("address add 169.254.90.2/16 dev eth0");
        });
        let assert_refused = || {
            for to in ["10.90.1.3:80", "169.254.90.2:80"] {
                let refused = dial(to).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{to}");
            }
        };
        assert_refused();
        // Nor when the holder, which alone could record the new address, is gone.
        drop(hooks);
        assert_refused();
        uninstall(&stage.bpffs()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while dial("10.90.1.3:80").is_err() {
            assert!(Instant::now() < deadline, "no call gets through");
        }
        accept(&app);
    });
}

#[test]
fn a_guarded_pod_is_not_reached_by_the_address_that_its_interface_made_itself() {
    on_stage(|stage| {
        let pod = stage.pod(1);
        ip("address add fe80::90:1/64 dev pod1 nodad");
        within_pod(&pod, || ip("address add fe80::90:2/64 dev eth0 nodad"));
        let app = stage.serve(&pod, "[::]:80");
        let any = UdpSocket::bind("[::]:0").unwrap();
        let scope = name_to_index(&any, "pod1").unwrap();
        let to = SocketAddrV6::new("fe80::90:2".parse().unwrap(), 80, 0, scope);
        dial(to).unwrap();
        accept(&app);
        let mut hooks = stage.hooks();
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        assert_steered(stage, &pod);
        let refused = dial(to).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        hooks.died().unwrap();
        let refused = dial(to).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn what_is_not_ours_is_not_removed() {
    on_stage(|stage| {
        let _hooks = stage.hooks();
        let stranger = stage.bpffs().join("stranger");
        std::fs::create_dir(&stranger).unwrap();
        let refused = uninstall(&stage.bpffs()).unwrap_err().to_string();
        assert!(
            refused.contains("stranger: does not belong to Heddle"),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(stage.bpffs()).unwrap().count(), 7);
    });
}

//! The same tests with packet filter rules.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use heddle_intercept::hooks::{Hooks, Kind};
use heddle_intercept::{Exclude, Family, Fate, original_destination, routes};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType, sendto};

use crate::capture::Capture;
use crate::datagrams::{Talk, node_addresses};
use crate::stage::{Pod, Stage, accept, dial, on_stage};

fn hooks(stage: &Stage) -> Hooks {
    let hooks = Hooks::open(&stage.options(Kind::Nft)).unwrap();
    assert_eq!(hooks.kind(), Kind::Nft);
    hooks
}

fn send(stage: &Stage, pod: &Pod, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let socket = stage
        .apps
        .socket(pod.netns.as_fd(), Family::of(to), SocketType::DGRAM, 0);
    // Whether it gets an error depends on when the reject arrives.
    let _ = sendto(socket.unwrap(), b"?", SendFlags::empty(), &to);
}

#[test]
fn connections_are_steered_both_ways_with_their_addresses() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:80");
        pod.enroll(&mut hooks);
        let destinations = [
            (Family::V4, "10.96.1.2:8080", "10.96.1.2:8080"),
            (Family::V6, "[fd96::7]:443", "[fd96::7]:443"),
            (Family::V6, "[::ffff:10.96.1.3]:80", "10.96.1.3:80"),
        ];
        for (family, dialled, original) in destinations {
            let dialled: SocketAddr = dialled.parse().unwrap();
            let mut client = stage.connect_by(&pod, family, dialled).unwrap();
            let (mut server, _) = accept(&pod.outbound);
            let original: SocketAddr = original.parse().unwrap();
            assert_eq!(
                original_destination(&server).unwrap(),
                original,
                "{dialled}"
            );
            assert_eq!(client.peer_addr().unwrap(), dialled);
            client.write_all(b"ping").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
        }
        for to in ["10.90.1.2:80", "[fd90:1::2]:80", "10.90.1.2:9999"] {
            let to: SocketAddr = to.parse().unwrap();
            let mut client = dial(to).unwrap();
            let (mut server, from) = accept(&pod.inbound);
            let here = server.local_addr().unwrap();
            assert_eq!(SocketAddr::new(here.ip().to_canonical(), here.port()), to);
            assert_eq!(from, client.local_addr().unwrap());
            client.write_all(b"ping").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
        }
        for to in ["10.90.1.2:80", "[fd90:1::2]:80", "127.0.0.1:80"] {
            stage.connect(&pod, to).unwrap();
            accept(&app);
        }
    });
}

#[test]
fn an_address_that_comes_later_is_steered_and_refused_as_the_others_are() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:80");
        pod.enroll(&mut hooks);
        crate::stage::within_pod(&pod, || {
            crate::stage::ip("address add 10.90.1.3/24 dev eth0");
        });
        dial("10.90.1.3:80").unwrap();
        accept(&pod.inbound);
        hooks.died().unwrap();
        let refused = dial("10.90.1.3:80").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        hooks.release(pod.id).unwrap();
        dial("10.90.1.3:80").unwrap();
        accept(&app);
    });
}

#[test]
fn the_proxy_speaks_with_the_clients_address() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:80");
        pod.enroll(&mut hooks);
        routes::prepare(pod.netns.as_fd()).unwrap();
        let capture = Capture::start();
        for (from, to) in [
            ("10.96.0.7:4000", "10.90.1.2:80"),
            ("[fd96::7]:4000", "[fd90:1::2]:80"),
            ("192.0.2.7:4000", "10.90.1.2:80"),
        ] {
            let from: SocketAddr = from.parse().unwrap();
            let to = to.parse().unwrap();
            let mut ours = crate::transparent::connect(stage, &pod, from, to).unwrap();
            let (mut theirs, seen) = accept(&app);
            assert_eq!(seen, from);
            theirs.write_all(b"answer").unwrap();
            ours.read_exact(&mut [0; 6]).unwrap();
        }
        assert_eq!(capture.heard(), 0);
    });
}

#[test]
fn exceptions_are_left_alone() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let pod = stage.pod(1);
        let exclude = Exclude {
            inbound_ports: vec!["22".parse().unwrap()],
            outbound_ports: vec!["7000-7010".parse().unwrap()],
            outbound_networks: vec!["10.97.0.0/16".parse().unwrap()],
        };
        crate::stage::ip("address add 10.97.0.1/32 dev lo");
        hooks.enroll(&pod.hooked(&exclude, Fate::Refuse)).unwrap();
        for state in ["steered", "refused"] {
            for (at, to) in [
                ("10.90.1.1:7005", "10.90.1.1:7005"),
                ("10.97.0.1:80", "10.97.0.1:80"),
                ("[fd90:1::1]:80", "[fd90:1::1]:80"),
            ] {
                let node = TcpListener::bind(at).unwrap();
                stage
                    .connect(&pod, to)
                    .unwrap_or_else(|error| panic!("{state} {to}: {error}"));
                accept(&node);
            }
            let app = stage.serve(&pod, "10.90.1.2:22");
            dial("10.90.1.2:22").unwrap();
            accept(&app);
            hooks.died().unwrap();
        }
    });
}

#[test]
fn without_a_proxy_each_pod_meets_its_fate() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let (pod, open) = (stage.pod(1), stage.pod(2));
        let app = stage.serve(&pod, "[::]:80");
        let open_app = stage.serve(&open, "[::]:80");
        for (pod, fate) in [(&pod, Fate::Refuse), (&open, Fate::Pass)] {
            pod.enroll(&mut hooks);
            hooks.serve(pod.id, fate).unwrap();
        }
        hooks.died().unwrap();
        let capture = Capture::start();
        for to in ["10.96.0.1:80", "10.90.1.1:80", "[fd96::1]:80"] {
            assert_eq!(
                stage.connect(&pod, to).unwrap_err(),
                Errno::CONNREFUSED,
                "{to}"
            );
            send(stage, &pod, to);
        }
        assert_eq!(capture.heard(), 0, "not a packet left the pod");
        for to in ["10.90.1.2:80", "[fd90:1::2]:80"] {
            let refused = dial(to).unwrap_err();
            assert_eq!(
                refused.kind(),
                std::io::ErrorKind::ConnectionRefused,
                "{to}"
            );
        }
        assert!(app.accept().is_err());
        let node = TcpListener::bind("10.90.2.1:80").unwrap();
        stage.connect(&open, "10.90.2.1:80").unwrap();
        accept(&node);
        dial("10.90.2.2:80").unwrap();
        accept(&open_app);

        for pod in [&pod, &open] {
            hooks.serve(pod.id, Fate::Refuse).unwrap();
            stage.connect(pod, "10.96.0.1:80").unwrap();
            accept(&pod.outbound);
            dial(SocketAddr::new(pod.addresses[0], 80)).unwrap();
            accept(&pod.inbound);
        }
        // When the listener is closed, callers must not reach the program.
        drop(pod);
    });
}

#[test]
fn datagrams_of_sockets_that_were_connected_before_meet_it_too() {
    on_stage(|stage| crate::datagrams::meet_their_fate(stage, Kind::Nft));
}

#[test]
fn datagrams_that_are_excluded_go_on() {
    on_stage(|stage| crate::datagrams::exceptions_go_on(stage, Kind::Nft));
}

#[test]
fn without_its_listener_nothing_reaches_the_program() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let mut pod = stage.pod(1);
        let _app = stage.serve(&pod, "[::]:80");
        pod.enroll(&mut hooks);
        pod.inbound = TcpListener::bind("127.0.0.1:0").unwrap();
        pod.outbound = TcpListener::bind("127.0.0.1:0").unwrap();
        for to in ["10.90.1.2:80", "[fd90:1::2]:80"] {
            let refused = dial(to).unwrap_err();
            assert_eq!(
                refused.kind(),
                std::io::ErrorKind::ConnectionRefused,
                "{to}"
            );
        }
        assert_eq!(
            stage.connect(&pod, "10.96.0.1:80").unwrap_err(),
            Errno::CONNREFUSED
        );
    });
}

/// nft has no guard: the listeners end with the holder, while its rules stay.
#[test]
fn rules_of_a_holder_that_was_killed_refuse_connections_of_all_pods_and_let_datagrams_pass() {
    on_stage(|stage| {
        node_addresses();
        let mut hooks = hooks(stage);
        let mut pods = [stage.pod(1), stage.pod(2)];
        let apps = pods.each_ref().map(|pod| stage.serve(pod, "[::]:80"));
        let node = TcpListener::bind("10.96.0.1:80").unwrap();
        node.set_nonblocking(true).unwrap();
        for (pod, fate) in pods.iter().zip([Fate::Refuse, Fate::Pass]) {
            pod.enroll(&mut hooks);
            hooks.serve(pod.id, fate).unwrap();
        }
        // Like a killed process, do not clean up.
        std::mem::forget(hooks);
        for pod in &mut pods {
            pod.inbound = TcpListener::bind("127.0.0.1:0").unwrap();
            pod.outbound = TcpListener::bind("127.0.0.1:0").unwrap();
            assert_eq!(
                stage.connect(pod, "10.96.0.1:80").unwrap_err(),
                Errno::CONNREFUSED
            );
            let refused = dial(SocketAddr::new(pod.addresses[0], 80)).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            Talk::new(stage, pod, "10.96.0.1:9").goes_on();
        }
        let listeners = apps.iter().chain([&node]);
        assert!(listeners.map(TcpListener::accept).all(|call| call.is_err()));
    });
}

#[test]
fn a_released_pod_is_left_alone_and_its_connections_go_on() {
    on_stage(|stage| {
        let mut hooks = hooks(stage);
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        let mut client = stage.connect(&pod, "10.96.0.1:80").unwrap();
        let (mut server, _) = accept(&pod.outbound);
        let mut arrived = dial("10.90.1.2:80").unwrap();
        let (mut theirs, _) = accept(&pod.inbound);
        hooks.release(pod.id).unwrap();
        server.write_all(b"still").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        client.write_all(b"there").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        theirs.write_all(b"still").unwrap();
        arrived.read_exact(&mut [0; 5]).unwrap();
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
    });
}

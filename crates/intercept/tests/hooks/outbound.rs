//! Outbound connections of pods.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use heddle_intercept::{Exclude, Family, Fate, PortRange, original_destination};
use heddle_model::Cidr;
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use crate::stage::{accept, ip, on_stage};

#[test]
fn a_connection_to_the_mesh_reaches_the_listener_which_learns_where_it_was_going() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        let destinations = [
            (Family::V4, "10.96.1.2:8080", "10.96.1.2:8080"),
            (Family::V6, "[fd96::7]:443", "[fd96::7]:443"),
            (Family::V6, "[::ffff:10.96.1.3]:80", "10.96.1.3:80"),
        ];
        for (family, dialled, original) in destinations {
            let dialled: SocketAddr = dialled.parse().unwrap();
            let original: SocketAddr = original.parse().unwrap();
            let mut client = stage.connect_by(&pod, family, dialled).unwrap();
            let (mut server, _) = accept(&pod.outbound);
            assert_eq!(
                original_destination(&server).unwrap(),
                original,
                "{dialled}"
            );
            assert_eq!(
                client.peer_addr().unwrap(),
                dialled,
                "what the program is told"
            );
            client.write_all(b"ping").unwrap();
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).unwrap();
            server.write_all(b"pong").unwrap();
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"pong");
        }
    });
}

#[test]
fn two_pods_with_the_same_source_address_are_told_apart() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pods = [stage.pod(1), stage.pod(2)];
        for pod in &pods {
            pod.enroll(&mut hooks);
        }
        for (number, pod) in pods.iter().enumerate() {
            let socket = stage
                .apps
                .socket(pod.netns.as_fd(), Family::V4, SocketType::STREAM, 0);
            let socket = socket.unwrap();
            sockopt::set_socket_reuseaddr(&socket, true).unwrap();
            let source: SocketAddr = "127.0.0.1:4000".parse().unwrap();
            rustix::net::bind(&socket, &source).unwrap();
            let to = format!("10.96.0.{number}:80")
                .parse::<SocketAddr>()
                .unwrap();
            rustix::net::connect(&socket, &to).unwrap();
            let (server, from) = accept(&pod.outbound);
            assert_eq!((original_destination(&server).unwrap(), from), (to, source));
        }
    });
}

#[test]
fn what_does_not_concern_the_mesh_is_left_alone() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        ip("address add 10.111.0.1/32 dev lo");
        ip("address add 10.97.0.1/32 dev lo");
        let exclude = Exclude {
            outbound_ports: vec![PortRange::new(7000, 7010).unwrap()],
            outbound_networks: vec!["10.97.0.0/16".parse::<Cidr>().unwrap()],
            ..Exclude::default()
        };
        hooks.enroll(&pod.hooked(&exclude, Fate::Refuse)).unwrap();
        let node: Vec<_> = [80, 7005]
            .map(|port| TcpListener::bind(("::", port)).unwrap())
            .into();
        let app = stage.serve(&pod, "[::]:80");
        let within = [
            "127.0.0.1:80",
            "[::1]:80",
            "10.90.1.2:80",
            "[fd90:1::2]:80",
            "0.0.0.0:80",
        ];
        for to in within {
            let client = stage.connect(&pod, to).unwrap();
            let (_, from) = accept(&app);
            assert_eq!(from.port(), client.local_addr().unwrap().port(), "{to}");
        }
        let outside = [
            (0, "10.111.0.1:80"),
            (0, "[fd90:1::1]:80"),
            (0, "10.97.0.1:80"),
            (1, "10.90.1.1:7005"),
        ];
        for (listener, to) in outside {
            let client = stage.connect(&pod, to).unwrap();
            let (_, from) = accept(&node[listener]);
            assert_eq!(from, client.local_addr().unwrap(), "{to}");
        }
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&pod.outbound);
        assert!(
            pod.outbound.accept().is_err(),
            "one connection was the mesh's"
        );
    });
}

#[test]
fn a_pod_that_is_not_enrolled_is_left_alone() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pods = [stage.pod(1), stage.pod(2)];
        pods[0].enroll(&mut hooks);
        let node = TcpListener::bind("10.90.2.1:80").unwrap();
        stage.connect(&pods[1], "10.90.2.1:80").unwrap();
        accept(&node);
    });
}

#[test]
fn who_dials_the_listener_itself_was_going_nowhere_else() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        stage.connect(&pod, "127.0.0.1:15001").unwrap();
        let (server, _) = accept(&pod.outbound);
        assert!(original_destination(&server).is_err());
    });
}

#[test]
fn a_socket_that_is_used_again_forgets_where_it_went_before() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "127.0.0.1:80");
        pod.enroll(&mut hooks);
        let client = stage.connect(&pod, "10.96.0.1:80").unwrap();
        accept(&pod.outbound);
        rustix::net::connect_unspec(&client).unwrap();
        let here: SocketAddr = "127.0.0.1:80".parse().unwrap();
        rustix::net::connect(&client, &here).unwrap();
        accept(&app);
        assert_eq!(client.peer_addr().unwrap(), here);
    });
}

#[test]
fn the_holders_own_sockets_go_where_they_are_sent() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "10.90.1.2:80");
        pod.enroll(&mut hooks);
        let socket = stage
            .holder
            .socket(pod.netns.as_fd(), Family::V4, SocketType::STREAM, 0);
        let socket = socket.unwrap();
        rustix::net::connect(&socket, &"10.90.1.2:80".parse::<SocketAddr>().unwrap()).unwrap();
        accept(&app);
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        let socket = stage
            .holder
            .socket(pod.netns.as_fd(), Family::V4, SocketType::STREAM, 0);
        let socket = socket.unwrap();
        rustix::net::connect(&socket, &"10.90.1.1:80".parse::<SocketAddr>().unwrap()).unwrap();
        accept(&node);
    });
}

#[test]
fn multipath_connections_do_not_slip_past() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        let to: SocketAddr = "10.90.1.1:80".parse().unwrap();
        const MPTCP: u32 = 262;
        match stage
            .apps
            .socket(pod.netns.as_fd(), Family::V4, SocketType::STREAM, MPTCP)
        {
            Ok(socket) => {
                rustix::net::connect(&socket, &to).unwrap();
                let (server, _) = accept(&pod.outbound);
                assert_eq!(original_destination(&server).unwrap(), to);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(93), "protocol not supported"),
        }
        node.set_nonblocking(true).unwrap();
        assert!(node.accept().is_err(), "nothing reached the node");
    });
}

#[test]
fn a_released_pod_is_left_alone_and_its_connections_go_on() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        let mut client: TcpStream = stage.connect(&pod, "10.96.0.1:80").unwrap();
        let queued = stage.connect(&pod, "10.96.0.2:80").unwrap();
        let (mut server, _) = accept(&pod.outbound);
        hooks.release(pod.id).unwrap();
        server.write_all(b"still").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        let (server, _) = accept(&pod.outbound);
        let original = original_destination(&server).unwrap();
        assert_eq!(original, queued.peer_addr().unwrap());
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
        assert_eq!(
            stage.connect(&pod, "10.90.1.1:81").unwrap_err(),
            Errno::CONNREFUSED
        );
        pod.enroll(&mut hooks);
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&pod.outbound);
    });
}

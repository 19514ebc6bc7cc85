//! What arrives at pods.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use heddle_intercept::{Exclude, Family, Fate, PortRange};
use rustix::net::SocketType;

use crate::stage::{accept, dial, on_stage};

#[test]
fn what_arrives_reaches_the_listener_under_its_own_address() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let _app = stage.serve(&pod, "[::]:8080");
        pod.enrol(&mut hooks);
        for to in ["10.90.1.2:8080", "[fd90:1::2]:8080", "10.90.1.2:9999"] {
            let to: SocketAddr = to.parse().unwrap();
            let client = dial(to).unwrap();
            let (server, from) = accept(&pod.inbound);
            let here = server.local_addr().unwrap();
            assert_eq!(SocketAddr::new(here.ip().to_canonical(), here.port()), to);
            assert_eq!(from, client.local_addr().unwrap());
        }
    });
}

#[test]
fn what_a_pod_and_the_proxy_say_within_it_reaches_the_program() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:8080");
        pod.enrol(&mut hooks);
        // A program that calls its own address, which may be seen to arrive at eth0; and over lo.
        for to in ["10.90.1.2:8080", "[fd90:1::2]:8080", "127.0.0.1:8080"] {
            stage.connect(&pod, to).unwrap();
            accept(&app);
            let to: SocketAddr = to.parse().unwrap();
            let family = Family::of(to);
            let proxys = stage
                .holder
                .socket(pod.netns.as_fd(), family, SocketType::STREAM, 0);
            rustix::net::connect(proxys.unwrap(), &to).unwrap();
            accept(&app);
        }
        assert!(pod.inbound.accept().is_err(), "nothing was steered");
    });
}

#[test]
fn excluded_ports_and_other_addresses_are_left_alone() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (mut pod, other) = (stage.pod(1), stage.pod(2));
        let exclude = Exclude {
            inbound_ports: vec![
                PortRange::one(22).unwrap(),
                PortRange::new(8000, 8010).unwrap(),
            ],
            ..Exclude::default()
        };
        pod.addresses.truncate(1);
        hooks.enrol(&pod.hooked(&exclude, Fate::Pass)).unwrap();
        for port in [22, 8010] {
            let app = stage.serve(&pod, &format!("10.90.1.2:{port}"));
            dial(("10.90.1.2", port)).unwrap();
            accept(&app);
        }
        let app = stage.serve(&pod, "[fd90:1::2]:80");
        dial("[fd90:1::2]:80").unwrap();
        accept(&app);
        let app = stage.serve(&other, "10.90.2.2:80");
        dial("10.90.2.2:80").unwrap();
        accept(&app);
        dial("10.90.1.2:8011").unwrap();
        accept(&pod.inbound);
    });
}

#[test]
fn an_address_belongs_to_one_pod() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, mut other) = (stage.pod(1), stage.pod(2));
        pod.enrol(&mut hooks);
        other.addresses.clone_from(&pod.addresses);
        let refused = hooks
            .enrol(&other.hooked(&Exclude::default(), Fate::Refuse))
            .unwrap_err();
        assert_eq!(refused.to_string(), "pod 2: 10.90.1.2 is pod 1's");
        let refused = hooks
            .enrol(&pod.hooked(&Exclude::default(), Fate::Refuse))
            .unwrap_err();
        assert_eq!(refused.to_string(), "pod 1: is enrolled already");
        dial("10.90.1.2:80").unwrap();
        accept(&pod.inbound);
    });
}

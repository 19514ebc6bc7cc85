//! Inbound connections of pods.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use heddle_intercept::{Exclude, Family, Fate, PortRange};
use rustix::net::SocketType;

use crate::stage::{accept, dial, ip, on_stage, within_pod};

#[test]
fn what_arrives_reaches_the_listener_under_its_own_address() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let _app = stage.serve(&pod, "[::]:8080");
        pod.enroll(&mut hooks);
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
        pod.enroll(&mut hooks);
        // A program that connects to its own address, which the kernel may report as arriving at eth0; and over lo.
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
fn excluded_ports_and_other_namespaces_are_left_alone() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, other) = (stage.pod(1), stage.pod(2));
        let exclude = Exclude {
            inbound_ports: vec![
                PortRange::one(22).unwrap(),
                PortRange::new(8000, 8010).unwrap(),
            ],
            ..Exclude::default()
        };
        hooks.enroll(&pod.hooked(&exclude, Fate::Pass)).unwrap();
        for port in [22, 8010] {
            let app = stage.serve(&pod, &format!("10.90.1.2:{port}"));
            dial(("10.90.1.2", port)).unwrap();
            accept(&app);
        }
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
        pod.enroll(&mut hooks);
        other.addresses.clone_from(&pod.addresses);
        let refused = hooks
            .enroll(&other.hooked(&Exclude::default(), Fate::Refuse))
            .unwrap_err();
        assert_eq!(refused.to_string(), "pod 2: 10.90.1.2 is pod 1's");
        let refused = hooks
            .enroll(&pod.hooked(&Exclude::default(), Fate::Refuse))
            .unwrap_err();
        assert_eq!(refused.to_string(), "pod 1: is enrolled already");
        dial("10.90.1.2:80").unwrap();
        accept(&pod.inbound);
    });
}

#[test]
fn an_address_that_comes_later_is_refused_until_it_is_the_pods_and_then_steered() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, other) = (stage.pod(1), stage.pod(2));
        let app = stage.serve(&pod, "[::]:80");
        for pod in [&pod, &other] {
            hooks
                .enroll(&pod.hooked(&Exclude::default(), Fate::Pass))
                .unwrap();
            hooks.serve(pod.id, Fate::Pass).unwrap();
        }
        let later = ["10.90.1.3", "fd90:1::3"].map(|address| address.parse::<IpAddr>().unwrap());
        let at = |address: IpAddr| SocketAddr::new(address, 80);
        within_pod(&pod, || {
            ip("address add 10.90.1.3/24 dev eth0");
            ip("address add fd90:1::3/64 dev eth0 nodad");
        });
        for address in later {
            let refused = dial(at(address)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
            // Connections within the pod are not affected.
            stage.connect(&pod, &at(address).to_string()).unwrap();
            accept(if address.is_ipv4() {
                &pod.outbound
            } else {
                &app
            });
        }
        let all: Vec<IpAddr> = pod.addresses.iter().copied().chain(later).collect();
        hooks.readdress(pod.id, &all).unwrap();
        for address in later {
            dial(at(address)).unwrap();
            assert_eq!(accept(&pod.inbound).0.local_addr().unwrap().port(), 80);
            stage.connect(&pod, &at(address).to_string()).unwrap();
            accept(&app);
        }
        // A pod cannot get an address of another pod until that pod has given it up.
        let taken = hooks.readdress(other.id, &all).unwrap_err().to_string();
        assert_eq!(taken, "pod 2: 10.90.1.2 is pod 1's");
        hooks.readdress(pod.id, &all[1..]).unwrap();
        hooks.readdress(other.id, &all[..1]).unwrap();
        let refused = dial("10.90.2.2:80").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // After its release the pod is reachable: at once at the addresses that it had last, at others once `forget`
        // is done.
        hooks.readdress(pod.id, &all[2..]).unwrap();
        hooks.release(pod.id).unwrap();
        dial(at(later[0])).unwrap();
        accept(&app);
        hooks.forget(pod.id).unwrap();
        dial("10.90.1.2:80").unwrap();
        accept(&app);
    });
}

//! Pods with addresses of one family only.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use heddle_intercept::hooks::{Hooks, Kind};
use heddle_intercept::{Exclude, Fate, original_destination, routes};

use crate::stage::{Pod, Stage, accept, dial, ip, on_stage, within_pod};

const KINDS: [Kind; 2] = [Kind::Bpf, Kind::Nft];

fn carries(stage: &Stage, hooks: &mut Hooks, pod: &Pod, dials: &[&str], arrives: &str) {
    routes::prepare(pod.netns.as_fd()).unwrap();
    hooks
        .enroll(&pod.hooked(&Exclude::default(), Fate::Refuse))
        .unwrap();
    for to in dials {
        let to: SocketAddr = to.parse().unwrap();
        let canonical = SocketAddr::new(to.ip().to_canonical(), to.port());
        stage.connect(pod, &to.to_string()).unwrap();
        let (server, _) = accept(&pod.outbound);
        assert_eq!(original_destination(&server).unwrap(), canonical);
    }
    dial(arrives).unwrap();
    accept(&pod.inbound);
    let app = stage.serve(pod, arrives);
    let client = match arrives.starts_with('[') {
        true => "[2001:db8::9]:999",
        false => "192.0.2.9:999",
    };
    let client = client.parse().unwrap();
    crate::transparent::connect(stage, pod, client, arrives.parse().unwrap()).unwrap();
    assert_eq!(accept(&app).1, client);
    routes::undo(pod.netns.as_fd()).unwrap();
    hooks.release(pod.id).unwrap();
}

#[test]
fn a_pod_without_ipv6() {
    for kind in KINDS {
        on_stage(|stage| {
            let mut hooks = Hooks::open(&stage.options(kind)).unwrap();
            let mut pod = stage.pod(1);
            pod.addresses.retain(|address| address.is_ipv4());
            within_pod(&pod, || {
                std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
            });
            let dials = ["10.96.0.1:80", "[::ffff:10.96.0.2]:80"];
            carries(stage, &mut hooks, &pod, &dials, "10.90.1.2:80");
        });
    }
}

#[test]
fn a_pod_without_ipv4() {
    for kind in KINDS {
        on_stage(|stage| {
            let mut hooks = Hooks::open(&stage.options(kind)).unwrap();
            let mut pod = stage.pod(1);
            pod.addresses.retain(|address| address.is_ipv6());
            within_pod(&pod, || ip("address flush dev eth0 to 10.0.0.0/8"));
            carries(stage, &mut hooks, &pod, &["[fd96::1]:80"], "[fd90:1::2]:80");
        });
    }
}

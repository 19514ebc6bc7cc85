//! States of pods: held, served, and the fate when the proxy dies.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;

use aya::maps::{HashMap, Map, MapData};
use heddle_intercept::hooks::{Hooks, Kind, Options};
use heddle_intercept::{Exclude, Family, Fate};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType, sendto};

use crate::capture::Capture;
use crate::stage::{Pod, Stage, accept, dial, on_stage};

/// The result of sending a datagram, with a connected and with an unconnected socket.
fn datagram(stage: &Stage, pod: &Pod, to: &str) -> Result<(), Errno> {
    let to: SocketAddr = to.parse().unwrap();
    let socket = || {
        stage
            .apps
            .socket(pod.netns.as_fd(), Family::of(to), SocketType::DGRAM, 0)
    };
    let sent = sendto(socket().unwrap(), b"?", SendFlags::empty(), &to).map(drop);
    let connected = rustix::net::connect(socket().unwrap(), &to);
    assert_eq!(sent, connected, "{to}");
    sent
}

#[test]
fn a_held_pods_connections_wait_for_the_proxy() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enroll(&mut hooks);
        let dialled = stage.connect(&pod, "10.96.0.1:80").unwrap();
        let arrived = dial("10.90.1.2:80").unwrap();
        hooks.serve(pod.id, Fate::Pass).unwrap();
        let (_, from) = accept(&pod.outbound);
        assert_eq!(from.port(), dialled.local_addr().unwrap().port());
        let (_, from) = accept(&pod.inbound);
        assert_eq!(from, arrived.local_addr().unwrap());
    });
}

#[test]
fn without_a_proxy_a_strict_pod_is_not_heard() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:80");
        let _node = TcpListener::bind("[::]:80").unwrap();
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        hooks.died().unwrap();
        let capture = Capture::start();
        for to in ["10.96.0.1:80", "10.90.1.1:80", "[fd96::1]:80"] {
            assert_eq!(
                stage.connect(&pod, to).unwrap_err(),
                Errno::CONNREFUSED,
                "{to}"
            );
            assert_eq!(datagram(stage, &pod, to), Err(Errno::CONNREFUSED), "{to}");
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
        // Traffic outside the mesh passes, and so do DNS queries.
        stage.connect(&pod, "127.0.0.1:80").unwrap();
        stage.connect(&pod, "[fd90:1::1]:80").unwrap();
        datagram(stage, &pod, "10.96.0.10:53").unwrap();

        hooks.serve(pod.id, Fate::Refuse).unwrap();
        stage.connect(&pod, "10.96.0.1:80").unwrap();
        accept(&pod.outbound);
        dial("10.90.1.2:80").unwrap();
        accept(&pod.inbound);
        datagram(stage, &pod, "10.96.0.1:80").unwrap();
    });
}

#[test]
fn without_a_proxy_other_pods_go_on_as_if_there_were_no_mesh() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let (pod, held) = (stage.pod(1), stage.pod(2));
        let app = stage.serve(&pod, "10.90.1.2:80");
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Pass).unwrap();
        hooks.died().unwrap();
        let client = stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
        assert_eq!(client.peer_addr().unwrap(), "10.90.1.1:80".parse().unwrap());
        dial("10.90.1.2:80").unwrap();
        accept(&app);
        datagram(stage, &pod, "10.96.0.1:80").unwrap();

        // A pod enrolled while there is no proxy is held for the next one.
        hooks
            .enroll(&held.hooked(&Exclude::default(), Fate::Refuse))
            .unwrap();
        stage.connect(&held, "10.96.0.1:80").unwrap();
        accept(&held.outbound);
        hooks.serve(pod.id, Fate::Pass).unwrap();
        stage.connect(&pod, "10.96.0.1:80").unwrap();
        accept(&pod.outbound);
    });
}

/// The entry of each pod in the table of the programs (`struct pod`), by the cookie of its namespace.
fn entries(stage: &Stage) -> BTreeMap<u64, [u8; 152]> {
    let table = Map::HashMap(MapData::from_pin(stage.bpffs().join("pods")).unwrap());
    let table = HashMap::<_, u64, [u8; 152]>::try_from(table).unwrap();
    table.iter().map(Result::unwrap).collect()
}

#[test]
fn all_pods_meet_their_fate_by_one_store() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pods = [stage.pod(1), stage.pod(2)];
        for pod in &pods {
            pod.enroll(&mut hooks);
            hooks.serve(pod.id, Fate::Refuse).unwrap();
            stage.connect(pod, "10.96.0.1:80").unwrap();
        }
        let before = entries(stage);
        assert_eq!(before.len(), 2);
        hooks.died().unwrap();
        for pod in &pods {
            let refused = stage.connect(pod, "10.96.0.1:80").unwrap_err();
            assert_eq!(refused, Errno::CONNREFUSED);
        }
        assert_eq!(entries(stage), before, "nothing was written of a pod");
        // Each pod is served again separately.
        hooks.serve(pods[0].id, Fate::Refuse).unwrap();
        let now = entries(stage);
        let changed = now
            .iter()
            .filter(|(cookie, entry)| before[cookie] != **entry);
        assert_eq!(changed.count(), 1);
        stage.connect(&pods[0], "10.96.0.1:80").unwrap();
        stage.connect(&pods[1], "10.96.0.1:80").unwrap_err();
    });
}

#[test]
fn hooks_that_are_dropped_leave_nothing_but_the_guard() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "10.90.1.2:80");
        pod.enroll(&mut hooks);
        hooks.serve(pod.id, Fate::Pass).unwrap();
        drop(hooks);
        let node = TcpListener::bind("10.90.1.1:80").unwrap();
        stage.connect(&pod, "10.90.1.1:80").unwrap();
        accept(&node);
        dial("10.90.1.2:80").unwrap();
        accept(&app);
    });
}

#[test]
fn hooks_are_attached_to_no_root_and_to_nothing_else() {
    on_stage(|stage| {
        let refused = |path: PathBuf| {
            let options = Options {
                pods_cgroup: path,
                ..stage.options(Kind::Bpf)
            };
            Hooks::open(&options).unwrap_err().to_string()
        };
        let root = stage
            .options(Kind::Bpf)
            .pods_cgroup
            .ancestors()
            .nth(2)
            .unwrap()
            .to_owned();
        let said = refused(root);
        assert!(said.ends_with("name one beneath it"), "{said}");
        let said = refused("/proc/self".into());
        assert!(
            said.contains("/proc/self: is no control group of version 2"),
            "{said}"
        );
        let said = refused("/nowhere".into());
        assert!(
            said.contains("/nowhere: cannot open this control group"),
            "{said}"
        );
    });
}

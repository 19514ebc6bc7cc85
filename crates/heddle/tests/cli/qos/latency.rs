//! The latency loop of `heddle qos run`, with a real proxy and control groups of this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{Groups, pause, signal};
use crate::harness::{Heddle, as_str, eventually, get, heddle, held_backend, service, text};

/// How long the online pod takes for a request, and what its objective is.
const SLOW: Duration = Duration::from_millis(40);
const OBJECTIVE: &str = "20ms";

fn quota(groups: &Groups) -> String {
    match groups.file("batch", "cpu.max").exists() {
        true => groups.read("batch", "cpu.max"),
        false => groups.read("batch", "cpu.cfs_quota_us"),
    }
}

fn status(groups: &Groups, format: &str) -> String {
    let state = groups.state();
    let output = heddle(&["qos", "status", "--state", as_str(&state), "-o", format]);
    text(&output.stdout) + &text(&output.stderr)
}

/// Given an online pod that misses its objective, when the proxy has seen enough of its requests, then the offline pod gets
/// a quota, and the status says why. When the agent ends, the offline pod has none again.
#[test]
fn an_offline_pod_gets_less_while_the_proxy_sees_an_online_pod_miss_its_objective() {
    let Some(groups) = Groups::new("latency", &["web", "batch"]) else {
        return;
    };
    let (backend, requests, answer) = held_backend();
    let annotated = |name: &str, labels: &str, annotations: &str| {
        format!(
            "annotations: {{heddle.dev/cgroup: {}/{name}{annotations}}}, labels: {{{labels}}}",
            groups.name
        )
    };
    let web = annotated(
        "web",
        "app: web",
        &format!(", heddle.dev/latency-p99: {OBJECTIVE}"),
    );
    let manifest = service("qos-latency", "web", backend).replace("labels: {app: web}", &web);
    groups.folder.write("web.yaml", &manifest);
    let batch = annotated("batch", "heddle.dev/class: offline", "");
    groups.folder.write(
        "batch.yaml",
        &format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: batch, namespace: qos-latency, \
             {batch}}}\nspec: {{address: 127.0.77.1, ports: [{{port: 80}}]}}\n"
        ),
    );
    let proxy = Heddle::up(&groups.folder, &[]);
    let address = proxy.address("qos-latency/web", None);
    let found = quota(&groups);
    let socket = groups.folder.socket();
    let mut agent = groups.start(&["--proxy-socket", as_str(&socket)]);

    let is_over = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&is_over);
    thread::spawn(move || {
        while !is_done.load(Ordering::Relaxed) {
            if let Ok(()) = requests.recv_timeout(SLOW) {
                pause(SLOW);
                let _test_is_over = answer.send(());
            }
        }
    });
    let is_done = Arc::clone(&is_over);
    thread::spawn(move || {
        while !is_done.load(Ordering::Relaxed) {
            assert_eq!(get(address, "web", "/").0, 200);
        }
    });
    eventually("the offline pod gets a quota", || quota(&groups) != found);
    let said = status(&groups, "text");
    for part in [
        "latency: level ",
        "offline pods share ",
        "OBJECTIVE OF",
        "qos-latency/web",
        OBJECTIVE,
        "cpu-quota of",
        "the p99 of qos-latency/web is ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(status(&groups, "wide").contains("OBJECTIVE OF"));
    let json: serde_json::Value = serde_json::from_str(&status(&groups, "json")).expect("JSON");
    let latency = &json["latency"];
    assert!(latency["level"].as_u64() >= Some(1), "{json}");
    assert_eq!(latency["pods"][0]["pod"], "qos-latency/web");
    assert_eq!(latency["pods"][0]["objective_ms"], 20);

    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    assert_eq!(quota(&groups), found);
    assert!(!status(&groups, "text").contains("latency: "));
    is_over.store(true, Ordering::Relaxed);
}

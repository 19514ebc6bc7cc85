//! The metrics of the agent, from a socket.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{Groups, OFFLINE, signal};
use crate::harness::{as_str, eventually, families, get, line_with, lines};

const PAGE: &str = include_str!("../../../../../docs/metrics.md");

/// Starts the agent, and returns the address of its metrics.
fn start(groups: &Groups, pods: &[&str]) -> (Child, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["qos", "run"]).args(pods);
    command.args(["--state", as_str(&groups.state())]);
    command.args(["--metrics", "127.0.0.1:0"]);
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut agent = command.spawn().expect("started");
    let log = lines(agent.stderr.take().expect("piped"));
    let line = line_with(&log, "metrics at http://");
    let (_, at) = line.split_once("http://").expect("a URL");
    let at = at.trim_end_matches("/metrics").parse();
    (agent, at.expect("an address"))
}

#[test]
fn the_agent_says_what_it_has_changed_and_was_refused() {
    let Some(groups) = Groups::new("metrics", &["web", "batch"]) else {
        return;
    };
    let weight = groups.weight();
    groups.manifest("web", "heddle.dev/class: online");
    groups.manifest("batch", OFFLINE);
    let (mut agent, at) = start(&groups, &[as_str(&groups.folder.manifests())]);
    let page = || get(at, "x", "/metrics").1;
    let says = |sample: &str| page().lines().any(|line| line == sample);

    eventually("the offline pod yields", || {
        says("heddle_qos_changes{class=\"offline\",setting=\"cpu-share\"} 1")
    });
    assert_eq!(get(at, "x", "/ready").0, 200);
    assert_eq!(get(at, "x", "/config").0, 404);
    for sample in [
        "heddle_qos_pods{class=\"online\"} 1",
        "heddle_qos_pods{class=\"offline\"} 1",
        "heddle_qos_changes{class=\"offline\",setting=\"memory\"} 1",
        "heddle_qos_writes_total 2",
        "heddle_qos_refusals_total{reason=\"foreign\"} 0",
        "heddle_qos_refusals_total{reason=\"failed\"} 0",
        "heddle_qos_turbo_granted_cores 0.0",
        "heddle_ready 1",
    ] {
        assert!(says(sample), "{sample}: {}", page());
    }
    for (name, kind) in families(&page()) {
        let row = format!("| `{name}` | {kind} |");
        assert!(PAGE.contains(&row), "{row} is not on the page");
    }

    fs::write(groups.file("batch", "cpu.idle"), "0").expect("written");
    fs::write(groups.file("batch", weight), "300").expect("written");
    eventually("another program's value is counted", || {
        says("heddle_qos_refusals_total{reason=\"foreign\"} 1")
    });
    assert!(!page().contains("setting=\"cpu-share\""), "{}", page());

    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    assert_eq!(groups.read("batch", weight), "300");
}

#[test]
fn a_kubelet_that_does_not_answer_is_counted_and_the_agent_is_not_ready() {
    let Some(groups) = Groups::new("silent", &[]) else {
        return;
    };
    let (mut agent, at) = start(&groups, &["--kubelet", "http://127.0.0.1:9"]);
    let page = || get(at, "x", "/metrics").1;
    eventually("it has asked", || {
        page().contains("\nheddle_qos_kubelet_answers_total{result=\"failed\"} 1\n")
    });
    let of_ok = "\nheddle_qos_kubelet_answers_total{result=\"ok\"} 0\n";
    assert!(page().contains(of_ok), "{}", page());
    assert_eq!(get(at, "x", "/ready").0, 503);
    assert!(page().contains("\nheddle_ready 0\n"), "{}", page());
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
}

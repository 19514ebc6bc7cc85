//! The agent within `heddle node`.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use heddle_skips::skipped;
use rustix::process::{Pid, Signal, kill_process};

use super::{Groups, OFFLINE};
use crate::harness::{Folder, Heddle, as_str, eventually, heddle, pid_at_end, text};
use crate::nodes::token;

/// The settings of a node whose agent has the pods of these groups.
fn settings(groups: &Groups, more: &str) -> PathBuf {
    let file = groups.folder.path("node.yaml");
    let (folder, state) = (groups.folder.manifests(), groups.state());
    let text = format!(
        "qos: {{enabled: true, folder: {}, state: {}}}\n{more}",
        folder.display(),
        state.display()
    );
    fs::write(&file, text).expect("written");
    file
}

/// A manifest of the pod on this node.
fn manifest(groups: &Groups, pod: &str, node: &str) {
    groups.manifest(pod, OFFLINE);
    let path = format!("{pod}.yaml");
    let text = fs::read_to_string(groups.folder.manifests().join(&path)).expect("read");
    let placed = text.replace(
        "spec: {",
        &format!("spec: {{nodeName: {node}, address: 127.9.9.1, "),
    );
    groups.folder.write(&path, &placed);
}

fn start(mesh: &Folder, control: SocketAddr, config: &str, more: &[&str]) -> Heddle {
    let token = token(mesh, "n1");
    let fixed = ["--token-file", as_str(&token), "--config", config];
    Heddle::node(mesh, "n1", control, &[&fixed, more].concat())
}

fn agent_of(node: &Heddle) -> Pid {
    pid_at_end(&node.stderr_line("the agent of node QoS is started, process"))
}

fn is_gone(agent: Pid) -> bool {
    !PathBuf::from(format!("/proc/{}", agent.as_raw_nonzero())).exists()
}

fn status(mesh: &Folder) -> String {
    let socket = mesh.path("n1.sock");
    text(&heddle(&["status", "--socket", as_str(&socket)]).stdout)
}

#[test]
fn a_node_runs_the_agent_starts_it_again_and_stops_it() {
    let Some(groups) = Groups::new("node", &["batch", "other"]) else {
        return;
    };
    let is_idle = |pod: &str| groups.read(pod, "cpu.idle") == "1";
    manifest(&groups, "batch", "n1");
    manifest(&groups, "other", "n2");
    let mesh = Folder::new();
    let (_control, at) = Heddle::control(&mesh, &[]);
    let config = settings(&groups, "");
    let node = start(&mesh, at, as_str(&config), &[]);
    let agent = agent_of(&node);
    eventually("the batch pod yields", || is_idle("batch"));
    assert!(!is_idle("other"), "the pod of another node");
    assert_eq!(groups.ask("status").0, Some(0));
    let said = status(&mesh);
    assert!(said.contains("node QoS: an agent runs, "), "{said}");

    // A killed agent puts nothing back; the next one goes on.
    kill_process(agent, Signal::KILL).expect("killed");
    node.stderr_line("the mesh goes on, and the agent is started again in 1 s");
    let next = agent_of(&node);
    assert_ne!(next, agent);
    eventually("an agent runs", || groups.ask("status").0 == Some(0));
    eventually("the batch pod yields again", || is_idle("batch"));

    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    // No wait: the node waits for its agent.
    assert!(is_gone(next) && !is_idle("batch"));
    let (_, said) = groups.ask("restore");
    assert!(said.starts_with("nothing is changed"), "{said}");
}

/// The children of a process: their names and IDs.
fn children(of: u32) -> Vec<(String, Pid)> {
    let task = format!("/proc/{of}/task/{of}/children");
    let ids = fs::read_to_string(task).unwrap_or_default();
    let ids = ids
        .split_whitespace()
        .filter_map(|id| Pid::from_raw(id.parse().ok()?));
    let named = ids.map(|id| {
        let name = fs::read_to_string(format!("/proc/{}/comm", id.as_raw_nonzero()));
        (name.unwrap_or_default().trim_end().to_owned(), id)
    });
    named.collect()
}

fn child(of: u32, name: &str) -> Option<Pid> {
    let found = children(of).into_iter().find(|(known, _)| known == name);
    found.map(|(_, id)| id)
}

/// The capabilities that a process can use, as a number.
fn capabilities(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("read");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(line.expect("a line").trim(), 16).expect("a number")
}

#[test]
fn a_holder_runs_the_agent_beside_proxies_that_come_and_go() {
    let Some(groups) = Groups::new("holder", &["batch"]) else {
        return;
    };
    if let Err(error) = Command::new("nft").arg("--version").output() {
        skipped(&format!("nft: {error}"));
        return;
    }
    manifest(&groups, "batch", "n1");
    let mesh = Folder::new();
    let (_control, at) = Heddle::control(&mesh, &[]);
    let config = settings(&groups, "");
    let socket = mesh.path("holder.sock");
    let interception = [
        "--intercept",
        "--hooks",
        "nft",
        "--mesh-range",
        "10.99.0.0/16",
    ];
    let more = [&interception[..], &["--holder-socket", as_str(&socket)]].concat();
    let node = start(&mesh, at, as_str(&config), &more);
    let agent = agent_of(&node);
    eventually("the batch pod yields", || {
        groups.read("batch", "cpu.idle") == "1"
    });
    assert_eq!(child(node.pid(), "heddle-qos"), Some(agent));
    let ptrace = 1 << 19;
    assert_eq!(capabilities(node.pid()) & ptrace, 0);
    assert_eq!(
        capabilities(agent.as_raw_nonzero().get().unsigned_abs()) & ptrace,
        ptrace
    );

    let proxy = child(node.pid(), "heddle-proxy").expect("a proxy");
    kill_process(proxy, Signal::KILL).expect("killed");
    node.stderr_line("the proxy died");
    let is_new = |new: Option<Pid>| new.is_some_and(|new| new != proxy);
    eventually("there is another proxy", || {
        is_new(child(node.pid(), "heddle-proxy"))
    });
    assert_eq!(child(node.pid(), "heddle-qos"), Some(agent));
    assert_eq!(groups.read("batch", "cpu.idle"), "1");

    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    assert!(is_gone(agent) && groups.read("batch", "cpu.idle") == "0");
}

#[test]
fn an_agent_ends_with_a_node_that_is_killed() {
    let Some(groups) = Groups::new("orphan", &["batch"]) else {
        return;
    };
    manifest(&groups, "batch", "n1");
    let mesh = Folder::new();
    let (_control, at) = Heddle::control(&mesh, &[]);
    let config = settings(&groups, "");
    let node = start(&mesh, at, as_str(&config), &[]);
    let agent = agent_of(&node);
    eventually("the batch pod yields", || {
        groups.read("batch", "cpu.idle") == "1"
    });
    node.signal(Signal::KILL);
    node.ended();
    eventually("everything is put back", || {
        is_gone(agent) && groups.read("batch", "cpu.idle") == "0"
    });
    let (_, said) = groups.ask("restore");
    assert!(said.starts_with("nothing is changed"), "{said}");
}

#[test]
fn the_mesh_goes_on_where_the_agent_cannot_run() {
    let folder = Folder::new();
    let mesh = Folder::new();
    let (_control, at) = Heddle::control(&mesh, &[]);
    let config = folder.path("node.yaml");
    // Its folder of manifests is not there.
    let text = format!(
        "qos: {{folder: {}, state: {}}}\n",
        folder.path("none").display(),
        folder.path("qos").display()
    );
    fs::write(&config, text).expect("written");
    let node = start(&mesh, at, as_str(&config), &["--qos"]);
    agent_of(&node);
    node.stderr_line("the mesh goes on, and the agent is started again in 1 s");
    agent_of(&node);
    node.stderr_line("the mesh goes on, and the agent is started again in 2 s");
    let said = status(&mesh);
    assert!(said.contains("node QoS: no agent runs"), "{said}");
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
}

#[test]
fn what_the_agent_of_a_node_lacks_is_said_at_the_start() {
    let folder = Folder::new();
    let config = folder.path("s.yaml");
    let node = [
        "node",
        "--name",
        "n1",
        "--control",
        "127.0.0.1:1",
        "--listen",
        "127.0.0.1:0",
    ];
    for (text, expected) in [
        (
            "qos: {enabled: true}\n",
            "qos.enabled: nothing says which pods there are",
        ),
        (
            "qos: {enabled: true, folder: /x, metrics: \"127.0.0.1:15020\"}\n",
            "qos.metrics: metrics of the agent at 127.0.0.1:15020 and of the node at 127.0.0.1:15020",
        ),
    ] {
        fs::write(&config, text).expect("written");
        let output = heddle(&[&node[..], &["--config", as_str(&config)]].concat());
        let said = crate::harness::text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

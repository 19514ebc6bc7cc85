//! The agent within `heddle node`.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    assert_eq!(groups.ask("restore").1, "nothing is changed\n");
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
    assert_eq!(groups.ask("restore").1, "nothing is changed\n");
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

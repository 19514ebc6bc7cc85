//! `heddle-node` behaves like `heddle node`, under its own name.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// No control plane answers there: port 1 is privileged, and no service has it (tcpmux).
const NO_CONTROL: &str = "127.0.0.1:1";

fn program(dir: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heddle-node"))
        .args(flags)
        .current_dir(dir)
        .env("XDG_RUNTIME_DIR", dir)
        .env("XDG_STATE_HOME", dir)
        .output()
        .expect("it runs")
}

fn node(dir: &Path, more: &[&str]) -> Output {
    let flags = ["--name", "edge-1", "--control", NO_CONTROL, "--listen"];
    let flags = [&flags[..], &["127.0.0.1:0", "--metrics", "none"]].concat();
    program(dir, &[&flags, &["--state", "state"][..], more].concat())
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("a mode");
    dir
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn it_calls_itself_by_its_own_name() {
    let dir = folder();
    let version = program(dir.path(), &["--version"]);
    assert_eq!(
        said(&version),
        format!("heddle-node {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = program(dir.path(), &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = said(&help);
    for part in [
        "Serve as a node of a mesh",
        "Usage: heddle-node [OPTIONS]",
        "  heddle-node --name edge-1 --control 192.0.2.1:15012",
        "--pods-cgroup <FOLDER>",
        "  5  another heddle has the admin socket or the state folder",
    ] {
        assert!(help.contains(part), "{part}\n{help}");
    }
}

#[test]
fn it_ends_with_the_codes_of_heddle_node() {
    let dir = folder();
    let wrong = program(dir.path(), &["--name", "edge-1"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));

    fs::write(dir.path().join("s.yaml"), "mesh: {mode: strict}\n").expect("written");
    let refused = node(dir.path(), &["--config", "s.yaml"]);
    assert_eq!(refused.status.code(), Some(3), "{}", said(&refused));
    assert!(
        said(&refused).starts_with("heddle-node: s.yaml:1: mesh.mode: "),
        "{}",
        said(&refused)
    );

    let unknown = node(dir.path(), &[]);
    assert_eq!(unknown.status.code(), Some(1), "{}", said(&unknown));
    assert!(
        said(&unknown).contains("node edge-1 needs a token, it has not joined yet"),
        "{}",
        said(&unknown)
    );
    assert!(
        dir.path().join("state/lock").exists(),
        "it was a node's state folder"
    );
}

#[test]
fn it_has_no_agent_of_node_qos() {
    let dir = folder();
    let settings = "qos: {enabled: true, folder: /x}\n";
    fs::write(dir.path().join("s.yaml"), settings).expect("written");
    let refused = node(dir.path(), &["--config", "s.yaml"]);
    assert_eq!(refused.status.code(), Some(3));
    let said = said(&refused);
    assert!(
        said.contains("no agent of node QoS: run heddle node instead"),
        "{said}"
    );
}

//! The crates that the program of a node is built from, and those that it must not contain.

use std::collections::BTreeSet;
use std::process::Command;

/// Crates that a node does not need: with them it would be larger, and more could fail.
const NEVER: [(&str, &str); 11] = [
    ("heddle", "the commands of operators"),
    ("heddle-compile", "the reader of manifests"),
    ("heddle-control", "what nodes are served"),
    ("heddle-authority", "what signs certificates"),
    ("heddle-registry", "the registry of providers"),
    ("etcd-client", "the registry's client"),
    ("axum", "a router of a server"),
    ("notify", "a watcher of folders"),
    ("kube", "a client of Kubernetes"),
    ("ring", "a second library of cryptography"),
    (
        "regex",
        "no text is matched by patterns that are given at run time",
    ),
];

#[test]
fn a_node_is_built_without_what_it_has_no_use_for() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline"])
        .args(["--package", "heddle-node-program"])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{said}");
    let tree = String::from_utf8(tree.stdout).expect("text");
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let crates: BTreeSet<String> = tree.lines().map(name).collect();
    assert!(crates.contains("heddle-proxy"), "{tree}");
    for (one, is) in NEVER {
        assert!(!crates.contains(one), "{one} is in it: {is}");
    }
}

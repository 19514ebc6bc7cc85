//! The I/O weight of offline pods, in `heddle qos run` and `status`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::{Groups, OFFLINE, signal};
use crate::harness::{eventually, heddle};

/// The hierarchy of disks of version 1.
const BLKIO: &str = "/sys/fs/cgroup/blkio";
/// The files of weights, with version 1 or 2.
const WEIGHTS: [&str; 4] = [
    "blkio.bfq.weight",
    "io.bfq.weight",
    "blkio.weight",
    "io.weight",
];

/// Gives the pod a group with weights, and returns the file of one, if the kernel has any.
fn weight(groups: &mut Groups, pod: &str) -> Option<PathBuf> {
    if Path::new(BLKIO).is_dir() {
        groups.roots.push(PathBuf::from(BLKIO));
    }
    let root = groups.roots.last().expect("a hierarchy").join(&groups.name);
    fs::create_dir_all(root.join(pod)).expect("made");
    let controllers = root.join("cgroup.subtree_control");
    if controllers.exists() {
        let _without = fs::write(controllers, "+io");
    }
    let files = WEIGHTS.map(|file| root.join(pod).join(file));
    files.into_iter().find(|file| file.exists())
}

fn json(groups: &Groups) -> serde_json::Value {
    let state = groups.state();
    let state = state.to_str().expect("a path");
    let output = heddle(&["qos", "status", "--state", state, "--output", "json"]);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn what_a_group_lacks_is_shown_and_its_weight_is_put_back() {
    let Some(mut groups) = Groups::new("disks", &["batch"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    let mut agent = groups.start(&[]);
    // The pod is in the hierarchy of the processors, not in that of disks; or in one of version 2 without its files.
    eventually("it says that it has no weight", || {
        groups
            .ask("status")
            .1
            .contains("not done: qos.io: qos/batch has no I/O weight")
    });
    assert_eq!(json(&groups)["not_done"][0]["setting"], "qos.io");
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    let (_, said) = groups.ask("status");
    assert!(!said.contains("not done"), "{said}");

    let Some(file) = weight(&mut groups, "batch") else {
        return heddle_skips::skipped("this kernel has no weights of disks");
    };
    let value = || fs::read_to_string(&file).expect("read");
    let found = value();
    let mut agent = groups.start(&[]);
    eventually("it yields the disk", || {
        groups.ask("status").1.contains("yields the disk")
    });
    assert_ne!(value(), found);
    signal(&agent, Signal::KILL);
    agent.wait().expect("ended");
    assert_eq!(groups.ask("restore").0, Some(0));
    assert_eq!(value(), found);
}

//! The I/O weight of offline pods, in `heddle qos run` and `status`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::{Groups, OFFLINE, signal};
use crate::harness::{eventually, heddle};

/// The hierarchy of disks of version 1.
const BLKIO: &str = "/sys/fs/cgroup/blkio";
/// Its file, where the kernel has bfq.
const WEIGHT: &str = "blkio.bfq.weight";

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
    if !Path::new(BLKIO).is_dir() {
        return heddle_skips::skipped("no hierarchy of disks alone");
    }
    groups.manifest("batch", OFFLINE);
    let mut agent = groups.start(&[]);
    // The pod is in the hierarchy of the processors, not in that of disks.
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

    groups.roots.push(PathBuf::from(BLKIO));
    let group = Path::new(BLKIO).join(&groups.name).join("batch");
    fs::create_dir_all(&group).expect("made");
    let Ok(found) = fs::read_to_string(group.join(WEIGHT)) else {
        return heddle_skips::skipped("no bfq in this kernel");
    };
    let mut agent = groups.start(&[]);
    eventually("its weight is the least", || {
        groups.ask("status").1.contains("bfq-weight")
    });
    let weight = || fs::read_to_string(group.join(WEIGHT)).expect("read");
    assert_eq!(weight(), "1\n");
    signal(&agent, Signal::KILL);
    agent.wait().expect("ended");
    assert_eq!(groups.ask("restore").0, Some(0));
    assert_eq!(weight(), found);
}

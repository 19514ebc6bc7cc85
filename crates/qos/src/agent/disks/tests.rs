//! Weights of disks, on control groups of this machine.

use std::fs;

use heddle_model::Qos;
use heddle_skips::skipped;

use super::super::Settings;
use super::super::tests::{Tree, agent, at, everything, offline, remove};
use super::WEIGHTS;
use crate::cgroup::{Groups, Knob, Value};

fn settings() -> Settings {
    Settings {
        preemption: false,
        burst: false,
        memory: false,
        io: true,
        ..everything()
    }
}

/// The weights that groups have here; none, reported, without any.
fn weights(tree: &Tree, path: &str) -> Vec<Knob> {
    let group = tree.group(path);
    let has = |knob: &Knob| tree.system.read(&group, *knob).is_ok();
    let weights: Vec<Knob> = WEIGHTS.into_iter().filter(has).collect();
    if weights.is_empty() {
        skipped("no weights of disks here");
    }
    weights
}

#[test]
fn offline_pods_have_the_least_weight_and_online_pods_their_own() {
    let Some(mut tree) = Tree::new("disks", &["web", "batch/container"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(settings(), folder.path());
    let pods = vec![
        tree.pod("web", Qos::default()),
        tree.pod("batch", offline()),
    ];
    for knob in weights(&tree, "batch") {
        tree.set("batch", knob, Value::Amount(70));
        tree.set("web", knob, Value::Amount(80));
        let least = tree.system.least_weight(knob);
        agent.set_pods(pods.clone());
        agent.tick(at(0));
        assert_eq!(tree.value("batch", knob), least);
        assert_eq!(tree.value("web", knob), Value::Amount(80));
        // A group of a container is below, and keeps its own.
        assert_ne!(tree.value("batch/container", knob), least);

        // At rest nothing is written: the journal keeps its length.
        let length = || {
            fs::metadata(folder.path().join("journal"))
                .expect("a journal")
                .len()
        };
        let before = length();
        for second in 1..5 {
            agent.tick(at(second));
        }
        assert_eq!(length(), before);

        // Another program's weight stays for a minute, and counts as the one that was found.
        tree.set("batch", knob, Value::Amount(60));
        for second in [5, 6, 64] {
            agent.tick(at(second));
            assert_eq!(tree.value("batch", knob), Value::Amount(60));
        }
        agent.tick(at(66));
        assert_eq!(tree.value("batch", knob), least);
        // A pod that is no longer there gets back what it had.
        agent.set_pods(Vec::new());
        agent.tick(at(67));
        assert_eq!(tree.value("batch", knob), Value::Amount(60));
        agent.set_pods(pods.clone());
        agent.tick(at(68));
        assert_eq!(tree.value("batch", knob), least);
        assert!(agent.restore());
        assert_eq!(tree.value("batch", knob), Value::Amount(60));
        assert!(agent.held().is_empty());
    }
}

#[test]
fn a_group_that_is_made_anew_gets_the_least_weight_at_once() {
    let Some(tree) = Tree::new("disks-anew", &["batch"]) else {
        return;
    };
    let weights = weights(&tree, "batch");
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(settings(), folder.path());
    agent.set_pods(vec![tree.pod("batch", offline())]);
    agent.tick(at(0));
    for root in &tree.roots {
        remove(&root.join("batch"));
    }
    agent.tick(at(1));
    for root in &tree.roots {
        // One hierarchy may have all controllers.
        fs::create_dir_all(root.join("batch")).expect("made");
    }
    agent.tick(at(2));
    for knob in weights {
        assert_eq!(tree.value("batch", knob), tree.system.least_weight(knob));
    }
    assert!(agent.restore());
}

/// Takes the weights of `batch` away, or gives them back, and returns whether there is a way to: with version 1 a group may
/// be in the hierarchy of the processors only, with version 2 the group above may give up the controller.
fn turn(tree: &Tree, are_there: bool) -> bool {
    let mut is_done = false;
    for root in &tree.roots {
        let controllers = root.join("cgroup.subtree_control");
        if root.starts_with("/sys/fs/cgroup/blkio") {
            match are_there {
                true => fs::create_dir_all(root.join("batch")).expect("made"),
                false => remove(&root.join("batch")),
            }
            is_done = true;
        } else if controllers.exists() {
            let change = if are_there { "+io" } else { "-io" };
            is_done |= fs::write(controllers, change).is_ok();
        }
    }
    is_done
}

#[test]
fn a_group_without_weights_is_left_alone_and_told() {
    let Some(tree) = Tree::new("disks-none", &["batch"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(settings(), folder.path());
    agent.set_pods(vec![tree.pod("batch", offline())]);
    if !turn(&tree, false) {
        return skipped("no controller of disks");
    }
    agent.tick(at(0));
    assert!(agent.held().is_empty());
    assert!(agent.left_alone.is_empty());
    let lack = agent.io_lack().expect("it is told");
    assert!(lack.starts_with("test/batch has no I/O weight: "), "{lack}");
    // Later it may have one.
    turn(&tree, true);
    agent.tick(at(61));
    for knob in weights(&tree, "batch") {
        assert_eq!(tree.value("batch", knob), tree.system.least_weight(knob));
    }
    assert!(agent.restore());
}

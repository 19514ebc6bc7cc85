use std::collections::BTreeSet;

use heddle_model::ControlGroup;
use proptest::prelude::*;

use super::Tree;
use crate::kubelet::{PodQos, Uid};

/// Folders of a tree, as `find -type d` prints them.
struct Folders(BTreeSet<String>);

impl Folders {
    fn of(text: &str) -> Self {
        let paths = text.lines().filter(|line| !line.starts_with('#'));
        Folders(paths.map(str::to_owned).collect())
    }

    fn below(&self, group: &ControlGroup) -> Vec<ControlGroup> {
        let start = format!("{group}/");
        let all = self.0.iter();
        let below = all.filter(|path| {
            path.strip_prefix(&start)
                .is_some_and(|rest| !rest.contains('/'))
        });
        below
            .filter_map(|path| ControlGroup::new(path).ok())
            .collect()
    }
}

fn looked(root: &str, folders: &Folders) -> Tree {
    let mut tree = Tree::new(root).expect(root);
    tree.look(|group| folders.below(group));
    tree
}

fn uid(text: &str) -> Uid {
    Uid::new(text).expect(text)
}

#[test]
fn pods_are_found_in_a_recorded_tree_of_cgroupfs() {
    let folders = Folders::of(include_str!("cgroupfs.txt"));
    let tree = looked("/heddle-kubelet", &folders);
    let found: Vec<&str> = tree.uids().map(Uid::as_str).collect();
    let wanted = [
        "09a3a186-3b6d-4507-bd18-8140fa1cc071",
        "581b83b2-e895-4c17-abd7-46c4ad9c4a25",
        "599f05e04f4f8ca9b7bd14b4e9cd73cc",
        "adc7e991-8c28-495c-a93a-52a624910ca1",
        "b5223073-faae-4728-918f-e7dde6338e15",
    ];
    assert_eq!(found, wanted);
    // A static pod, whose UID is a hash.
    let place = tree.group(&uid(wanted[2]), None).expect("found");
    assert_eq!(place.qos, PodQos::BestEffort);
    let path = format!("heddle-kubelet/kubepods/besteffort/pod{}", wanted[2]);
    assert_eq!(place.group.as_str(), path);
    // A pod that has no group yet will have one there.
    let later = tree.group(&uid("new"), Some(PodQos::Guaranteed));
    let later = later.expect("a place").group;
    assert_eq!(later.as_str(), "heddle-kubelet/kubepods/podnew");
    assert_eq!(tree.group(&uid("new"), None), None);
    // Nothing of it is found elsewhere.
    assert_eq!(looked("/", &folders).uids().count(), 0);
}

#[test]
fn pods_are_found_in_a_tree_of_systemd() {
    let folders = Folders::of(include_str!("systemd.txt"));
    let tree = looked("/", &folders);
    let classes: Vec<(&str, PodQos)> = tree
        .uids()
        .map(|uid| (uid.as_str(), tree.group(uid, None).expect("found").qos))
        .collect();
    let wanted = [
        ("4c1a7e4f-6f0a-4f35-b0c8-6a1d54f6a7aa", PodQos::BestEffort),
        ("5f9d4bb8-1a0e-4bd5-a3b5-2f4e8c1d9e10", PodQos::Guaranteed),
        ("7a64aa16b0b9dba7ba5a3d10b4d2c1f0", PodQos::Burstable),
    ];
    assert_eq!(classes, wanted);
    let later = tree.group(&uid("a-b"), Some(PodQos::BestEffort));
    let path = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice";
    assert_eq!(later.expect("a place").group.as_str(), path);
}

#[test]
fn pods_of_an_earlier_driver_are_found_too() {
    let text = "kubepods/podold\nkubepods.slice/kubepods-podnew.slice\n";
    let tree = looked("/", &Folders::of(text));
    let found: Vec<&str> = tree.uids().map(Uid::as_str).collect();
    assert_eq!(found, ["new", "old"]);
}

proptest! {
    #[test]
    fn any_folders_are_taken(
        names in prop::collection::vec(
            "(kubepods(\\.slice)?/)?(burstable/)?(kubepods-)?(pod)?[a-z_-]{0,3}(\\.slice)?", 0..40),
    ) {
        let tree = looked("/", &Folders(names.into_iter().collect()));
        for uid in tree.uids() {
            prop_assert!(tree.group(uid, None).is_some());
        }
    }
}

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use heddle_model::{Class, ControlGroup};
use proptest::prelude::*;

use super::Follower;
use crate::kubelet::{Answer, Tree, pods_of};

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// A node: its folders, and what its kubelet would say.
#[derive(Default)]
struct Node {
    /// UIDs of pods whose groups are there.
    groups: RefCell<BTreeSet<String>>,
    /// UID, name, whether it is offline, whether it is resized.
    pods: RefCell<Vec<(String, String, bool, bool)>>,
}

impl Node {
    fn below(&self, group: &ControlGroup) -> Vec<ControlGroup> {
        let name = |uid: &String| group.child(&format!("pod{uid}")).expect("a name");
        match group.as_str() {
            "kubepods" => self.groups.borrow().iter().map(name).collect(),
            _ => Vec::new(),
        }
    }

    fn answer(&self) -> Answer {
        let pods = self.pods.borrow();
        let items = pods.iter().map(|(uid, name, is_offline, is_resizing)| {
            let class = if *is_offline { "offline" } else { "online" };
            let status = if *is_resizing { "True" } else { "False" };
            format!(
                r#"{{"metadata":{{"uid":"{uid}","namespace":"site","name":"{name}","labels":{{"heddle.dev/class":"{class}"}}}},"status":{{"qosClass":"Guaranteed","conditions":[{{"type":"PodResizeInProgress","status":"{status}"}}]}}}}"#
            )
        });
        let items: Vec<String> = items.collect();
        let json = format!(r#"{{"kind":"PodList","items":[{}]}}"#, items.join(","));
        pods_of(json.as_bytes()).expect(&json)
    }

    fn starts(&self, uid: &str, name: &str, is_offline: bool) {
        self.groups.borrow_mut().insert(uid.to_owned());
        let pod = (uid.to_owned(), name.to_owned(), is_offline, false);
        self.pods.borrow_mut().push(pod);
    }
}

fn follower() -> Follower {
    Follower::new(Tree::new("/").expect("a tree"), at(10))
}

/// A second of the follower's owner, with a kubelet that answers. Returns whether it was asked.
fn second(follower: &mut Follower, node: &Node, now: Duration) -> bool {
    follower.look(|group| node.below(group));
    let is_due = follower.is_due(now);
    if is_due {
        follower.asks(now);
        follower.answered(now, node.answer());
    }
    is_due
}

#[test]
fn a_new_pod_is_found_within_a_second_and_a_leftover_group_is_asked_about_once() {
    let node = Node::default();
    let mut follower = follower();
    node.starts("1", "web", false);
    assert!(second(&mut follower, &node, at(0)));
    assert!((1..10).all(|now| !second(&mut follower, &node, at(now))));
    assert!(second(&mut follower, &node, at(10)));

    node.starts("2", "batch", true);
    assert!(second(&mut follower, &node, at(12)));
    let pods = follower.pods(at(12));
    let (names, classes): (Vec<&str>, Vec<Class>) = pods
        .iter()
        .map(|pod| (pod.name.as_str(), pod.qos.class))
        .unzip();
    assert_eq!(names, ["site/batch", "site/web"]);
    assert_eq!(classes, [Class::Offline, Class::Online]);
    assert_eq!(pods[0].group.as_str(), "kubepods/pod2");

    node.groups.borrow_mut().insert("leftover".to_owned());
    assert!(second(&mut follower, &node, at(13)));
    assert!(!second(&mut follower, &node, at(14)));
    assert_eq!(follower.pods(at(14)).len(), 2);
}

#[test]
fn a_pod_that_is_resized_is_asked_about_every_second() {
    let node = Node::default();
    let mut follower = follower();
    node.starts("1", "batch", true);
    second(&mut follower, &node, at(0));
    node.pods.borrow_mut()[0].3 = true;
    assert!((1..10).all(|now| !second(&mut follower, &node, at(now))));
    assert!(second(&mut follower, &node, at(10)));
    assert!(follower.pods(at(10))[0].is_resizing);
    assert!(second(&mut follower, &node, at(11)));
    node.pods.borrow_mut()[0].3 = false;
    assert!(second(&mut follower, &node, at(12)));
    assert!(!follower.pods(at(12))[0].is_resizing);
    assert!(!second(&mut follower, &node, at(13)));
}

#[test]
fn pods_stay_while_the_kubelet_is_away() {
    let node = Node::default();
    let mut follower = follower();
    node.starts("1", "batch", true);
    second(&mut follower, &node, at(0));
    for now in [10, 15, 20] {
        assert!(follower.is_due(at(now)));
        follower.asks(at(now));
        assert_eq!(follower.is_missing(), now == 10, "said once");
        assert!(!follower.is_due(at(now + 4)));
        assert_eq!(follower.pods(at(now)).len(), 1);
    }
    // Not more often either when a group appears meanwhile.
    node.groups.borrow_mut().insert("2".to_owned());
    follower.look(|group| node.below(group));
    assert!(!follower.is_due(at(24)) && follower.is_due(at(25)));
    follower.asks(at(25));
    assert!(follower.answered(at(25), node.answer()), "it was away");
}

#[test]
fn a_pod_and_its_successor_have_different_names() {
    let node = Node::default();
    let mut follower = follower();
    node.starts("2", "db-0", false);
    node.starts("1", "db-0", false);
    second(&mut follower, &node, at(0));
    let pods = follower.pods(at(0));
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["site/db-0", "site/db-0 (2)"]);
}

proptest! {
    /// Whatever comes and goes: the kubelet is asked at most once a second, and each pod that it lists is found within two.
    #[test]
    fn the_kubelet_is_asked_in_time_and_not_too_often(
        events in prop::collection::vec((0u8..6, 0u64..4), 1..60),
    ) {
        let node = Node::default();
        let mut follower = follower();
        let mut now = 0;
        for (event, wait) in events {
            let uid = format!("{event}");
            let is_there = node.groups.borrow().contains(&uid);
            match is_there {
                true => {
                    node.groups.borrow_mut().remove(&uid);
                    node.pods.borrow_mut().retain(|pod| pod.0 != uid);
                }
                // A group that is left over, or a pod.
                false if event == 0 => {
                    node.groups.borrow_mut().insert(uid);
                }
                false => node.starts(&uid, &format!("pod-{uid}"), event % 2 == 0),
            }
            for _ in 0..=wait {
                now += 1;
                second(&mut follower, &node, at(now));
            }
            prop_assert!(!follower.is_due(at(now)), "asked in this second already, or nothing to ask");
            let pods = node.pods.borrow();
            let listed = pods.iter().filter(|pod| node.groups.borrow().contains(&pod.0)).count();
            let found = follower.pods(at(now));
            let found = found.iter().filter(|pod| pods.iter().any(|one| pod.name.ends_with(&one.1)));
            prop_assert_eq!(found.count(), listed);
        }
    }
}

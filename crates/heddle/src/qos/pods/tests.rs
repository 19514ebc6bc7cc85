use heddle_model::{ControlGroup, Qos};
use heddle_qos::agent::Pod;

use super::Pods;

fn pod(name: &str, group: &str, is_of_kubelet: bool) -> Pod {
    Pod {
        name: name.to_owned(),
        group: ControlGroup::new(group).expect("a group"),
        qos: Qos::default(),
        is_resizing: false,
        is_of_kubelet,
    }
}

/// Names of all pods, and whether each is the kubelet's.
fn all(pods: &Pods) -> Vec<(String, bool)> {
    let all = pods.all().into_iter();
    all.map(|pod| (pod.name, pod.is_of_kubelet)).collect()
}

fn of_folder() -> Vec<Pod> {
    vec![
        pod("site/own", "system.slice/own.service", false),
        pod("site/named", "elsewhere", false),
        pod("site/inside", "kubepods/pod1/container", false),
    ]
}

fn named(are: [(&str, bool); 3]) -> Vec<(String, bool)> {
    are.map(|(name, is)| (name.to_owned(), is)).to_vec()
}

#[test]
fn each_pod_is_the_kubelets_until_the_kubelet_has_said_which_are() {
    let mut pods = Pods::new(of_folder(), true);
    let nothing_known = [
        ("site/own", true),
        ("site/named", true),
        ("site/inside", true),
    ];
    assert_eq!(all(&pods), named(nothing_known));
    assert!(!pods.are_known());
    // The folder changes before the kubelet answers.
    pods.of_folder = of_folder();
    assert_eq!(all(&pods), named(nothing_known));

    pods.follow_kubelet(vec![
        pod("site/named", "kubepods/pod2", true),
        pod("site/other", "kubepods/pod1", true),
    ]);
    assert!(pods.are_known());
    let known = [
        ("site/own", false),
        ("site/named", true),
        ("site/inside", true),
    ];
    let mut known = named(known);
    known.push(("site/other".to_owned(), true));
    assert_eq!(all(&pods), known);

    pods.follow_kubelet(Vec::new());
    assert!(all(&pods).iter().all(|(_, is_of_kubelet)| !is_of_kubelet));
}

#[test]
fn without_a_kubelet_no_pod_is_one_of_its_own() {
    let pods = Pods::new(of_folder(), false);
    assert!(pods.are_known());
    assert!(all(&pods).iter().all(|(_, is_of_kubelet)| !is_of_kubelet));
}

use std::time::Duration;

use super::{PATIENCE, RESPITE, Resizes};
use crate::kubelet::{Uid, pods_of};

/// Whether a pod with this specification and status is resized.
fn is_resizing(spec: &str, status: &str) -> bool {
    let json = format!(
        r#"{{"kind":"PodList","items":[{{"metadata":{{"uid":"1","namespace":"a","name":"b"}},"spec":{spec},"status":{status}}}]}}"#
    );
    let answer = pods_of(json.as_bytes()).expect(&json);
    answer.pods.first().expect("a pod").is_resizing
}

fn conditions(name: &str, status: &str, reason: &str) -> String {
    format!(
        r#"{{"conditions":[{{"type":"Ready","status":"True"}},{{"type":"{name}","status":"{status}","reason":"{reason}"}}]}}"#
    )
}

#[test]
fn conditions_say_that_a_pod_is_resized() {
    for (name, status, reason, wanted) in [
        ("PodResizeInProgress", "True", "", true),
        ("PodResizeInProgress", "True", "Error", true),
        ("PodResizeInProgress", "False", "", false),
        ("PodResizePending", "True", "", true),
        ("PodResizePending", "True", "Infeasible", false),
        ("PodResizePending", "True", "Deferred", false),
    ] {
        let status = conditions(name, status, reason);
        assert_eq!(is_resizing("{}", &status), wanted, "{status}");
    }
    for (resize, wanted) in [
        ("Proposed", true),
        ("InProgress", true),
        ("Deferred", false),
    ] {
        let status = format!(r#"{{"resize":"{resize}"}}"#);
        assert_eq!(is_resizing("{}", &status), wanted, "{resize}");
    }
}

#[test]
fn a_running_container_with_other_resources_than_it_shall_have_is_resized() {
    let spec = |cpu: &str| {
        format!(
            r#"{{"containers":[{{"name":"a","resources":{{"requests":{{"cpu":"{cpu}","memory":"1Gi"}},"limits":{{"cpu":"1"}}}}}}]}}"#
        )
    };
    let status = |state: &str, resources: &str| {
        format!(
            r#"{{"containerStatuses":[{{"name":"other"}},{{"name":"a","state":{{{state}}},"resources":{resources}}}]}}"#
        )
    };
    let running = r#""running":{"startedAt":"2026-01-01T00:00:00Z"}"#;
    let there = r#"{"requests":{"cpu":"500m","memory":"1073741824","x":"1"},"limits":{"cpu":"1000m","memory":"2Gi"}}"#;
    assert!(!is_resizing(&spec("0.5"), &status(running, there)));
    assert!(is_resizing(&spec("600m"), &status(running, there)));
    assert!(is_resizing(&spec("500m"), &status(running, "{}")));
    // Such resources are given when it starts.
    assert!(!is_resizing(
        &spec("600m"),
        &status(r#""waiting":{}"#, there)
    ));
    // This kubelet does not say what is in force.
    assert!(!is_resizing(&spec("600m"), &status(running, "null")));
}

#[test]
fn a_resize_that_does_not_end_frees_a_pod_for_one_minute_in_eleven() {
    let uid = Uid::new("1").expect("a UID");
    let mut resizes = Resizes::default();
    let at = Duration::from_secs;
    assert!(!resizes.is_any_let_go(at(5)));
    for (second, wanted) in [
        (5, true),
        (64, true),
        (65, false),
        (664, false),
        (665, true),
    ] {
        resizes.follow(at(second), [&uid].into_iter());
        assert_eq!(resizes.is_let_go(&uid, at(second)), wanted, "{second}");
        assert_eq!(resizes.is_any_let_go(at(second)), wanted, "{second}");
    }
    assert_eq!(PATIENCE + RESPITE, at(660));
    // One that ends may begin again at once.
    resizes.follow(at(700), [].into_iter());
    assert!(!resizes.is_let_go(&uid, at(700)));
    resizes.follow(at(720), [&uid].into_iter());
    assert!(resizes.is_let_go(&uid, at(721)));
}

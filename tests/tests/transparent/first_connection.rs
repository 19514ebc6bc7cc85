//! A pod that is enrolled before its node's mesh contains it.

use std::fs;
use std::time::Duration;

use heddle_intercept::request::PodState;

use crate::stage::{Scene, Stage, pause, until};

/// How long a pod's connections are held before they are refused.
const HELD_FOR: Duration = Duration::from_secs(5);

fn scene() -> Scene {
    Scene::default()
        .outsider("late", "one")
        .pod("server", "two")
        .service("server", "{port: 80, appProtocol: http}")
}

/// The manifest that tells the control plane of the pod, and a place for it while the control plane must not see it.
fn manifest(stage: &Stage) -> [std::path::PathBuf; 2] {
    let file = stage.lab().folder().join("manifests/pod-late.yaml");
    [file, stage.folder().join("pod-late.yaml")]
}

/// Removes the pod from the control plane and from the node's mesh.
fn forget(stage: &Stage) {
    let [file, aside] = manifest(stage);
    fs::copy(&file, &aside).expect("copied");
    fs::remove_file(&file).expect("removed");
    let socket = stage.node("one").admin_socket();
    until("the node does not know the pod", || {
        let socket = socket.to_string_lossy();
        let config = stage.heddle(&["config", "dump", "--socket", &socket]);
        config.is_ok_and(|text| !text.contains("late\""))
    });
}

#[test]
fn the_first_connection_waits_until_the_mesh_knows_the_pod() {
    let Some(stage) = scene().up() else { return };
    let _server = stage.answer("server", 80);
    let to = stage.at("server", 80);
    // Given a pod that is enrolled before the control plane has its manifest …
    forget(&stage);
    stage.enroll("late").expect("enrolled");
    std::thread::scope(|scope| {
        let dialled = scope.spawn(|| stage.dial("late", &to));
        // … whose first connection waits …
        pause(Duration::from_millis(1_500));
        assert!(!dialled.is_finished(), "{:?}", dialled.join());
        assert_eq!(stage.state("late"), Some(PodState::Held));
        // … when the control plane gets the manifest, then the connection proceeds normally.
        let [file, aside] = manifest(&stage);
        let hidden = file.with_extension("new");
        fs::copy(aside, &hidden).expect("copied");
        fs::rename(hidden, &file).expect("renamed");
        let outcome = dialled.join().expect("an outcome");
        assert!(outcome.is_good(), "{outcome:?}");
        eprintln!("the first connection waited {:?}", outcome.took);
    });
    let carried = || stage.counters("two").carried("late", "server").exchanges;
    until("it is carried in the pod's name", || carried() > 0);
}

#[test]
fn a_connection_that_has_waited_too_long_is_refused_with_a_reason() {
    let Some(stage) = scene().up() else { return };
    let _server = stage.answer("server", 80);
    let to = stage.at("server", 80);
    // Given a pod whose manifest the control plane does not get …
    forget(&stage);
    let capture = stage.hear_underlay();
    stage.enroll("late").expect("enrolled");
    // … when it dials another pod, then the connection is held for a while and refused …
    let outcome = stage.dial("late", &to);
    assert!(!outcome.is_good(), "{outcome:?}");
    let limit = HELD_FOR + Duration::from_millis(1_500);
    let since_enrolled = HELD_FOR - Duration::from_millis(1_500);
    assert!(
        outcome.took > since_enrolled && outcome.took < limit,
        "{outcome:?}"
    );
    // … with a reason that is logged and counted …
    until("the reason is counted", || {
        let counters = stage.counters("one");
        counters.sum(
            "heddle_tcp_connections_failed_total",
            "reason=\"workload_not_in_mesh\"",
        ) > 0
    });
    assert!(stage.log("one").contains("no workload of this node's mesh"));
    // … and later connections are refused at once. Nothing has left the node in plaintext.
    let again = stage.dial("late", &to);
    assert!(
        !again.is_good() && again.took < Duration::from_secs(1),
        "{again:?}"
    );
    let heard = capture.stop().of(&[stage.address("late")]);
    assert_eq!(heard.packets, 0, "{heard:?}");
}

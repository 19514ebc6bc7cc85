//! Pods are enrolled and released while programs call each other, without any failure.

use std::time::Instant;

use crate::load::{Kind, Load, failures};
use crate::stage::{Scene, until};

/// Number of releases and enrollments.
const TIMES: usize = 100;

/// One port for HTTP requests, one for a byte stream.
const PORTS: &str = "{name: http, port: 80, appProtocol: http}, {name: tcp, port: 7777}";

#[test]
fn a_hundred_times_pods_come_and_go_under_load_and_no_request_fails() {
    let scene = Scene::default()
        .pod("near", "one")
        .pod("far", "two")
        .pod("server", "one")
        .service("server", PORTS)
        .outsider("stranger", "two");
    let Some(stage) = scene.up() else { return };
    // Given clients on two nodes that call a server by its own address, the only one that it has without a mesh: over
    // new connections, over a kept connection, and over one forwarded as bytes; and a client from outside …
    let _server = stage.answer("server", 80);
    let _echo = stage.answer("server", 7777);
    let (web, echo) = (stage.at("server", 80), stage.at("server", 7777));
    let loads = [
        ("near", Kind::Anew, &web),
        ("near", Kind::Kept, &web),
        ("far", Kind::Anew, &web),
        ("far", Kind::Kept, &web),
        ("near", Kind::Talk, &echo),
        ("far", Kind::Talk, &echo),
        ("stranger", Kind::Anew, &web),
        ("stranger", Kind::Kept, &web),
        ("stranger", Kind::Talk, &echo),
    ];
    let loads = loads.map(|(pod, kind, to)| ((pod, kind), Load::start(&stage, pod, kind, to)));
    let began = Instant::now();
    // … when their pods, and the server's, are released and enrolled repeatedly …
    for time in 0..TIMES {
        let pod = ["near", "server", "far"][time % 3];
        stage.release(pod).expect("released");
        stage.enroll(pod).expect("enrolled");
        stage.until_served(pod);
    }
    eprintln!("pods came and went {TIMES} times in {:?}", began.elapsed());
    // … then every request was answered, and every connection stayed open.
    for (who, load) in loads {
        let outcomes = load.stop();
        let failed = failures(&outcomes);
        eprintln!(
            "{who:?}: {} requests, {} failed",
            outcomes.len(),
            failed.len()
        );
        assert!(failed.is_empty(), "{who:?}: {failed:?}");
        assert!(outcomes.len() > TIMES, "{who:?}: {}", outcomes.len());
    }
}

#[test]
fn what_was_open_before_stays_open_and_what_is_new_is_carried() {
    let scene = Scene::default()
        .outsider("client", "one")
        .outsider("server", "two")
        .outsider("stranger", "one")
        .service("server", "{port: 80, appProtocol: http}");
    let Some(stage) = scene.up() else { return };
    // Given two pods that are not enrolled, with a connection between them …
    let _server = stage.answer("server", 80);
    let to = stage.at("server", 80);
    let open = Load::start(&stage, "client", Kind::Talk, &to);
    let exchanges = || stage.counters("one").carried("client", "server").exchanges;
    // … when first one and then the other is enrolled …
    for pod in ["client", "server"] {
        stage.pod(pod).enroll().expect("enrolled");
        let before = open.outcomes().len();
        until("it is used on", || open.outcomes().len() > before + 20);
    }
    // … then new connections go through the mesh …
    let before = exchanges();
    assert!(stage.dial("client", &to).is_good());
    until("it is counted", || exchanges() > before);
    // … and so do those of a client from outside, over a kept connection …
    let outside = Load::start(&stage, "stranger", Kind::Kept, &to);
    // … and after both pods have been released, new connections do not.
    for pod in ["client", "server"] {
        stage.pod(pod).release().expect("released");
    }
    let before = exchanges();
    assert!(stage.dial("client", &to).is_good());
    assert_eq!(exchanges(), before);
    let before = outside.outcomes().len();
    until("it is used on", || outside.outcomes().len() > before + 20);
    // The connections from before have stayed open all the time.
    for load in [open, outside] {
        let outcomes = load.stop();
        assert!(failures(&outcomes).is_empty(), "{:?}", failures(&outcomes));
    }
}

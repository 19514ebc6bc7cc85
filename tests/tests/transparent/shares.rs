//! A pod, or a client of one pod, opens as many connections as it can, without effect on the others.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::Duration;

use heddle_skips::skipped;

use crate::leftovers::inside;
use crate::load::{Kind, Load, failures};
use crate::stage::{Scene, Stage, pause, until};

/// Connections that a flood tries to hold: more than the limit for all pods of a node.
const TRIED: usize = 9_000;
/// How long the other clients send requests beside the flood.
const BESIDE: Duration = Duration::from_secs(3);
/// Upper bound for one of their requests, on a machine with other load.
const SOON: Duration = Duration::from_secs(2);

/// A program that holds every connection that it gets.
struct Flood(Child);

impl Drop for Flood {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Floods an address from a pod, and waits until connections are refused.
fn flood(stage: &Stage, pod: &str, to: &str) -> Flood {
    let over_share = || {
        let counters = stage.counters("one");
        counters.sum("heddle_connections_over_share_total", "")
    };
    let before = over_share();
    let log = File::create(stage.folder().join(format!("flood-{pod}"))).expect("a file");
    let mut command = stage.own(pod, &format!("flood {TRIED} {to}"));
    let child = command.stdin(Stdio::piped()).stdout(log).spawn();
    let flood = Flood(child.expect("a client"));
    until(&format!("{pod} has its share, and tries for more"), || {
        over_share() > before
    });
    flood
}

#[test]
fn a_flood_of_one_pod_or_of_strangers_at_one_pod_leaves_the_others_alone() {
    let scene = Scene::default()
        .pod("flooder", "one")
        .pod("victim", "one")
        .pod("far", "two")
        .pod("server", "one")
        .pod("other", "one")
        .service("server", "{port: 80, appProtocol: http}")
        .service("other", "{port: 80, appProtocol: http}")
        .outsider("stranger", "one");
    let Some(stage) = scene.up() else { return };
    // Given clients with a new connection for each request: a pod of the same node, one of another node, and a stranger
    // …
    let _server = stage.answer("server", 80);
    let _other = stage.answer("other", 80);
    let (server, other) = (stage.at("server", 80), stage.at("other", 80));
    let loads = ["victim", "far", "stranger"]
        .map(|pod| (pod, Load::start(&stage, pod, Kind::Anew, &server)));
    // … when another pod of the node, and strangers calling another pod, hold every connection that they get …
    let own = flood(&stage, "flooder", &server);
    let strangers = flood(&stage, "stranger", &other);
    pause(BESIDE);
    // … then every request is answered, in time.
    for (pod, load) in loads {
        let outcomes = load.stop();
        let failed = failures(&outcomes);
        assert!(failed.is_empty(), "{pod}: {failed:?}");
        let slowest = outcomes.iter().map(|one| one.took).max();
        eprintln!("{pod}: {} requests, {slowest:?}", outcomes.len());
        assert!(
            slowest.is_some_and(|took| took < SOON),
            "{pod}: {slowest:?}"
        );
    }
    let log = stage.log("one");
    assert!(log.contains("connections that a workload opens are refused"));
    assert!(log.contains("connections from an address are refused"));
    drop((own, strangers));
    until("what was held is free again", || {
        stage.counters("one").sum("heddle_connections_active", "") < 20
    });
}

/// More unanswered dials than the hooks have room for in one pod.
const BEGUN: usize = 1_100;

#[test]
fn a_pod_whose_dials_the_hooks_have_no_room_for_is_counted_and_said() {
    let scene = Scene::default()
        .pod("caller", "one")
        .pod("server", "one")
        .service("server", "{port: 80, appProtocol: http}");
    let Some(stage) = scene.up() else { return };
    if !stage.log("one").contains("hooks=Bpf") {
        return skipped("packet filters have no tables that could be full");
    }
    let _server = stage.answer("server", 80);
    let server = stage.at("server", 80);
    assert!(stage.dial("caller", &server).is_good());
    let full = |table| {
        let counters = stage.counters("one");
        counters.sum("heddle_hook_tables_full_total", table)
    };
    assert_eq!(full(""), 0);
    // Given a pod whose dials get no answer …
    for rule in [
        "add table inet silence",
        "add chain inet silence in { type filter hook input priority 0; }",
        "add rule inet silence in tcp dport 15001 drop",
    ] {
        inside(&stage, "caller", &["nft", rule]).expect("a rule");
    }
    // … when it starts too many at once, then the excess is counted and logged.
    let mut command = stage.own("caller", &format!("begin {BEGUN} {server}"));
    let mut begun = command.stdin(Stdio::piped()).spawn().expect("a client");
    until("it is counted", || full("handshakes") > 0);
    assert_eq!(full("visits"), 0);
    until("it is said", || {
        let log = stage.log("one");
        log.contains("tables of the hooks were full")
    });
    begun.kill().expect("ended");
    begun.wait().expect("ended");
}

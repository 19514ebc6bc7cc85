//! The packet-filter rules that a killed node leaves in pods, and their removal.

use std::process::{Command, Stdio};

use heddle_skips::skipped;

use crate::deaths::kill_both;
use crate::programs::text;
use crate::stage::{Scene, Stage, until};

/// Runs a program in a pod's network namespace; `None` if it is missing or fails.
pub(crate) fn inside(stage: &Stage, pod: &str, words: &[&str]) -> Option<String> {
    let netns = format!("--net={}", text(&stage.pod(pod).network()));
    let output = Command::new("nsenter")
        .arg(netns)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(said)
}

fn has_rules(stage: &Stage, pod: &str) -> bool {
    inside(stage, pod, &["nft", "list", "table", "inet", "heddle"]).is_some()
}

fn has_routes(stage: &Stage, pod: &str) -> bool {
    // The number of the routing table.
    inside(stage, pod, &["ip", "rule", "show"]).is_some_and(|rules| rules.contains("18500:"))
}

/// A node whose pods have packet-filter rules. `None`, with a message, if they are not available.
fn filtered() -> Option<Stage> {
    let found = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    if !["nft", "nsenter"].iter().all(|program| found(program)) {
        skipped("packet filters take nft and nsenter (apt-get install nftables util-linux)");
        return None;
    }
    let scene = Scene::default().filtered();
    scene
        .strict("vault", "one")
        .pod("window", "one")
        .outsider("stranger", "one")
        .up()
}

#[test]
fn uninstall_removes_the_rules_of_a_holder_that_was_killed() {
    let Some(stage) = filtered() else { return };
    let _server = stage.answer("vault", 80);
    let vault = stage.at("vault", 80);
    let state = stage.node("one").admin_socket().with_file_name("state");
    let bpffs = state.with_file_name("bpf/heddle");
    let words = [
        "node",
        "cleanup",
        "--bpffs",
        &text(&bpffs),
        "--state",
        &text(&state),
    ];
    let uninstall = || stage.heddle(&words);
    // Given a running node, then uninstalling is refused.
    let refused = uninstall().expect_err("a holder has these pods");
    assert!(
        refused.contains("another holder has these pods"),
        "{refused}"
    );
    assert!(has_rules(&stage, "vault"));
    // When the node is killed, then its pods are unreachable …
    kill_both(&stage);
    assert!(["vault", "window"].iter().all(|pod| has_rules(&stage, pod)));
    assert!(!stage.dial("stranger", &vault).is_good());
    // … until the rules are removed.
    let said = uninstall().expect("uninstalled");
    assert!(said.contains("what was in 2 pods"), "{said}");
    for pod in ["vault", "window"] {
        assert!(!has_rules(&stage, pod) && !has_routes(&stage, pod), "{pod}");
    }
    assert!(stage.dial("stranger", &vault).is_good());
    let again = uninstall().expect_err("nothing is left there");
    assert!(again.contains("nothing to remove"), "{again}");
}

#[test]
fn a_holder_with_programs_removes_the_rules_of_the_one_before() {
    let Some(stage) = filtered() else { return };
    let probe = stage.heddle(&["check", "--probe"]);
    let said = probe.clone().unwrap_or_else(|said| said);
    let _server = stage.answer("vault", 80);
    // Given pods with the rules of a killed holder …
    let mut killed = kill_both(&stage);
    assert!(has_rules(&stage, "vault"));
    // … when another holder with BPF programs takes over …
    let kind = killed.arguments.iter_mut().find(|word| *word == "nft");
    "bpf".clone_into(kind.expect("--hooks nft"));
    if !said.contains("sk_lookup") || probe.is_err() {
        skipped("there is no BPF here to take over (heddle check --probe says what is missing)");
        return;
    }
    let _again = killed.start(&stage);
    // … then its pods are served, without rules …
    for pod in ["vault", "window"] {
        stage.until_served(pod);
        assert!(!has_rules(&stage, pod), "{pod}");
    }
    let vault = stage.at("vault", 80);
    assert_eq!(stage.dial("stranger", &vault).what, "403");
    // … and are released without any trace of the rules.
    stage.release("vault").expect("released");
    until("it is let go", || stage.state("vault").is_none());
    assert!(stage.dial("stranger", &vault).is_good());
}

//! Roots and certificates over time: replaced, renewed, missed, and never logged.

use super::*;

/// The system's clock is behind the time floor: the node goes on, and reports it.
#[test]
fn a_clock_below_the_floor_is_degraded_and_goes_on() {
    let (folder, _) = mesh(9);
    let at = free_address();
    let control = Heddle::control_at(&folder, at, &[]);
    let node = join(&folder, "n1", at);
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    control.signal(Signal::TERM);
    assert_eq!(control.ended().code(), Some(0));

    let floor = folder.path("n1/floor");
    fs::write(&floor, format!("{}\n", now() + 3_600)).expect("written");
    let node = Heddle::node(&folder, "n1", at, &[]);
    node.stdout_line("SERVICE");
    let (code, status) = check(&folder, "n1");
    assert_eq!(
        (code, &status["clock"]["degraded"]),
        (Some(6), &true.into())
    );
    let (_, metrics) = get(node.metrics(), "x", "/metrics");
    assert!(metrics.contains("heddle_clock_degraded 1\n"));
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));

    // A floor later than the certificate's end: it has expired, whatever the system's clock shows.
    fs::write(&floor, format!("{}\n", now() + 2 * 86_400)).expect("written");
    let (code, said) = refused(&folder, "n1", at, &[]);
    assert!(
        code == Some(1) && said.contains("its certificate has expired"),
        "{said}"
    );
}

#[test]
fn a_root_is_replaced_and_a_node_shut_out_while_nodes_run() {
    let Joined {
        folder,
        namespace,
        one,
        two,
        control,
        ..
    } = joined(10);
    let socket = folder.socket();
    let operate = |words: &[&str]| {
        let done = heddle(&[words, &["--socket", as_str(&socket)]].concat());
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
    };
    operate(&["root", "rotate", "--wait", "20s"]);
    for name in ["n1", "n2"] {
        assert_eq!(check(&folder, name).1["trust"]["roots"], 2);
    }
    let (service, caller) = (format!("{namespace}/cart"), format!("{namespace}/web"));
    let address = one.address(&service, Some(&caller));
    eventually("the request is answered", || {
        get(address, "cart", "/").0 == 200
    });

    let web = format!("spiffe://cluster.local/ns/{namespace}/sa/web");
    let one_at = as_str(&folder.path("n1.sock")).to_owned();
    operate(&["deny", "add", &web, "--reason", "test", "--ttl", "1h"]);
    eventually("the caller is refused", || {
        get(address, "cart", "/").0 == 503
    });
    for asked in [
        &["--control", "--socket", as_str(&socket)][..],
        &["--socket", &one_at],
    ] {
        eventually("it is explained", || {
            let question = ["explain", &caller, &service, "GET", "/"];
            let said = text(&heddle(&[&question[..], asked].concat()).stdout);
            let expected = format!("{web} is on the deny-list: no other node talks to it");
            said.contains("  refused at") && said.contains(&expected)
        });
    }
    operate(&["deny", "remove", &web]);
    eventually("the caller is let in again", || {
        get(address, "cart", "/").0 == 200
    });
    operate(&[
        "deny",
        "add",
        "spiffe://cluster.local/heddle/node/n2",
        "--reason",
        "lost",
        "--ttl",
        "1h",
    ]);
    eventually("the node is told nothing any more", || {
        let control = &check(&folder, "n2").1["control"];
        let why = control["problem"].as_str().unwrap_or_default();
        control["connected"] == false && why.contains("we are on its deny-list")
    });
    let gone = control.stderr_line("a node is gone: it is on the deny-list");
    assert!(gone.contains("n2") && gone.contains("lost"), "{gone}");
    let (code, status) = check(&folder, "n2");
    assert!(
        code == Some(6)
            && status
                .to_string()
                .contains("no data from the control plane")
    );

    // A node that starts anew is told the reason by the handshake.
    two.signal(Signal::TERM);
    assert_eq!(two.ended().code(), Some(0));
    let status = control.status();
    let at = status["listen"].as_str().and_then(|at| at.parse().ok());
    let two = Heddle::node(&folder, "n2", at.expect("an address"), &[]);
    two.stderr_line("the control plane is not reached: the control plane refuses this node: we are on its deny-list");
    let (code, status) = check(&folder, "n2");
    assert!(
        code == Some(6) && status.to_string().contains("deny-list"),
        "{status}"
    );
}

#[test]
fn a_node_that_missed_a_new_root_joins_anew() {
    let (folder, _) = mesh(12);
    let (_control, at) = Heddle::control(&folder, &[]);
    let one = join(&folder, "n1", at);
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    one.signal(Signal::TERM);
    assert_eq!(one.ended().code(), Some(0));
    let socket = folder.socket();
    // The node is away while the root is replaced and the old one dropped.
    for _ in 0..2 {
        let rotated = heddle(&["root", "rotate", "--force", "--socket", as_str(&socket)]);
        assert!(rotated.status.success(), "{}", text(&rotated.stderr));
    }
    let token = token(&folder, "n1");
    let one = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&token)]);
    one.stderr_line("the node joins again");
    eventually("it is a node again", || is_well(&folder, "n1", 2));
}

/// A certificate found on disk counts as old as its start of validity, which is at least an hour ago: of one that lives
/// five minutes, more than half is over.
#[test]
fn certificates_are_renewed_while_requests_go_on() {
    let joined = joined_by(11, |folder| {
        let config = folder.path("control.yaml");
        fs::write(&config, "control: {leaf_ttl_s: 300}\n").expect("written");
        Heddle::control(folder, &["--config", as_str(&config)])
    });
    let Joined {
        folder,
        namespace,
        one,
        two: _two,
        control: _control,
        at,
    } = joined;
    one.signal(Signal::TERM);
    assert_eq!(one.ended().code(), Some(0));
    let before = fs::read(folder.path("n1/node.leaf")).expect("a leaf");
    let one = Heddle::node(&folder, "n1", at, &[]);
    one.stdout_line("SERVICE");
    let (service, caller) = (format!("{namespace}/cart"), format!("{namespace}/web"));
    let address = one.address(&service, Some(&caller));
    eventually("the other node is known", || {
        get(address, "cart", "/").0 == 200
    });
    eventually("both certificates are renewed", || {
        assert_eq!(get(address, "cart", "/").0, 200);
        check(&folder, "n1").1["renewals"] == 2
    });
    eventually("it is connected with the new one", || {
        check(&folder, "n1").1["control"]["connected"] == true
    });
    assert!(is_well(&folder, "n1", 2));
    assert_ne!(
        fs::read(folder.path("n1/node.leaf")).expect("a leaf"),
        before
    );
    assert_eq!(get(address, "cart", "/").0, 200);
}

#[test]
fn no_secret_is_ever_logged() {
    let (folder, _) = mesh(12);
    let (_control, at) = Heddle::control(&folder, &[]);
    let token = token(&folder, "n1");
    let node = Heddle::node(
        &folder,
        "n1",
        at,
        &["--token-file", as_str(&token), "--log-level", "trace"],
    );
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    node.signal(Signal::TERM);
    let token = fs::read_to_string(&token).expect("a token");
    let secret = token.split('.').nth(1).expect("a secret").to_owned();
    let leaf = fs::read_to_string(folder.path("n1/node.leaf")).expect("a leaf");
    // Only the lines of the key that differ between keys: the first ones are the same for all.
    let key: Vec<&str> = leaf
        .lines()
        .skip(3)
        .take_while(|line| !line.starts_with('-'))
        .collect();
    assert!(!key.is_empty());
    for line in node.stderr_before("stopped") {
        assert!(
            !line.contains(&secret) && !key.iter().any(|text| line.contains(text)),
            "{line}"
        );
    }
}

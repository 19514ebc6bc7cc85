//! `heddle node` and `heddle check`, with a control plane.

use std::fs;

use rustix::process::Signal;

use crate::harness::{Folder, Heddle, as_str, eventually, free_address, get, heddle, text};

mod authority;
mod fixture;
mod on_demand;
mod skew;
mod start;

use fixture::*;
pub(crate) use fixture::{is_well, join, token};

#[test]
fn two_nodes_join_and_a_request_goes_from_one_to_the_other() {
    let Joined {
        folder,
        namespace,
        one,
        two,
        control: _control,
        ..
    } = joined(1);
    one.stdout_line("SERVICE");
    two.stdout_line("SERVICE");
    let (service, caller) = (format!("{namespace}/cart"), format!("{namespace}/web"));
    let address = one.address(&service, Some(&caller));
    eventually("the request is answered", || {
        get(address, "cart", "/") == (200, "cart".to_owned())
    });

    let shown = heddle(&["check", "--socket", as_str(&folder.path("n2.sock"))]);
    let shown = text(&shown.stdout);
    for expected in [
        "node n2 of cluster.local: all is well, 2 of 2 identities, other nodes connect at 127.0.0.1:",
        ": connected for ",
        "trust: bundle 1 with 1 root, deny-list 0 with 0 entries in force",
        "service lasts until 2",
        "spiffe://cluster.local/heddle/node/n2 ",
        "/sa/cart ",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    let status = heddle(&[
        "status",
        "--brief",
        "--socket",
        as_str(&folder.path("n2.sock")),
    ]);
    let status = text(&status.stdout);
    assert!(
        status.contains("node n2 of cluster.local: all is well"),
        "{status}"
    );
    // Each node shows the other with its connections. Both have one IP address, so neither knows which node calls.
    let links = |name: &str, node: Option<&str>, way: &str| {
        let status = status_of(&folder, name);
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let other = nodes.iter().find(|other| other["node"].as_str() == node);
        other.and_then(|other| other[way]["links_up"].as_u64())
    };
    eventually("the link is shown on both", || {
        links("n1", Some("n2"), "to") >= Some(1) && links("n2", None, "from") >= Some(1)
    });
    assert_eq!(links("n1", Some("n1"), "to"), None, "it is no other node");
    assert_eq!(links("n2", Some("n1"), "to"), Some(0));
    let n1 = folder.path("n1.sock");
    let shown = text(&heddle(&["status", "--socket", as_str(&n1)]).stdout);
    assert!(
        shown.contains("OTHER NODE") && shown.contains("\nn2 "),
        "{shown}"
    );
    let (_, metrics) = get(two.metrics(), "x", "/metrics");
    for expected in [
        "heddle_control_connected 1\n",
        "heddle_clock_degraded 0\n",
        "heddle_identity_renewals_total 0\n",
        "heddle_identity_renewal_failures_total 0\n",
        &format!(
            "heddle_identity_expiry_timestamp_seconds{{spiffe_id=\"{}\"}} ",
            CART.replace("shop", &namespace)
        ),
    ] {
        assert!(
            metrics.contains(expected),
            "{expected:?} is not in\n{metrics}"
        );
    }
    // The caller's node names the node to ask, in a form that works there; the control plane knows both.
    let explain = |from: &str, more: &[&str]| {
        let output = heddle(&[&["explain", from, &service], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (n1, n2, control) = (
        folder.path("n1.sock"),
        folder.path("n2.sock"),
        folder.socket(),
    );
    let said = explain(&caller, &["--socket", as_str(&n1)]);
    let account = format!("{namespace}/sa/web");
    let command = format!("on that node: heddle explain {account} {service}\n");
    assert!(said.contains(&command), "{said}");
    let said = explain(&account, &["--socket", as_str(&n2)]);
    assert!(said.contains("allowed at"), "{said}");
    let control = ["--control", "--socket", as_str(&control)];
    assert!(explain(&caller, &control).contains("allowed at"));
    for command in [["config", "dump"], ["status", "--brief"]] {
        let output = heddle(&[&command[..], &control].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    // A control plane has another command, and a heddle without a mesh of nodes needs no identities.
    let asked = heddle(&["check", "--socket", as_str(&folder.socket())]);
    assert!(text(&asked.stderr).contains("a control plane answers there"));
}

#[test]
fn a_node_that_is_killed_is_named_with_what_the_kernel_says() {
    let Joined {
        folder: _folder,
        namespace,
        one,
        two,
        control: _control,
        ..
    } = joined(15);
    one.stdout_line("SERVICE");
    let (service, caller) = (format!("{namespace}/cart"), format!("{namespace}/web"));
    let address = one.address(&service, Some(&caller));
    eventually("the request is answered", || {
        get(address, "cart", "/").0 == 200
    });

    two.signal(Signal::KILL);
    two.ended();
    assert_eq!(get(address, "cart", "/").0, 503);
    let line = one.stderr_line("another node cannot be reached");
    assert!(
        line.contains("node=127.0.0.1:") && line.contains("Connection refused"),
        "{line}"
    );
    let line = one.stderr_line("an endpoint cannot be connected to");
    assert!(
        line.contains("error=the other node cannot be reached"),
        "{line}"
    );
}

#[test]
fn a_node_starts_again_without_a_token_and_without_its_control_plane() {
    // Fixed, so that the restarted control plane has the same address.
    let listen = free_address();
    let joined = joined_by(2, |folder| {
        (Heddle::control_at(folder, listen, &[]), listen)
    });
    let Joined {
        folder,
        namespace,
        one,
        two,
        control,
        at,
    } = joined;
    let (service, caller) = (format!("{namespace}/cart"), format!("{namespace}/web"));
    let answers = |one: &Heddle| get(one.address(&service, Some(&caller)), "cart", "/").0 == 200;
    one.stdout_line("SERVICE");
    eventually("the request is answered", || answers(&one));

    control.signal(Signal::TERM);
    assert_eq!(control.ended().code(), Some(0));
    let said = one.stderr_line("the control plane is not reached");
    assert!(!said.contains("cannot be reached"), "{said}");
    eventually("the node says so", || {
        check(&folder, "n1").1["control"]["connected"] == false
    });
    assert!(answers(&one));
    // Both start again from the disk. The token that is still named is not read.
    for node in [one, two] {
        node.signal(Signal::TERM);
        assert_eq!(node.ended().code(), Some(0));
    }
    let token = folder.path("n1.token");
    let two = Heddle::node(&folder, "n2", at, &[]);
    let one = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&token)]);
    one.stderr_line("the token is not used");
    one.stdout_line("SERVICE");
    two.stdout_line("SERVICE");
    // They do not know the other's new address before the control plane is back.
    let (code, status) = check(&folder, "n1");
    assert_eq!(
        (code, &status["control"]["connected"]),
        (Some(0), &false.into())
    );
    assert_eq!(status["identities"].as_array().map(Vec::len), Some(2));

    let _control = Heddle::control_at(&folder, at, &[]);
    eventually("both are connected again", || {
        ["n1", "n2"]
            .iter()
            .all(|name| check(&folder, name).1["control"]["connected"] == true)
    });
    eventually("the request is answered again", || answers(&one));
}

/// The control plane restarts at another address, so only the caller's node finds it.
#[test]
fn a_node_that_has_not_come_back_to_a_restarted_control_plane_is_reached() {
    let Joined {
        folder,
        namespace,
        one,
        two: _two,
        control,
        ..
    } = joined(13);
    one.stdout_line("SERVICE");
    for process in [one, control] {
        process.signal(Signal::TERM);
        assert_eq!(process.ended().code(), Some(0));
    }

    let (_control, at) = Heddle::control(&folder, &[]);
    let one = Heddle::node(&folder, "n1", at, &[]);
    one.stdout_line("SERVICE");
    eventually("the caller's node is back", || {
        check(&folder, "n1").1["control"]["connected"] == true
    });
    assert_eq!(check(&folder, "n2").1["control"]["connected"], false);
    let (service, caller) = (format!("{namespace}/cart"), format!("{namespace}/web"));
    eventually("the request is answered", || {
        get(one.address(&service, Some(&caller)), "cart", "/") == (200, "cart".to_owned())
    });
    // The caller's node got its part of the mesh when it connected: the other node must still be in it.
    assert_eq!(
        get(one.address(&service, Some(&caller)), "cart", "/").0,
        200
    );
}

#[test]
fn the_control_plane_says_who_comes_and_goes() {
    let (folder, _) = mesh(14);
    let (control, at) = Heddle::control(&folder, &[]);
    let node = join(&folder, "n1", at);
    control.stderr_line("a node is present");
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    let gone = control.stderr_line("a node is gone: its connection has ended");
    assert!(gone.contains("n1"), "{gone}");
}

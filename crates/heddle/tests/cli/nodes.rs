//! `heddle node` and `heddle check`, with a control plane.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Folder, Heddle, as_str, backend_at, eventually, get, heddle, text};

mod start;

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

/// `web` on one node calls `cart` on another. Names and addresses differ between tests.
fn mesh(number: u8) -> (Folder, String) {
    let cart = backend_at([127, 9, number, 1], "cart");
    let port = cart.port();
    let namespace = format!("shop{number}");
    let folder = Folder::new();
    let mesh = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cart, namespace: NS}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: NS}}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: NS}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: PORT}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: cart, namespace: NS, labels: {app: cart}}
spec: {nodeName: n2, address: 127.9.NUMBER.1, serviceAccountName: cart, ports: [{port: PORT}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: web, namespace: NS}
spec: {nodeName: n1, address: 127.9.NUMBER.2, serviceAccountName: web}
";
    let mesh = mesh
        .replace("NS", &namespace)
        .replace("PORT", &port.to_string())
        .replace("NUMBER", &number.to_string());
    folder.write("a.yaml", &mesh);
    (folder, namespace)
}

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.expect("a port")
}

/// Makes a token and puts it into a file.
fn token(folder: &Folder, node: &str) -> PathBuf {
    let socket = folder.socket();
    let made = heddle(&["token", "create", node, "--socket", as_str(&socket)]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let path = folder.path(&format!("{node}.token"));
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(&made.stdout).expect("written");
    path
}

pub(crate) fn join(folder: &Folder, name: &str, control: SocketAddr) -> Heddle {
    let token = token(folder, name);
    let node = Heddle::node(folder, name, control, &["--token-file", as_str(&token)]);
    node.stderr_line("listening for other nodes");
    node
}

/// A control plane and two nodes, each of which has its identities: `web` on the first calls `cart` on the other.
struct Joined {
    folder: Folder,
    namespace: String,
    control: Heddle,
    /// Where nodes find the control plane.
    at: SocketAddr,
    one: Heddle,
    two: Heddle,
}

fn joined(number: u8) -> Joined {
    joined_by(number, |folder| Heddle::control(folder, &[]))
}

/// The same with a control plane that the test starts, and says where it is.
fn joined_by(number: u8, control: impl FnOnce(&Folder) -> (Heddle, SocketAddr)) -> Joined {
    let (folder, namespace) = mesh(number);
    let (control, at) = control(&folder);
    let one = join(&folder, "n1", at);
    let two = join(&folder, "n2", at);
    eventually("both have their identities", || {
        is_well(&folder, "n1", 2) && is_well(&folder, "n2", 2)
    });
    Joined {
        folder,
        namespace,
        control,
        at,
        one,
        two,
    }
}

/// Asks a node how it is: exit code and answer.
fn check(folder: &Folder, name: &str) -> (Option<i32>, Value) {
    let socket = folder.path(&format!("{name}.sock"));
    let output = heddle(&["check", "--socket", as_str(&socket), "--output", "json"]);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), answer)
}

/// What a node shows of itself.
fn status_of(folder: &Folder, name: &str) -> Value {
    let socket = folder.path(&format!("{name}.sock"));
    let output = heddle(&["status", "--socket", as_str(&socket), "--output", "json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

pub(crate) fn is_well(folder: &Folder, name: &str, identities: usize) -> bool {
    let (code, status) = check(folder, name);
    let held = status["identities"].as_array().map_or(0, |all| {
        all.iter().filter(|held| held["not_after"].is_u64()).count()
    });
    code == Some(0) && held == identities
}

/// Starts a node that is expected to end by itself; says how.
fn refused(
    folder: &Folder,
    name: &str,
    control: SocketAddr,
    more: &[&str],
) -> (Option<i32>, String) {
    let (control, state) = (control.to_string(), folder.path(name));
    let socket = folder.path(&format!("{name}.sock"));
    let fixed = [
        "node",
        "--name",
        name,
        "--control",
        &control,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "none",
        "--state",
        as_str(&state),
        "--socket",
        as_str(&socket),
    ];
    let output = heddle(&[&fixed, more].concat());
    (output.status.code(), text(&output.stderr))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

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
    // Each shows the other, and what there is between them. Both are at one address: neither knows which one calls.
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
    // The caller's node says where to ask, in a form that works there; the control plane knows both.
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

    // A control plane is asked with another command, and a heddle that is alone needs no identities.
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
    // The control plane will be found there again.
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
    // Both start again from the disk. The token that is still named is not looked at.
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
    // They do not know yet where the other is now; it says so as soon as there is a control plane.
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

/// The control plane comes back elsewhere, so that only the caller's node finds it.
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
    // A mesh without the other would have come by now: every node is told its part when it connects.
    assert_eq!(
        get(one.address(&service, Some(&caller)), "cart", "/").0,
        200
    );
}

/// The system's clock is behind what was certain: nothing stops, and it is said.
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

    // Later than its certificate: that has expired, whatever the system's clock shows.
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
        two: _two,
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
    operate(&["deny", "add", &web, "--reason", "test", "--life", "1h"]);
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
        "--life",
        "1h",
    ]);
    eventually("the node is told nothing any more", || {
        let control = &check(&folder, "n2").1["control"];
        let why = control["problem"].as_str().unwrap_or_default();
        // The connections after the one that was refused are broken off without a word.
        control["connected"] == false && why.contains("deny-list; since then: ")
    });
    let gone = control.stderr_line("a node is gone: it is on the deny-list");
    assert!(gone.contains("n2") && gone.contains("lost"), "{gone}");
    let (code, status) = check(&folder, "n2");
    assert!(
        code == Some(6)
            && status
                .to_string()
                .contains("nothing comes of the control plane")
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

#[test]
fn a_node_that_missed_a_new_root_joins_anew() {
    let (folder, _) = mesh(12);
    let (_control, at) = Heddle::control(&folder, &[]);
    let one = join(&folder, "n1", at);
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    one.signal(Signal::TERM);
    assert_eq!(one.ended().code(), Some(0));
    let socket = folder.socket();
    // It is away while the root is replaced, and the old one dropped.
    for _ in 0..2 {
        let rotated = heddle(&["root", "rotate", "--force", "--socket", as_str(&socket)]);
        assert!(rotated.status.success(), "{}", text(&rotated.stderr));
    }
    let token = token(&folder, "n1");
    let one = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&token)]);
    one.stderr_line("it joins anew");
    eventually("it is a node again", || is_well(&folder, "n1", 2));
}

/// A certificate that was found on the disk is taken to be as old as it says, an hour at least: of one that
/// lives for five minutes half is over.
#[test]
fn certificates_are_renewed_while_requests_go_on() {
    let joined = joined_by(11, |folder| {
        let config = folder.path("control.yaml");
        fs::write(&config, "control: {leaf_life_s: 300}\n").expect("written");
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
    // The lines of the key that are the key's own: what comes before is the same for all.
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

//! `heddle control` and operators' commands, with minimal nodes.

use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Folder, Heddle, as_str, eventually, families, get, heddle, text};
use crate::node::TestNode;

mod envoys;
mod trust;

const MESH: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cart, namespace: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: shop}}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {selector: {app: cart}, ports: [{port: 80}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: cart, namespace: shop, labels: {app: cart}}
spec: {nodeName: n1, address: 127.1.0.1, serviceAccountName: cart, ports: [{port: 8080}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: web, namespace: shop}
spec: {nodeName: n2, address: 127.1.0.2, serviceAccountName: web}
";
const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";
const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

fn mesh() -> Folder {
    let folder = Folder::new();
    folder.write("a.yaml", MESH);
    folder
}

/// Runs an operator's command against a control plane.
fn operate(folder: &Folder, command: &str) -> Output {
    let socket = folder.socket();
    let words = command.split(' ').chain(["--socket", as_str(&socket)]);
    heddle(&words.collect::<Vec<_>>())
}

fn told(folder: &Folder, command: &str) -> String {
    let output = operate(folder, command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command}: {said}");
    text(&output.stdout)
}

fn json(folder: &Folder, command: &str) -> Value {
    let said = told(folder, &format!("{command} --output json"));
    serde_json::from_str(&said).expect("JSON")
}

fn token(folder: &Folder, node: &str) -> String {
    told(folder, &format!("token create {node}"))
        .trim()
        .to_owned()
}

async fn join(folder: &Folder, control: std::net::SocketAddr, name: &str) -> TestNode {
    let joined = TestNode::join(control, name, &token(folder, name)).await;
    joined.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_and_gets_its_part_and_what_is_placed_on_it() {
    let folder = mesh();
    let (control, at) = Heddle::control(&folder, &[]);
    let token = token(&folder, "n1");
    let node = TestNode::join(at, "n1", &token).await.expect("joined");
    let client = node.client().await.expect("let in");
    let mut watch = node.watch_mesh(&client, "192.0.2.1:15008").await;
    let mut part = watch.next().await.expect("a part").1;
    while part.nodes.is_empty() {
        part = watch.next().await.expect("a part").1;
    }
    assert_eq!(part.nodes[0].address.to_string(), "192.0.2.1:15008");
    assert_eq!(part.workloads.len(), 1);
    let leaf = node.issue(&client, CART).await.expect("issued");
    assert_eq!(leaf.id().to_string(), CART);
    let foreign = node.issue(&client, WEB).await.expect_err("refused");
    assert!(foreign.to_string().contains("no workload"), "{foreign}");
    control.stderr_line("not_placed");

    // The token is used up; the node is told only that it is refused.
    let replayed = TestNode::join(at, "n1", &token).await;
    let Err(replayed) = replayed else {
        panic!("joined twice");
    };
    assert!(replayed.contains("refuses"), "{replayed}");
    control.stderr_line("token_unknown");

    // The mesh changes: another node's workload moves to this node.
    folder.write("a.yaml", &MESH.replace("nodeName: n2", "nodeName: n1"));
    while part.workloads.len() < 2 {
        part = watch.next().await.expect("a part").1;
    }
    node.issue(&client, WEB).await.expect("issued");

    // A mistake in the manifests is reported, and what they had stays in force.
    let broken = MESH.replace("nodeName: n2", "nodeName: n1") + "---\nkind: [\n";
    folder.write("a.yaml", &broken);
    control.stderr_line("unreadable text: refused: its last good version stays in force");
    let status = control.status();
    assert_eq!(status["config"]["stale"], false);
    assert_eq!(status["ready"], true);
    node.issue(&client, WEB).await.expect("issued all the same");
    // Also after a restart.
    drop(control);
    let (control, _) = Heddle::control(&folder, &[]);
    let status = control.status();
    let refused = status["config"]["refused"].as_array().map(Vec::len);
    assert!(refused > Some(1), "{status}");
    assert_eq!(status["ready"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_is_for_people_and_programs() {
    let folder = mesh();
    let (control, at) = Heddle::control(&folder, &["--trust-domain", "prod.test"]);
    let node = join(&folder, at, "n1").await;
    let client = node.client().await.expect("let in");
    let _watch = node.watch_mesh(&client, "192.0.2.1:15008").await;
    eventually("it is present", || {
        control.status()["nodes"][0]["address"] == "192.0.2.1:15008"
    });
    token(&folder, "n2");
    let status = control.status();
    assert_eq!(status["role"], "control");
    assert_eq!(status["trust_domain"], "prod.test");
    assert_eq!(status["listen"], at.to_string());
    assert_eq!(status["nodes"][1]["name"], "n2");
    assert_eq!(status["nodes"][1]["workloads"], 1);
    assert_eq!(status["tokens"], 1);
    let table = told(&folder, "status");
    for expected in [
        "control plane of prod.test",
        "ready",
        "192.0.2.1:15008",
        "has not joined",
        "no rotation under way",
        "1 join token not used",
        "1 node here",
    ] {
        assert!(
            table.contains(expected),
            "{expected} is missing in\n{table}"
        );
    }
    assert!(!told(&folder, "status --brief").contains("192.0.2.1"));
    assert!(
        table.contains(" confirmed") && !table.contains("no LocalWorkload is on"),
        "{table}"
    );

    // A node with a mistyped name joins but has no workloads: this is reported.
    let slip = join(&folder, at, "n-1").await;
    let client = slip.client().await.expect("let in");
    let _idle = slip.watch_mesh(&client, "192.0.2.2:15008").await;
    control.stderr_line("a node is present that no LocalWorkload is on");
    let idle = "no LocalWorkload is on n-1: is that the name";
    assert!(told(&folder, "status").contains(idle));
    drop((_idle, client));
    eventually("it is gone", || {
        control.status()["nodes"][0]["address"].is_null()
    });

    // Commands for nodes work for a control plane, too, or say why not.
    let config: Value = serde_json::from_str(&told(&folder, "config dump")).expect("JSON");
    assert_eq!(config["mesh"]["nodes"][1]["name"], "n1");
    let explained = told(&folder, "explain shop/web shop/cart");
    assert!(explained.contains("shop/cart"), "{explained}");

    let metrics = control.metrics();
    assert_eq!(get(metrics, "x", "/ready").0, 200);
    assert_eq!(get(metrics, "x", "/status").0, 404);
    let (_, body) = get(metrics, "x", "/metrics");
    for expected in [
        "heddle_control_nodes 1\n",
        "heddle_control_joins_total 2\n",
        "heddle_control_join_tokens 1\n",
        "heddle_control_rotation_stage{stage=\"steady\"} 1\n",
        "heddle_control_handshakes_refused_total{reason=\"expired\"} 0\n",
        "heddle_build_info{",
    ] {
        assert!(body.contains(expected), "{expected} is missing in\n{body}");
    }
}

#[test]
fn operators_commands_have_text_json_and_exit_codes() {
    let folder = mesh();
    let (control, _) = Heddle::control(&folder, &[]);
    let made = json(&folder, "token create n1 --ttl 15m");
    let id = made["id"].as_str().expect("an id");
    assert!(told(&folder, "token list").contains(id));
    let revoked = told(&folder, &format!("token revoke {id}"));
    assert_eq!(revoked, format!("token {id} is void\n"));
    let again = operate(&folder, &format!("token revoke {id}"));
    // One of 64 ids begins with a hyphen.
    let hyphen = operate(&folder, "token revoke -gpqxTRWuSQI");
    assert_eq!(
        hyphen.status.code(),
        again.status.code(),
        "{}",
        text(&hyphen.stderr)
    );
    assert_eq!(again.status.code(), Some(1));
    let said = text(&again.stderr);
    assert!(said.starts_with("heddle: there is no token"), "{said}");

    let added = told(
        &folder,
        &format!("deny add {CART} --reason leaked --ttl 7d"),
    );
    assert!(
        added.starts_with(&format!("{CART} is refused until 2")),
        "{added}"
    );
    assert!(told(&folder, "deny list").contains("leaked"));
    assert_eq!(json(&folder, "deny list")[0]["what"], CART);
    told(&folder, &format!("deny remove {CART}"));
    assert_eq!(
        operate(&folder, "deny add x --reason y").status.code(),
        Some(2)
    );

    assert!(told(&folder, "root status").contains("no rotation under way"));
    assert_eq!(json(&folder, "root status")["stage"], "steady");
    assert_eq!(operate(&folder, "root cancel").status.code(), Some(1));
    assert_eq!(
        operate(&folder, "token create Wrong_Name").status.code(),
        Some(2)
    );
    assert_eq!(
        operate(&folder, "token create n1 --ttl 1w").status.code(),
        Some(2)
    );
    // No secret is in the log.
    let token = made["token"].as_str().expect("a token");
    let secret = token.split('.').nth(1).expect("a secret");
    control.signal(Signal::TERM);
    for line in control.stderr_before("stopping") {
        assert!(!line.contains(secret), "{line}");
    }
}

/// A broken pipe on standard error changes neither a command's effect nor its exit code.
#[test]
fn exit_codes_do_not_depend_on_a_reader_of_standard_error() {
    let folder = mesh();
    let (_control, _) = Heddle::control(&folder, &[]);
    let socket = folder.socket();
    let (socket, nowhere) = (as_str(&socket).to_owned(), folder.path("nowhere.sock"));
    let bad = Folder::new();
    bad.write("a.yaml", "kind: Nothing\n");
    let bad = bad.manifests();
    for (words, expected) in [
        (&["token", "create", "n1", "--socket", &socket][..], 0),
        (&["root", "rotate", "--socket", &socket], 0),
        (&["root", "rotate", "--force", "--socket", &socket], 0),
        (&["status", "--socket", as_str(&nowhere)], 4),
        (&["explain", "a/b", "c/d", "--dir", as_str(&bad)], 3),
    ] {
        let (reader, unread) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_heddle"))
            .args(words)
            .stdout(std::process::Stdio::null())
            .stderr(unread)
            .status()
            .expect("the binary runs");
        assert_eq!(ended.code(), Some(expected), "{words:?}");
    }
}

#[test]
fn a_socket_without_a_process_names_the_command_that_starts_one() {
    let folder = Folder::new();
    for command in ["token list", "root status", "deny list"] {
        let output = operate(&folder, command);
        assert_eq!(output.status.code(), Some(4), "{command}");
        let said = text(&output.stderr);
        assert!(said.contains("heddle control DIR"), "{said}");
    }
    // A node answers that it is no control plane.
    folder.write("a.yaml", "{apiVersion: v1, kind: List, items: []}");
    let _up = Heddle::up(&folder, &[]);
    let output = operate(&folder, "token list");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no control plane"));
}

#[test]
fn what_cannot_be_served_is_refused_at_the_start() {
    let folder = mesh();
    let socket = folder.socket();
    let (state, manifests) = (folder.path("state"), folder.manifests());
    let start_with = |socket: &Path, manifests: &Path, listen: &str| {
        let output = heddle(&[
            "control",
            as_str(manifests),
            "--socket",
            as_str(socket),
            "--state",
            as_str(&state),
            "--metrics",
            "none",
            "--listen",
            listen,
        ]);
        (output.status.code(), text(&output.stderr))
    };
    let start = |socket: &Path| start_with(socket, &manifests, "127.0.0.1:0");
    // So few descriptors that nodes could not connect.
    let few = |most: u32| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]);
        shell.args([env!("CARGO_BIN_EXE_heddle"), "control", as_str(&manifests)]);
        shell.args(["--socket", as_str(&socket), "--state", as_str(&state)]);
        shell.output().expect("it runs")
    };
    let output = few(135);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = "135 open files are too few for a control plane: at least 136 are needed";
    assert!(said.contains(expected) && !state.exists(), "{said}");

    // While nothing can be served no root is created: an operator would have to discard it.
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = held.local_addr().expect("an address").to_string();
    folder.write("a.yaml", "kind: [\n");
    for (dir, listen, expected) in [
        (&folder.path("none"), "127.0.0.1:0", 3),
        (&manifests, "127.0.0.1:0", 3),
        (&manifests, taken.as_str(), 1),
    ] {
        let (code, said) = start_with(&socket, dir, listen);
        assert_eq!(code, Some(expected), "{said}");
        assert!(!state.exists(), "{said}");
    }
    folder.write("a.yaml", MESH);
    std::fs::create_dir(&state).expect("a folder");
    set_permissions(&state, Permissions::from_mode(0o755)).expect("a mode");
    let (code, said) = start(&socket);
    assert!(code == Some(1) && said.contains("chmod 0700"), "{said}");
    set_permissions(&state, Permissions::from_mode(0o700)).expect("a mode");

    folder.write("a.yaml", "kind: [\n");
    let (code, said) = start(&socket);
    assert!(
        code == Some(3) && said.contains("nothing is served"),
        "{said}"
    );
    folder.write("a.yaml", MESH);

    let (_control, _) = Heddle::control(&folder, &[]);
    let key = metadata(state.join("root.key")).expect("a key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    for (socket, busy) in [
        (&socket, "another heddle"),
        (&folder.path("o.sock"), "another process"),
    ] {
        let (code, said) = start(socket);
        assert!(code == Some(5) && said.contains(busy), "{said}");
    }
}

#[test]
fn a_site_gets_an_authority_of_its_own() {
    let folder = mesh();
    let (control, _) = Heddle::control(&folder, &[]);
    let (site, into) = (folder.path("site"), folder.path("signed"));
    let request = heddle(&["site", "request", "--state", as_str(&site)]);
    assert!(request.status.success(), "{}", text(&request.stderr));
    let file = folder.path("site.csr");
    std::fs::write(&file, &request.stdout).expect("written");
    let (csr, into_text) = (as_str(&file), as_str(&into));
    let sign = format!("site sign {csr} --ttl 30d --into {into_text}");
    assert!(told(&folder, &sign).contains("can sign until"));
    // The site starts, and its renewal is requested while it runs.
    let put = |name: &str| std::fs::copy(into.join(name), site.join(name)).expect("copied");
    let run_site = || {
        put("intermediate.pem");
        put("root.pem");
        let own = ["--state", as_str(&site)];
        let socket = folder.path("site.sock");
        Heddle::control_of(&socket, &folder.manifests(), &own)
    };
    let running = run_site();
    running.stderr_line("the site's intermediate for cluster.local in");
    let socket = folder.path("site.sock");
    let root = heddle(&["root", "status", "--socket", as_str(&socket)]);
    let root = text(&root.stdout);
    assert!(
        root.contains("a site of root") && root.contains("its intermediate expires"),
        "{root}"
    );
    let again = heddle(&["site", "request", "--state", as_str(&site)]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    std::fs::write(&file, &again.stdout).expect("written");
    assert!(told(&folder, &sign).contains("can sign until"));
    running.signal(Signal::TERM);
    assert!(running.ended().success());
    run_site().stderr_line("the authority of a site of cluster.local in");
    // The folder is in use by the running control plane.
    let state = folder.path("state");
    let words: Vec<&str> = sign.split(' ').chain(["--state", as_str(&state)]).collect();
    assert_eq!(heddle(&words).status.code(), Some(5));
    control.signal(Signal::TERM);
    assert!(control.ended().success());
    assert!(heddle(&words).status.success());
    let empty = folder.path("empty");
    let words: Vec<&str> = sign.split(' ').chain(["--state", as_str(&empty)]).collect();
    let refused = heddle(&words);
    assert!(text(&refused.stderr).contains("holds no authority"));
    assert!(!empty.exists());

    for name in ["intermediate.pem", "root.pem"] {
        std::fs::copy(into.join(name), site.join(name)).expect("copied");
    }
    std::fs::remove_dir_all(&state).expect("removed");
    std::fs::rename(&site, &state).expect("renamed");
    let (control, _) = Heddle::control(&folder, &[]);
    assert_eq!(control.status()["ready"], true);
    let refused = operate(&folder, "root rotate");
    assert!(text(&refused.stderr).contains("rotate where the key is"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_at_once_when_told_and_comes_back_the_same() {
    let folder = mesh();
    let (control, at) = Heddle::control(&folder, &[]);
    let root = json(&folder, "root status")["sha256"].clone();
    let node = join(&folder, at, "n1").await;
    let client = node.client().await.expect("let in");
    let mut watch = node.watch_mesh(&client, "192.0.2.1:15008").await;
    let epoch = watch.next().await.expect("a part").0;
    control.signal(Signal::TERM);
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        while watch.next().await.is_ok() {}
    });
    ended.await.expect("the call ends");
    assert!(control.ended().success());
    assert!(!folder.socket().exists());

    let (control, _) = Heddle::control(&folder, &[]);
    assert_eq!(json(&folder, "root status")["sha256"], root);
    let status = control.status();
    assert_ne!(status["epoch"], epoch);
    assert_eq!(status["nodes"][0]["name"], "n1");
    assert!(status["nodes"][0]["certificate_until"].is_u64());
}

#[test]
fn every_metric_is_listed() {
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let folder = mesh();
    let (control, _) = Heddle::control(&folder, &[]);
    let (_, metrics) = get(control.metrics(), "x", "/metrics");
    for (name, kind) in families(&metrics) {
        assert!(
            PAGE.contains(&format!("| `{name}` | {kind} |")),
            "{name} is missing"
        );
    }
    assert!(metrics.contains("# HELP heddle_control_nodes "));
}

#[test]
fn a_node_that_is_asked_as_a_control_plane_is_told_from_one() {
    let folder = Folder::new();
    let backend = "127.0.0.1:9".parse().expect("an address");
    folder.write("a.yaml", &crate::harness::service("asked", "web", backend));
    let node = Heddle::up(&folder, &[]);
    for command in [
        "status --control",
        "status --control --output json",
        "config dump --control",
        "explain asked/web asked/web --control",
    ] {
        let output = operate(&folder, command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(
            said.contains("is the socket of a node") && said.contains("without --control"),
            "{said}"
        );
        assert!(output.stdout.is_empty(), "{command}");
    }
    drop(node);
}

#[test]
fn a_control_plane_is_found_where_it_usually_is() {
    let folder = mesh();
    let socket = folder.path("heddle-control.sock");
    let status = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_heddle"))
            .arg("status")
            .args(more)
            .env("XDG_RUNTIME_DIR", folder.path(""))
            .output();
        output.expect("it runs")
    };
    // Only a control plane runs here; nothing listens at the default socket of `heddle up`.
    let (_control, _) = Heddle::control_asked_at(socket, &folder, &[]);
    assert!(text(&status(&["--control"]).stdout).contains("control plane of cluster.local"));
    let absent = status(&[]);
    assert_eq!(absent.status.code(), Some(4));
    let said = text(&absent.stderr);
    assert!(
        said.contains("a control plane is here: ask it with --control"),
        "{said}"
    );
}

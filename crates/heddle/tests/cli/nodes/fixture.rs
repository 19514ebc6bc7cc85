//! A mesh of two nodes, how they join, and how they are asked.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Folder, Heddle, as_str, backend_at, eventually, heddle, text};

pub(super) const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

/// `web` on one node calls `cart` on another. Names and addresses differ between tests.
pub(super) fn mesh(number: u8) -> (Folder, String) {
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

/// Creates a token and writes it to a file.
pub(crate) fn token(folder: &Folder, node: &str) -> PathBuf {
    let socket = folder.socket();
    let made = heddle(&["token", "create", node, "--socket", as_str(&socket)]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let path = folder.path(&format!("{node}.token"));
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(&made.stdout).expect("written");
    path
}

pub(crate) fn join(folder: &Folder, name: &str, control: SocketAddr) -> Heddle {
    join_with(folder, name, control, &[])
}

/// Like [`join`], with more flags.
pub(super) fn join_with(folder: &Folder, name: &str, control: SocketAddr, more: &[&str]) -> Heddle {
    let token = token(folder, name);
    let joining = ["--token-file", as_str(&token)];
    let node = Heddle::node(folder, name, control, &[&joining, more].concat());
    node.stderr_line("listening for other nodes");
    node
}

/// A control plane and two nodes with all their identities: `web` on the first calls `cart` on the other.
pub(super) struct Joined {
    pub(super) folder: Folder,
    pub(super) namespace: String,
    pub(super) control: Heddle,
    /// Address of the control plane.
    pub(super) at: SocketAddr,
    pub(super) one: Heddle,
    pub(super) two: Heddle,
}

pub(super) fn joined(number: u8) -> Joined {
    joined_by(number, |folder| Heddle::control(folder, &[]))
}

/// Like [`joined`], with a control plane that the test starts; the closure returns its address.
pub(super) fn joined_by(
    number: u8,
    control: impl FnOnce(&Folder) -> (Heddle, SocketAddr),
) -> Joined {
    joined_with(number, control, [&[], &[]])
}

/// Like [`joined_by`], with more flags for each node.
pub(super) fn joined_with(
    number: u8,
    control: impl FnOnce(&Folder) -> (Heddle, SocketAddr),
    more: [&[&str]; 2],
) -> Joined {
    let (folder, namespace) = mesh(number);
    let (control, at) = control(&folder);
    let one = join_with(&folder, "n1", at, more[0]);
    let two = join_with(&folder, "n2", at, more[1]);
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

/// Runs `heddle check`: exit code and JSON.
pub(super) fn check(folder: &Folder, name: &str) -> (Option<i32>, Value) {
    let socket = folder.path(&format!("{name}.sock"));
    let output = heddle(&["check", "--socket", as_str(&socket), "--output", "json"]);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), answer)
}

/// JSON of `heddle status` for a node.
pub(super) fn status_of(folder: &Folder, name: &str) -> Value {
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

/// Starts a node that must end by itself; returns its exit code and output.
pub(super) fn refused(
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

pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

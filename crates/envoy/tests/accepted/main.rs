//! A stock Envoy accepts every resource of random meshes, and uses them.
//!
//! It runs in a network namespace of its own, since its listeners have fixed ports, and reaches its control plane by a Unix
//! socket.

mod memory;
mod meshes;
mod served;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heddle_envoy::bootstrap::{
    Bootstrap, LINK_CHAIN, LINK_KEY, LINK_ROOTS, Link, bootstrap, link_secrets,
};
use heddle_model::{Mesh, TrustDomain};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use served::Served;

/// Random meshes that the Envoy is told one after the other.
const MESHES: usize = 200;
/// Incremental xDS.
const DELTA: &str = "DELTA_GRPC";
/// Within which it has answered everything about one of them.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

struct Envoy(Child);

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The bootstrap, with the control plane and the admin interface at Unix sockets.
fn settings(folder: &Path, api: &str) -> Value {
    let domain = TrustDomain::default();
    let workload = meshes::workload_name();
    let mut whole = bootstrap(&Bootstrap {
        workload: &workload,
        trust_domain: &domain,
        control: &[([127, 0, 0, 1], 1).into()],
        link: Link::Folder(folder),
    });
    whole["admin"]["address"] = json!({"pipe": {"path": folder.join("admin")}});
    whole["dynamic_resources"]["ads_config"]["api_type"] = json!(api);
    let cluster = &mut whole["static_resources"]["clusters"][0];
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] =
        json!({"pipe": {"path": folder.join("control")}});
    let fields = cluster.as_object_mut().expect("a cluster");
    fields.remove("transport_socket");
    // A Unix socket has no source address.
    let manager = whole["cluster_manager"].as_object_mut().expect("settings");
    manager.remove("upstream_bind_config");
    whole
}

/// Starts it; `api` is the way in which it asks.
fn start(program: &Path, folder: &Path, api: &str) -> Envoy {
    let file = folder.join("envoy.json");
    std::fs::write(&file, settings(folder, api).to_string()).expect("a file");
    let log = std::fs::File::create(folder.join("log")).expect("a file");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program).arg("-c").arg(file);
    command.args(["--concurrency", "1", "--disable-hot-restart"]);
    command.args(["--drain-time-s", "1", "-l", "warning"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    Envoy(command.spawn().expect("Envoy starts"))
}

#[test]
fn the_bootstrap_is_valid_with_its_certificate_inside_and_in_files() {
    let Some(program) = heddle_skips::envoy() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let (chain, key) = served::certificate();
    for (name, text) in [(LINK_CHAIN, &chain), (LINK_KEY, &key), (LINK_ROOTS, &chain)] {
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    for (name, secret) in link_secrets(dir.path()) {
        std::fs::write(dir.path().join(name), secret.to_string()).expect("a file");
    }
    let inline = Link::Inline {
        chain: &chain,
        key: &key,
        roots: &chain,
    };
    for link in [inline, Link::Folder(dir.path())] {
        let whole = bootstrap(&Bootstrap {
            workload: &meshes::workload_name(),
            trust_domain: &TrustDomain::default(),
            control: &[
                ([10, 0, 0, 5], 15_012).into(),
                "[fd00::5]:15012".parse().expect("one"),
            ],
            link,
        });
        let file = dir.path().join("envoy.json");
        std::fs::write(&file, whole.to_string()).expect("a file");
        let mut validate = Command::new(&program);
        validate
            .args(["--mode", "validate", "-l", "warning", "-c"])
            .arg(&file);
        let said = validate.output().expect("Envoy runs");
        let why = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{link:?}: {why}");
    }
}

#[tokio::test]
async fn a_stock_envoy_accepts_every_resource_of_random_meshes() {
    accepts(DELTA, MESHES).await;
}

#[tokio::test]
async fn so_does_one_that_asks_for_state_of_the_world_xds() {
    accepts("GRPC", MESHES / 4).await;
}

async fn accepts(api: &str, meshes: usize) {
    let Some(program) = heddle_skips::envoy() else {
        return;
    };
    if !is_root() {
        heddle_skips::skipped("only root makes a network namespace");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let served = Served::start(&dir.path().join("control"));
    let mut runner = TestRunner::deterministic();
    let next = |runner: &mut TestRunner| -> Mesh {
        let tree = meshes::mesh().new_tree(runner).expect("a mesh");
        tree.current()
    };
    served.put(next(&mut runner));
    let _envoy = start(&program, dir.path(), api);
    for number in 0..meshes {
        let mesh = next(&mut runner);
        let shown = format!("{mesh:#?}");
        served.put(mesh);
        let answered = tokio::time::timeout(ANSWERED_WITHIN, served.settled()).await;
        let refused = served.refused();
        assert!(refused.is_empty(), "mesh {number}: {refused:#?}\n{shown}");
        let log = || std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        assert!(
            answered.is_ok(),
            "mesh {number} is not answered: {}\n{shown}",
            log()
        );
    }
    assert!(served.told() > MESHES, "it was told something each time");
}

/// Whether this process may make namespaces.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}

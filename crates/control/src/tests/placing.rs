//! Tests that serve a board instead of the empty mesh.

use std::path::Path;

use heddle_compile::{Options, Placement};

use super::*;

const TWO_NODES: &str = "
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

#[test]
fn what_the_newest_presence_has_is_shown_and_then_that_of_the_one_before() {
    let nodes = Nodes::default();
    let name = NodeName::parse("n1").unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    let has = |generation| {
        Some(Settled {
            generation,
            marked: 1,
        })
    };
    let older = nodes.arrive(&name, at).unwrap();
    older.standing().set(has(3));
    assert_eq!(nodes.mesh(&name), has(3));
    let newer = nodes.arrive(&name, at).unwrap();
    assert_eq!(nodes.mesh(&name), None, "it was told nothing yet");
    older.standing().set(has(4));
    newer.standing().set(has(5));
    newer.standing().set(None);
    assert_eq!(nodes.mesh(&name), has(5));
    drop(newer);
    assert_eq!(nodes.mesh(&name), has(4));
    older.standing().set(has(6));
    assert_eq!(nodes.mesh(&name), has(6));
    drop(older);
    assert_eq!(nodes.mesh(&name), None);
}

pub(super) fn mesh(text: &str) -> Mesh {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.yaml"), text).unwrap();
    let options = Options {
        placement: Placement::ByNode,
        ..Options::default()
    };
    let (mesh, report) = heddle_compile::load_with(Path::new(dir.path()), &options);
    mesh.unwrap_or_else(|| panic!("{:?}", report.problems))
}

#[tokio::test]
async fn a_node_gets_its_part_with_the_nodes_that_are_there() {
    let control = Control::empty().await;
    let n1 = control.node("n1").await;
    let mut watch = discover(&n1, &own("n1")).await.unwrap();
    // Before the first mesh no node gets an update.
    control.board.put(mesh(TWO_NODES));
    let (epoch, part) = watch.next().await.unwrap();
    assert_eq!(epoch, control.board.epoch());
    let workloads: Vec<_> = part.workloads.iter().map(|w| w.name.to_string()).collect();
    assert_eq!(workloads, ["shop/cart"]);
    part.check_invariants().unwrap();
    let names = |mesh: &Mesh| {
        let names = mesh.nodes.iter().map(|node| node.name.to_string());
        names.collect::<Vec<_>>()
    };
    let mut part = part;
    while names(&part) != ["n1"] {
        part = watch.next().await.unwrap().1;
    }

    // Another node appears, moves and disconnects. It may still be reachable at its last address, until it is
    // forgotten.
    let n2 = control.node("n2").await;
    let second = discover(&n2, &own("n2")).await.unwrap();
    let (_, part) = watch.next().await.unwrap();
    assert_eq!(names(&part), ["n1", "n2"]);
    assert_eq!(part.nodes[1].address, own("n2").mesh_address);
    let moved = Registration {
        mesh_address: "192.0.2.8:15008".parse().unwrap(),
        ..own("n2")
    };
    let third = discover(&n2, &moved).await.unwrap();
    drop(second);
    let (_, part) = watch.next().await.unwrap();
    assert_eq!(part.nodes[1].address, moved.mesh_address);
    drop((third, n2));
    let mut present = control.nodes.watch_present();
    present
        .wait_for(|present| present.len() == 1)
        .await
        .unwrap();
    control.nodes.forget(&node("n1"));
    assert_eq!(control.nodes.away(), [node("n2")]);
    assert_eq!(control.nodes.reached().len(), 2);
    control.nodes.forget(&node("n2"));
    let (_, part) = watch.next().await.unwrap();
    assert_eq!(names(&part), ["n1"]);
    assert_eq!(part.generation, control.board.generation());
}

#[tokio::test]
async fn a_control_plane_that_comes_back_knows_where_nodes_were() {
    let control = Control::empty().await;
    control.board.put(mesh(TWO_NODES));
    let stranger = control.stranger("192.0.2.9").await;
    join(&stranger, &control.token("n2"), "n2").await.unwrap();
    let n2 = control.node("n2").await;
    let mut watch = discover(&n2, &own("n2")).await.unwrap();
    watch.next().await.unwrap();
    let address = own("n2").mesh_address;
    let members = control.authority.members(at(NOW));
    assert_eq!(members[0].address, Some(address));

    // A stored address is announced until the node gives a newer one, and does not make the node present.
    let nodes = Nodes::default();
    nodes.remember(&node("n2"), address);
    let board = Board::new(nodes.clone()).unwrap();
    board.put(mesh(TWO_NODES));
    assert_eq!(board.mesh().unwrap().nodes[0].address, address);
    assert!(nodes.present().is_empty());
    assert_eq!(nodes.away(), [node("n2")]);
    assert_eq!(nodes.confirmed(&node("n2")), None);
    let moved = "192.0.2.8:15008".parse().unwrap();
    let presence = nodes.arrive(&node("n2"), moved).unwrap();
    nodes.remember(&node("n2"), address);
    assert_eq!(nodes.reached()[&node("n2")], moved);
    drop(presence);
    nodes.forget(&node("n2"));
    assert!(nodes.reached().is_empty());
}

#[tokio::test]
async fn accounts_are_issued_to_the_node_that_the_newest_mesh_names() {
    let control = Control::empty().await;
    control.board.put(mesh(TWO_NODES));
    let (n1, n2) = (control.node("n1").await, control.node("n2").await);
    n1.issue(&workload("cart"), &request()).await.unwrap();
    let why = refused(n2.issue(&workload("cart"), &request()).await);
    assert!(
        why.contains("no workload with that service account"),
        "{why}"
    );

    let moved = TWO_NODES.replace("nodeName: n1", "nodeName: n2");
    control.board.put(mesh(&moved));
    n2.issue(&workload("cart"), &request()).await.unwrap();
    refused(n1.issue(&workload("cart"), &request()).await);
}

#[tokio::test]
async fn no_node_acts_for_a_workload_with_an_envoy_of_its_own() {
    let control = Control::empty().await;
    let name = "{name: cart, namespace: shop, labels: {app: cart}}";
    let own = "{name: cart, namespace: shop, labels: {app: cart}, annotations: {heddle.dev/proxy: envoy}}";
    let envoy = TWO_NODES.replace(name, own);
    control.board.put(mesh(&envoy));
    let n1 = control.node("n1").await;
    let why = refused(n1.issue(&workload("cart"), &request()).await);
    assert!(
        why.contains("no workload with that service account"),
        "{why}"
    );
    // Another workload of the account is served by the node.
    let beside = "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
                  metadata: {name: cart-2, namespace: shop}\n\
                  spec: {nodeName: n1, address: 127.1.0.3, serviceAccountName: cart}\n";
    control.board.put(mesh(&format!("{envoy}---\n{beside}")));
    n1.issue(&workload("cart"), &request()).await.unwrap();
}

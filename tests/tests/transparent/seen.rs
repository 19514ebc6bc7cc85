//! What programs that are spoken to in bytes see of who calls.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use heddle_lab::lab::Family::{self, V4, V6};

use crate::load::told;
use crate::programs::Serving;
use crate::stage::{Scene, Stage};

/// One port that is declared to carry bytes, and one of which nothing is known.
const PORTS: [u16; 2] = [7001, 7002];

/// `wide` listens by both families, `narrow` by IPv4 only, and `four` has no other.
fn scene() -> Scene {
    let ports = "{name: tcp-said, port: 7001}, {name: said, port: 7002}";
    let mut scene = Scene::default()
        .pod("near", "one")
        .pod("far", "two")
        .pod_of_six("near6", "one")
        .pod_of_six("far6", "two")
        .pod_of_four("four", "one")
        .outsider("stranger", "one")
        .service("four", ports);
    for name in ["wide", "narrow"] {
        scene = scene.pod(name, "one").service(name, ports);
    }
    scene
}

fn servers(stage: &Stage) -> Vec<Serving> {
    let of = |(pod, any): (&'static str, &'static str)| {
        PORTS.map(|port| {
            let command = stage.own(pod, &format!("say {any}:{port}"));
            stage.serve_by(pod, port, command)
        })
    };
    let pods = [("wide", "[::]"), ("narrow", "0.0.0.0"), ("four", "0.0.0.0")];
    pods.into_iter().flat_map(of).collect()
}

/// What a program sees of a client that dials it.
fn seen(stage: &Stage, client: &str, to: SocketAddr) -> String {
    let mut command = stage.own(client, &format!("hear {to}"));
    let output = command.stdin(Stdio::null()).output().expect("runs");
    said(&output.stdout)
}

fn said(output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output).into_owned();
    told(&output)
        .first()
        .map(ToString::to_string)
        .unwrap_or(output)
}

#[test]
fn programs_see_their_clients_or_the_node_and_never_themselves() {
    if let Some(stage) = scene().up() {
        look(&stage);
    }
}

#[test]
fn so_it_is_with_packet_filters() {
    if let Some(stage) = scene().filtered().up() {
        look(&stage);
    }
}

fn look(stage: &Stage) {
    let _servers = servers(stage);
    let pods = ["near", "far", "near6", "far6", "four", "wide", "narrow"];
    for pod in pods {
        stage.until_served(pod);
    }
    let cluster = |service: &str, family| stage.cluster_address(service, family);
    let own = |pod: &str, family: Family| stage.address_of(pod, family);
    let node = |family| stage.address_of_node("wide", family);
    let mut wrong = Vec::new();
    let mut expect = |client: &str, to: IpAddr, expected: IpAddr, what: &str| {
        for port in PORTS {
            let seen = seen(stage, client, SocketAddr::new(to, port));
            if seen != expected.to_string() {
                wrong.push(format!(
                    "{what}, port {port}: seen as {seen}, not {expected}"
                ));
            }
        }
    };
    // On one node every client is seen, whichever family it dials, by name …
    for family in [V4, V6] {
        let (to, expected) = (cluster("wide", family), own("near", family));
        expect("near", to, expected, &format!("same node, {family:?}"));
        // … or address.
        let to = own("wide", family);
        expect("near", to, expected, &format!("its address, {family:?}"));
    }
    let six = own("near6", V6);
    expect(
        "near6",
        cluster("wide", V6),
        six,
        "same node, a client of IPv6",
    );
    // Where the program is not there by the family that was dialled, by the other one, if they have it …
    for server in ["narrow", "four"] {
        let (to, expected) = (cluster(server, V6), own("near", V4));
        expect("near", to, expected, &format!("{server} by IPv6"));
        // … else as the node.
        expect(
            "near6",
            to,
            node(V4),
            &format!("{server} by a client of IPv6"),
        );
    }
    // Of clients on another node only this node is seen.
    for family in [V4, V6] {
        let what = format!("another node, {family:?}");
        expect("far", cluster("wide", family), node(V4), &what);
        expect("far", own("wide", family), node(V4), &what);
    }
    expect(
        "far6",
        cluster("wide", V6),
        node(V4),
        "another node, a client of IPv6",
    );
    // Outside of the mesh.
    for family in [V4, V6] {
        let expected = own("stranger", family);
        expect(
            "stranger",
            own("wide", family),
            expected,
            &format!("a stranger, {family:?}"),
        );
    }
    // Who calls itself is itself.
    expect("wide", cluster("wide", V4), own("wide", V4), "itself");
    // A client at an address that means something else in the pod.
    let to = own("wide", V6);
    for port in PORTS {
        let from = format!("[{}%{BRIDGE}]:0", link_local(stage));
        let role = format!("hear {} {from}", SocketAddr::new(to, port));
        let output = stage.own_on("one", &role).output().expect("runs");
        let seen = said(&output.stdout);
        if seen != node(V6).to_string() {
            wrong.push(format!("a link-local client, port {port}: seen as {seen}"));
        }
    }
    // A pod that gives itself another's address is seen by its own.
    let others = own("far", V4);
    let address = |what: &str| {
        let mut ip = stage.pod("near").command("ip").expect("a pod");
        let named = format!("{others}/32");
        let done = ip.args(["address", what, &named, "dev", "lo"]).status();
        assert!(done.expect("ip runs").success(), "{what} {named}");
    };
    address("add");
    for port in PORTS {
        let to = SocketAddr::new(cluster("wide", V4), port);
        let role = format!("hear {to} {others}:0");
        let output = stage.own("near", &role).output().expect("runs");
        let seen = said(&output.stdout);
        if seen != own("near", V4).to_string() {
            wrong.push(format!("as {others}, port {port}: seen as {seen}"));
        }
    }
    address("del");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The link of a node to its pods.
const BRIDGE: u32 = 2;

/// The node's link-local address towards its pods.
fn link_local(stage: &Stage) -> String {
    let mut ip = stage.node("one").command("ip").expect("a node");
    let shown = ip.args([
        "-6", "-o", "address", "show", "dev", "pods", "scope", "link",
    ]);
    let output = shown.output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "inet6");
    let address = words.nth(1).and_then(|word| word.split('/').next());
    address.unwrap_or_else(|| panic!("none: {text}")).to_owned()
}

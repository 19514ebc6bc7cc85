//! The caller's address that programs on byte-stream ports see.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use heddle_lab::lab::Family::{self, V4, V6};

use crate::load::told;
use crate::programs::Serving;
use crate::stage::{Scene, Stage};

/// One port declared as a byte stream, and one undeclared.
const PORTS: [u16; 2] = [7001, 7002];

/// `wide` listens on both families, `narrow` only on IPv4, and `four` has only IPv4.
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

/// The address that a server sees of a client that dials it.
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
    // Within a node the server sees every client's own address, for either family, if it is called by name …
    for family in [V4, V6] {
        let (to, expected) = (cluster("wide", family), own("near", family));
        expect("near", to, expected, &format!("same node, {family:?}"));
        // … or by address.
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
    // If the server does not listen on the dialled family, it sees the client's address of the other family, if client
    // and server have one …
    for server in ["narrow", "four"] {
        let (to, expected) = (cluster(server, V6), own("near", V4));
        expect("near", to, expected, &format!("{server} by IPv6"));
        // … or else the node's address.
        expect(
            "near6",
            to,
            node(V4),
            &format!("{server} by a client of IPv6"),
        );
    }
    // For clients on another node the server sees its own node's address.
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
    // A client outside of the mesh.
    for family in [V4, V6] {
        let expected = own("stranger", family);
        expect(
            "stranger",
            own("wide", family),
            expected,
            &format!("a stranger, {family:?}"),
        );
    }
    // A pod that calls itself sees its own address.
    expect("wide", cluster("wide", V4), own("wide", V4), "itself");
    // A client whose address has another meaning inside the server's pod.
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
    // A pod that takes over another pod's address is still seen with its own.
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

/// Interface index of the node's link to its pods.
const BRIDGE: u32 = 2;

/// The node's link-local address on the link to its pods.
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

//! The client address that a program sees on TCP connections.

use std::net::{IpAddr, SocketAddr};

use heddle_intercept::PodId;
use heddle_intercept::channel::ToHolder;
use heddle_intercept::fixture::Holder;
use heddle_model::{AppProtocol, Mesh};

use super::bed::{ECHO, NODE, Steered, mesh, name, settings, sockets};
use crate::nodes::pair::Pair;
use crate::support::{PATIENCE, Upstream, wait_until};

const BYTES: [AppProtocol; 2] = [AppProtocol::Tcp, AppProtocol::Undeclared];

/// The IPv6 cluster address of the echo Service.
const SERVICE6: &str = "[fd96::1]:80";

/// The mesh with dual-stack workloads; echo has an IPv6 address only if `is_echo_too`. This machine has none of the
/// IPv6 addresses.
fn of_both(mut mesh: Mesh, is_echo_too: bool) -> Mesh {
    mesh.services[0].addresses.push("fd96::1".parse().unwrap());
    for (workload, last) in mesh.workloads.iter_mut().zip([9, 3, 2]) {
        if is_echo_too || workload.name != name("echo") {
            let further = format!("fd30::{last}");
            workload.more_addresses = vec![further.parse().unwrap()];
        }
    }
    mesh.check_invariants().unwrap();
    mesh
}

#[test]
fn who_dials_the_other_family_is_seen_there_or_by_its_address_of_this_one() {
    for (protocol, is_echo_too) in BYTES
        .into_iter()
        .flat_map(|one| [(one, true), (one, false)])
    {
        let upstream = Upstream::at(ECHO);
        let mesh = of_both(mesh(upstream.address, protocol), is_echo_too);
        let steered = Steered::new(&mesh, &["echo", "shop"]);
        let client = steered
            .dial("shop", SERVICE6.parse().unwrap())
            .sending("hello\n");
        let port = client.stream.local_addr().unwrap().port();
        let mut server = upstream.accept();
        assert_eq!(server.exact(6), b"hello\n");
        let seen = SocketAddr::from(([127, 30, 0, 2], port));
        assert_eq!(server.stream.peer_addr().unwrap(), seen);
        // If the program has an address of the dialled family, that is tried first: with the client's port, then with
        // any port.
        let there = |port| (1, Some(SocketAddr::new("fd30::2".parse().unwrap(), port)));
        let mut asked = Vec::new();
        if is_echo_too {
            asked.extend([there(port), there(0)]);
        }
        asked.push((1, Some(seen)));
        steered.expect_asked(&asked);
    }
}

#[test]
fn who_has_dialled_one_very_address_is_led_to_no_other() {
    let upstream = Upstream::at(ECHO);
    let mesh = of_both(mesh(upstream.address, AppProtocol::Tcp), true);
    let steered = Steered::new(&mesh, &["echo", "shop"]);
    let address = SocketAddr::new("fd30::9".parse().unwrap(), upstream.address.port());
    assert_eq!(steered.dial("shop", address).rest(), b"");
    assert!(upstream.is_quiet());
    let is_of_six = |(_, source): &(u32, Option<SocketAddr>)| {
        source.is_some_and(|source| source.is_ipv6() || source.ip() == NODE)
    };
    let asked = steered.asked();
    assert!(asked.iter().all(is_of_six), "{asked:?}");
}

#[test]
fn who_cannot_be_shown_is_seen_as_the_node_and_never_as_the_pod() {
    for protocol in BYTES {
        let (upstream, steered) = Steered::scripted(protocol, &["echo"]);
        // The client's address would mean the pod itself there, a loopback address.
        let _client = steered.arrive("echo", upstream.address).sending("hello\n");
        let mut server = upstream.accept();
        assert_eq!(server.exact(6), b"hello\n");
        assert_eq!(server.stream.peer_addr().unwrap().ip(), NODE);
        steered.expect_asked(&[(1, Some(SocketAddr::new(NODE, 0)))]);
    }
}

#[test]
fn who_calls_from_another_node_is_seen_as_the_node() {
    for protocol in BYTES {
        let upstream = Upstream::at(ECHO);
        let pair = Pair::of(&settings(), mesh(upstream.address, protocol));
        let (holder, channel) = Holder::start().unwrap();
        pair.called.proxy.sockets(sockets(channel));
        let pods = [(name("echo"), PodId(1))].into_iter().collect();
        pair.called.proxy.pods(std::sync::Arc::new(pods));
        // When this mesh is in effect, earlier orders are too.
        pair.apply(&pair.mesh);
        let _client = pair.sending("shop", "hello\n");
        let mut server = upstream.accept();
        assert_eq!(server.exact(6), b"hello\n");
        let seen: IpAddr = server.stream.peer_addr().unwrap().ip();
        assert_eq!(seen, NODE);
        let sources = || {
            let heard = holder.heard().into_iter();
            let sources = heard.filter_map(|said| match said {
                ToHolder::Open { source, .. } => Some(source),
                _ => None,
            });
            sources.collect::<Vec<_>>()
        };
        // The holder notes what it was asked after it has answered.
        wait_until("the holder was asked", PATIENCE, || !sources().is_empty());
        assert_eq!(sources(), [Some(SocketAddr::new(NODE, 0))], "{protocol:?}");
    }
}

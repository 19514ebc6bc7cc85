//! Status of the other nodes: their entries in the mesh, and the connections between them and this node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use heddle_model::{Mesh, Node};
use heddle_proxy::{Peer, PeerStatus};

use crate::status::{ConnectionsStatus, OtherStatus};

/// The nodes of the mesh except `own`, then connected peers that are not in the mesh.
pub(super) fn others(
    mesh: &Mesh,
    own: Option<&str>,
    peers: &BTreeMap<Peer, PeerStatus>,
    now: Instant,
) -> Vec<OtherStatus> {
    let nodes = || mesh.nodes.iter();
    let mut all: Vec<OtherStatus> = nodes()
        .filter(|node| own != Some(node.name.as_str()))
        .map(|node| {
            let status = OtherStatus {
                node: Some(node.name.to_string()),
                address: node.address.to_string(),
                ..OtherStatus::default()
            };
            let ip = node.address.ip().to_canonical();
            let called = Some(Peer::At(node.address));
            let caller = is_ones(mesh, ip).then_some(Peer::From(ip));
            let both = called.into_iter().chain(caller);
            both.fold(status, |status, peer| match peers.get(&peer) {
                Some(shown) => with(status, peer, shown, now),
                None => status,
            })
        })
        .collect();
    let is_known = |peer: &Peer| match peer {
        Peer::At(address) => nodes().any(|node| node.address == *address),
        Peer::From(ip) => is_ones(mesh, *ip),
    };
    // A peer that is not in the mesh is listed only while connected: its past failures do not matter.
    let strangers = peers
        .iter()
        .filter(|(peer, shown)| !is_known(peer) && shown.is_connected());
    all.extend(strangers.map(|(peer, shown)| {
        let status = OtherStatus {
            address: match peer {
                Peer::At(address) => address.to_string(),
                Peer::From(ip) => ip.to_string(),
            },
            ..OtherStatus::default()
        };
        with(status, *peer, shown, now)
    }));
    all
}

/// Whether exactly one node of the mesh has this IP address.
fn is_ones(mesh: &Mesh, ip: IpAddr) -> bool {
    let is_there = |node: &&Node| node.address.ip().to_canonical() == ip;
    let mut there = mesh.nodes.iter().filter(is_there);
    there.next().is_some() && there.next().is_none()
}

fn with(mut status: OtherStatus, peer: Peer, shown: &PeerStatus, now: Instant) -> OtherStatus {
    let ago_s = |then: Instant| now.saturating_duration_since(then).as_secs();
    let connections = ConnectionsStatus {
        links_up: shown.links_up,
        links_connecting: shown.links_connecting,
        links_cut: shown.links_cut,
        cut_for_s: shown.cut_since.map(ago_s),
        streams: shown.streams,
        http2_connections: shown.http2_connections,
        http1_connections: shown.http1_connections,
    };
    match peer {
        Peer::At(_) => status.to = connections,
        Peer::From(_) => status.from = connections,
    }
    if let Some(failure) = shown.failure {
        status.failure = Some(failure.code.to_owned());
        status.failure_ago_s = Some(ago_s(failure.at));
    }
    status
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use heddle_model::NodeName;
    use heddle_proxy::PeerFailure;

    use super::*;

    fn mesh(nodes: &[(&str, &str)]) -> Mesh {
        let node = |(name, address): &(&str, &str)| Node {
            name: NodeName::parse(name).unwrap(),
            address: address.parse().unwrap(),
        };
        Mesh {
            nodes: nodes.iter().map(node).collect(),
            ..Mesh::default()
        }
    }

    fn links(up: usize) -> PeerStatus {
        PeerStatus {
            links_up: up,
            ..PeerStatus::default()
        }
    }

    #[test]
    fn nodes_are_listed_with_what_there_is_in_both_directions() {
        let now = Instant::now();
        let mesh = mesh(&[
            ("a", "10.0.0.1:15008"),
            ("b", "10.0.0.2:15008"),
            ("c", "10.0.0.3:15008"),
        ]);
        let at = |text: &str| Peer::At(text.parse::<SocketAddr>().unwrap());
        let from = |text: &str| Peer::From(text.parse::<IpAddr>().unwrap());
        let lost = PeerStatus {
            links_cut: 1,
            cut_since: now.checked_sub(Duration::from_secs(4)),
            streams: 2,
            failure: now
                .checked_sub(Duration::from_secs(5))
                .map(|at| PeerFailure {
                    code: "link_lost",
                    at,
                }),
            ..PeerStatus::default()
        };
        let only_failed = PeerStatus {
            links_cut: 0,
            ..lost
        };
        let peers = BTreeMap::from([
            (at("10.0.0.2:15008"), lost),
            (from("10.0.0.2"), links(3)),
            (from("10.0.0.9"), links(1)),
            (at("10.0.0.8:1"), only_failed),
        ]);
        let all = others(&mesh, Some("a"), &peers, now);
        let names = all.iter().map(|one| (one.node.as_deref(), &*one.address));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                (Some("b"), "10.0.0.2:15008"),
                (Some("c"), "10.0.0.3:15008"),
                (None, "10.0.0.9")
            ]
        );
        let b = &all[0];
        assert_eq!(
            (b.to.links_cut, b.to.cut_for_s, b.to.streams),
            (1, Some(4), 2)
        );
        assert_eq!(
            (b.failure.as_deref(), b.failure_ago_s),
            (Some("link_lost"), Some(5))
        );
        assert_eq!((b.from.links_up, all[2].from.links_up), (3, 1));
        assert_eq!(all[1].to, ConnectionsStatus::default());
    }

    #[test]
    fn of_nodes_at_one_address_it_is_not_known_which_one_calls() {
        let mesh = mesh(&[("a", "10.0.0.1:1"), ("b", "10.0.0.1:2")]);
        let caller = Peer::From("10.0.0.1".parse().unwrap());
        let peers = BTreeMap::from([(caller, links(1))]);
        let all = others(&mesh, Some("a"), &peers, Instant::now());
        let shown = all
            .iter()
            .map(|one| (one.node.as_deref(), one.from.links_up));
        assert_eq!(shown.collect::<Vec<_>>(), [(Some("b"), 0), (None, 1)]);
    }
}

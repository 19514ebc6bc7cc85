//! The addresses of a lab. Every lab uses the same ones, since no packet leaves its namespaces.
//!
//! ```text
//!              IPv4                 IPv6
//!   pods       10.N.0.0/16          fd68:6c:0:N::/64      of node N
//!   gateways   10.250.N.1           fd68:6c:fa:N::1       of node N, DNS as well
//!   underlay   10.251.0.N           fd68:6c:fb::N         of node N; …255.254, …ffff its own namespace
//!   services   10.96.0.0/16         fd68:6c:60::/64
//! ```
//!
//! Gateways are outside the pods' range, so a mesh that intercepts that range does not intercept DNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::file::Family;

#[cfg(test)]
mod tests;

/// Limit of nodes in one lab.
pub(super) const MAX_NODES: usize = 60;
/// Limit of pods on one node: a bridge has 1024 ports.
pub(super) const MAX_PODS: usize = 1000;
/// Limit of Services in one lab.
pub(super) const MAX_SERVICES: usize = 10_000;

/// Values used for the last octet, 1 to 250: none looks like a network or broadcast address.
const PER_OCTET: u16 = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: IpAddr,
    pub(super) bits: u8,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// Both families, IPv4 first.
pub(super) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn v6(group: u16, node: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd68, 0x6c, group, node, 0, 0, 0, last))
}

fn v4(second: u16, third: u16, fourth: u16) -> IpAddr {
    let [second, third, fourth] = [second, third, fourth].map(|part| part.to_le_bytes()[0]);
    IpAddr::V4(Ipv4Addr::new(10, second, third, fourth))
}

/// The range of the pods of node `node` (from 1).
pub(super) fn pods(node: u16, family: Family) -> Range {
    match family {
        Family::V4 => range(v4(node, 0, 0), 16),
        Family::V6 => range(v6(0, node, 0), 64),
    }
}

/// The address of pod `pod` (from 1) of node `node` (from 1).
pub(super) fn pod(node: u16, pod: u16, family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(node, 1 + (pod - 1) / PER_OCTET, 1 + (pod - 1) % PER_OCTET),
        Family::V6 => v6(0, node, pod),
    }
}

/// The default gateway of a node's pods, where its DNS listens too.
pub(super) fn gateway(node: u16, family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(250, node, 1),
        Family::V6 => v6(0xfa, node, 1),
    }
}

/// A node's own address, where other nodes reach it.
pub(super) fn underlay(node: u16, family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(251, 0, node),
        Family::V6 => v6(0xfb, 0, node),
    }
}

/// The address of the underlay's namespace, where the control plane is.
pub(super) fn hub(family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(251, 255, 254),
        Family::V6 => v6(0xfb, 0, 0xffff),
    }
}

/// Prefix length of the underlay's network.
pub(super) fn underlay_bits(family: Family) -> u8 {
    match family {
        Family::V4 => 16,
        Family::V6 => 64,
    }
}

/// The cluster address of Service `service` (from 1).
pub(super) fn service(service: u16, family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(96, (service - 1) / PER_OCTET, 1 + (service - 1) % PER_OCTET),
        Family::V6 => v6(0x60, 0, service),
    }
}

/// The ranges that a mesh intercepts: the Services, and the pods of `nodes` nodes.
pub(super) fn mesh(nodes: u16) -> Vec<Range> {
    let services = [range(v4(96, 0, 0), 16), range(v6(0x60, 0, 0), 64)];
    let pods = (1..=nodes).flat_map(|node| FAMILIES.map(|family| pods(node, family)));
    services.into_iter().chain(pods).collect()
}

fn range(first: IpAddr, bits: u8) -> Range {
    Range { first, bits }
}

/// Prefix length of a single address.
pub(super) fn all_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

//! Binary layout of keys and values in the maps, as declared in `bpf/types.h`.

use std::net::{IpAddr, Ipv6Addr};

use aya::maps::lpm_trie::Key;
use heddle_model::Cidr;

use crate::{Fate, MAX_EXCLUDED, PortRange};

#[cfg(test)]
mod tests;

/// An IPv6 address, or an IPv4-mapped one (`::ffff:a.b.c.d`).
pub(super) type Address = [u8; 16];
/// A network without its prefix length: 4 bytes of scope, then the address.
pub(super) type Network = [u8; 20];
/// `struct pod`.
pub(super) type PodBytes = [u8; 152];
/// `struct pending`.
pub(super) type Pending = [u8; 8];
/// `struct handshake`.
pub(super) type Handshake = [u8; 32];
/// `struct destination`.
pub(super) type Destination = [u8; 24];

/// `struct visit`.
pub(super) type Visit = [u8; 36];

const REFUSE: u32 = 0;
const PASS: u32 = 1;
const GUARDED: u8 = 1;
const NETWORKS: u8 = 2;

/// Bits of a key before those of the network itself: the scope, and the prefix of IPv4-mapped addresses.
const SCOPE_BITS: u32 = 32;
const MAPPED_BITS: u32 = 96;

/// The fields of `struct pod`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodEntry {
    /// Key of the pod's excluded networks. Never 0, which is the scope of the mesh.
    pub(super) scope: u32,
    pub(super) epoch: u32,
    pub(super) fate: Fate,
    pub(super) outbound_port: u16,
    pub(super) is_guarded: bool,
    pub(super) has_networks: bool,
    pub(super) inbound: Vec<PortRange>,
    pub(super) outbound: Vec<PortRange>,
}

impl PodEntry {
    pub(super) fn encode(&self) -> PodBytes {
        let mut bytes = [0; 152];
        bytes[0..4].copy_from_slice(&self.scope.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.epoch.to_ne_bytes());
        let fate = match self.fate {
            Fate::Refuse => REFUSE,
            Fate::Pass => PASS,
        };
        bytes[8..12].copy_from_slice(&fate.to_ne_bytes());
        bytes[12..14].copy_from_slice(&self.outbound_port.to_be_bytes());
        bytes[14] = GUARDED * u8::from(self.is_guarded) + NETWORKS * u8::from(self.has_networks);
        bytes[15] = ranges(&mut bytes[24..88], &self.inbound);
        bytes[16] = ranges(&mut bytes[88..152], &self.outbound);
        bytes
    }
}

/// Writes the ranges and returns their number.
fn ranges(bytes: &mut [u8], ranges: &[PortRange]) -> u8 {
    let mut count = 0;
    for (bytes, range) in bytes.chunks_exact_mut(4).zip(ranges).take(MAX_EXCLUDED) {
        bytes[0..2].copy_from_slice(&range.first().to_ne_bytes());
        bytes[2..4].copy_from_slice(&range.last().to_ne_bytes());
        count += 1;
    }
    count
}

/// Converts the entry of a pod that an earlier process guarded: no proxy serves it, it is refused, and it has no
/// excluded networks, since their entries are not taken over. `None` when it was not guarded.
pub(super) fn orphan(mut pod: PodBytes) -> Option<PodBytes> {
    if pod[14] & GUARDED == 0 {
        return None;
    }
    // Scope 0 and epoch 0, which no enrolled pod has; fate 0 is to refuse.
    pod[0..12].fill(0);
    pod[14] = GUARDED;
    Some(pod)
}

/// The same entry without the guard flag. An entry with scope 0, which no holder has enrolled, gets the fate to pass.
pub(super) fn unguarded(mut pod: PodBytes) -> PodBytes {
    pod[14] &= !GUARDED;
    if pod[0..4] == [0; 4] {
        pod[8..12].copy_from_slice(&PASS.to_ne_bytes());
    }
    pod
}

pub(super) fn address(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The reverse of [`address`].
pub(super) fn ip_address(address: Address) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

/// A network of the mesh (scope 0) or of one pod.
pub(super) fn network(scope: u32, cidr: Cidr) -> Key<Network> {
    let mut bytes = [0; 20];
    bytes[0..4].copy_from_slice(&scope.to_ne_bytes());
    bytes[4..20].copy_from_slice(&address(cidr.network()));
    let before = match cidr.network() {
        IpAddr::V4(_) => SCOPE_BITS + MAPPED_BITS,
        IpAddr::V6(_) => SCOPE_BITS,
    };
    Key::new(before + u32::from(cidr.prefix()), bytes)
}

pub(super) fn pending(scope: u32) -> Pending {
    let mut bytes = [0; 8];
    bytes[0..4].copy_from_slice(&scope.to_ne_bytes());
    bytes
}

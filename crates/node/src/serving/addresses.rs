//! Assigns a loopback address to each Service and caller.
//!
//! Without root, callers are told apart by the address that they dial: each pair of caller and Service has one, and one
//! more per Service is for all other callers. Addresses come from 127.64.0.0/10, four million that Linux accepts
//! without any set-up.
//!
//! An address is a hash of the names, so that it is the same after a restart and on every machine. When two names
//! collide, the later one probes further; assigned addresses never move when others come or go. This module opens no
//! sockets.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use heddle_model::{ServiceName, WorkloadName};

/// First address of the range, 127.64.0.0.
const BASE: u32 = 0x7f40_0000;
/// Host bits of 127.64.0.0/10.
const HOST_BITS: u32 = 22;
const SIZE: u32 = 1 << HOST_BITS;
const MAX_FOREIGN: usize = 4_096;

/// What an address is assigned to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Slot {
    /// A Service as dialled by the workload `caller`, or by any other caller (`None`).
    Service {
        service: ServiceName,
        caller: Option<WorkloadName>,
    },
    /// A workload's forward proxy.
    ForwardProxy { caller: WorkloadName },
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Service {
                service,
                caller: Some(caller),
            } => write!(f, "{service} for {caller}"),
            Slot::Service {
                service,
                caller: None,
            } => write!(f, "{service}"),
            Slot::ForwardProxy { caller } => write!(f, "forward proxy of {caller}"),
        }
    }
}

impl Slot {
    /// Start and step of the probe sequence, from the names. The step is odd, so that it reaches every address of the
    /// range.
    fn hash(&self) -> (u32, u32) {
        let hash = match self {
            Slot::Service {
                service,
                caller: Some(caller),
            } => fnv1a(&["c", &caller.to_string(), &service.to_string()]),
            Slot::Service {
                service,
                caller: None,
            } => fnv1a(&["s", &service.to_string()]),
            Slot::ForwardProxy { caller } => fnv1a(&["p", &caller.to_string()]),
        };
        let first = (hash >> 32) as u32 % SIZE;
        let step = (hash as u32 % SIZE) | 1;
        (first, step)
    }

    /// Candidate addresses for this slot, best first.
    fn candidates(&self) -> impl Iterator<Item = Ipv4Addr> {
        let (first, step) = self.hash();
        (0..SIZE)
            .map(move |n| BASE + first.wrapping_add(n.wrapping_mul(step)) % SIZE)
            // Some programs take these for a network address or a broadcast address.
            .filter(|address| !matches!(address & 0xff, 0 | 0xff))
            .map(Ipv4Addr::from)
    }
}

/// 64-bit FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>) over the parts, each ended by a zero byte, which no
/// name holds. MurmurHash3's finalizer mixes the result, because its two halves are used separately.
fn fnv1a(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Assigned addresses.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    assigned: BTreeMap<Slot, Ipv4Addr>,
    taken: BTreeSet<Ipv4Addr>,
    /// Addresses in use by other processes, which are not tried again. Cleared when there are [`MAX_FOREIGN`] of them.
    foreign: BTreeSet<Ipv4Addr>,
}

impl Addresses {
    /// Drops slots that are not `wanted` and assigns addresses to new ones, in their order. `reserved` addresses
    /// (workloads' own) are not given to new slots.
    pub(crate) fn update<'r>(
        &mut self,
        wanted: &BTreeSet<Slot>,
        reserved: impl Fn() -> &'r BTreeSet<Ipv4Addr>,
    ) {
        self.assigned.retain(|slot, address| {
            let stays = wanted.contains(slot);
            if !stays {
                self.taken.remove(address);
            }
            stays
        });
        for slot in wanted {
            if !self.assigned.contains_key(slot) {
                self.assign(slot.clone(), reserved());
            }
        }
    }

    /// The address of a slot; `None` when the range is used up.
    pub(crate) fn get(&self, slot: &Slot) -> Option<Ipv4Addr> {
        self.assigned.get(slot).copied()
    }

    /// Gives the slot another address, because another process uses its current one.
    pub(crate) fn move_away(
        &mut self,
        slot: &Slot,
        reserved: &BTreeSet<Ipv4Addr>,
    ) -> Option<Ipv4Addr> {
        if let Some(address) = self.assigned.remove(slot) {
            self.taken.remove(&address);
            if self.foreign.len() >= MAX_FOREIGN {
                self.foreign.clear();
            }
            self.foreign.insert(address);
        }
        self.assign(slot.clone(), reserved)
    }

    fn assign(&mut self, slot: Slot, reserved: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let free = slot.candidates().find(|address| {
            !self.taken.contains(address)
                && !self.foreign.contains(address)
                && !reserved.contains(address)
        })?;
        self.taken.insert(free);
        self.assigned.insert(slot, free);
        Some(free)
    }
}

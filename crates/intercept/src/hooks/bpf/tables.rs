//! The tables (BPF maps) of the programs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use aya::Ebpf;
use aya::maps::{Array, HashMap, LpmTrie, MapData, MapError, SockHash};
use heddle_model::Cidr;

use crate::hooks::layout::{
    self, Address, Destination, Handshake, Network, Pending, PodBytes, Visit,
};
use crate::hooks::pins::Orphans;
use crate::hooks::{FullTables, HookError, Range, loaded};

/// The tables, taken out of the object.
pub(super) struct Tables {
    pub(super) pods: HashMap<MapData, u64, PodBytes>,
    pub(super) pending: HashMap<MapData, u64, Pending>,
    pub(super) addresses: HashMap<MapData, Address, u64>,
    pub(super) listeners: SockHash<MapData, u64>,
    pub(super) handshakes: HashMap<MapData, Handshake, Destination>,
    pub(super) visits: HashMap<MapData, Visit, u8>,
    networks: LpmTrie<MapData, Network, u8>,
    epoch: Array<MapData, u32>,
    full: Array<MapData, u64>,
}

impl Tables {
    pub(super) fn take(object: &mut Ebpf) -> Result<Self, HookError> {
        Ok(Tables {
            pods: loaded::table(object, "pods")?,
            pending: loaded::table(object, "pendings")?,
            addresses: loaded::table(object, "addresses")?,
            listeners: loaded::table(object, "listeners")?,
            handshakes: loaded::table(object, "handshakes")?,
            visits: loaded::table(object, "visits")?,
            networks: loaded::table(object, "networks")?,
            epoch: loaded::table(object, "epoch")?,
            full: loaded::table(object, "full")?,
        })
    }

    /// How often tables were full; the indexes are those of `enum full_table`.
    pub(super) fn full(&self) -> FullTables {
        // Cannot fail: a BPF array always has all its entries.
        let count = |table| self.full.get(&table, 0).unwrap_or(0);
        FullTables {
            handshakes: count(0),
            visits: count(1),
        }
    }

    pub(super) fn set_epoch(&mut self, epoch: u32) -> Result<(), HookError> {
        refused("the epoch", self.epoch.set(0, epoch, 0))
    }

    /// Takes over pods that an earlier process guarded: they are refused until they are enrolled.
    pub(super) fn adopt(&mut self, orphans: &Orphans) -> Result<(), HookError> {
        for (cookie, pod) in &orphans.pods {
            refused("a guarded pod", self.pods.insert(cookie, pod, 0))?;
        }
        for (address, cookie) in &orphans.addresses {
            let inserted = self.addresses.insert(address, cookie, 0);
            refused("a guarded pod's address", inserted)?;
        }
        Ok(())
    }

    /// Removes the addresses of a pod except those that it has `now`.
    pub(super) fn remove_addresses(
        &mut self,
        cookie: u64,
        now: &[Address],
    ) -> Result<(), HookError> {
        let entries = self.addresses.iter().filter_map(Result::ok);
        let gone = entries.filter(|(address, owner)| *owner == cookie && !now.contains(address));
        let gone: Vec<Address> = gone.map(|(address, _)| address).collect();
        gone.iter().try_for_each(|address| {
            let result = self.addresses.remove(address);
            removed("an address that a pod had", result)
        })
    }

    /// Adds the address ranges of the mesh.
    pub(super) fn add_ranges(&mut self, ranges: &[Range]) -> Result<(), HookError> {
        let networks = ranges.iter().map(|range| range.network);
        self.keep_families_apart(0, networks)?;
        for range in ranges {
            let key = layout::network(0, range.network);
            let inserted = self.networks.insert(&key, u8::from(range.inside), 0);
            refused("an address range", inserted)?;
        }
        Ok(())
    }

    /// Adds a pod's excluded destination networks.
    pub(super) fn add_networks(&mut self, scope: u32, networks: &[Cidr]) -> Result<(), HookError> {
        self.keep_families_apart(scope, networks.iter().copied())?;
        for network in networks {
            let inserted = self
                .networks
                .insert(&layout::network(scope, *network), 1, 0);
            refused("an excluded network", inserted)?;
        }
        Ok(())
    }

    pub(super) fn remove_networks(
        &mut self,
        scope: u32,
        networks: &[Cidr],
    ) -> Result<(), HookError> {
        let mut done = Ok(());
        for network in networks
            .iter()
            .copied()
            .chain([all_v4()].into_iter().flatten())
        {
            let result = self.networks.remove(&layout::network(scope, network));
            done = done.and(removed("an excluded network", result));
        }
        done
    }

    /// Adds an opposite entry for all IPv4 addresses when there is an IPv6 network as wide as `::/0`: IPv4 addresses
    /// are stored in IPv4-mapped form, so that network would match them too.
    fn keep_families_apart(
        &mut self,
        scope: u32,
        mut networks: impl Iterator<Item = Cidr>,
    ) -> Result<(), HookError> {
        let is_wide = |cidr: Cidr| cidr.network().is_ipv6() && cidr.network().is_unspecified();
        match all_v4() {
            Some(all) if networks.any(is_wide) => {
                let inserted = self.networks.insert(&layout::network(scope, all), 0, 0);
                refused("all of IPv4", inserted)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

/// The network `0.0.0.0/0`.
fn all_v4() -> Option<Cidr> {
    Cidr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)
}

pub(super) fn refused<T>(what: &str, result: Result<T, MapError>) -> Result<T, HookError> {
    result
        .map_err(|error| HookError::refused(format!("cannot write {what} to a BPF table"), &error))
}

/// As [`refused`], for the removal of an entry: an entry that did not exist is no error.
pub(super) fn removed(what: &str, result: Result<(), MapError>) -> Result<(), HookError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        other => refused(what, other),
    }
}

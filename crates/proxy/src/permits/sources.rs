//! Addresses as sources, at a listener that any client may reach.
//!
//! An address proves nothing, and nothing is allowed by it: it only says whose connections are counted together, so that
//! one client leaves room for others. Of IPv6 a client has a network of addresses (RFC 4291, section 2.5.4), which count
//! as one.
//!
//! Each listener counts for itself: on loopback, where all clients have the same address, one that floods a Service
//! leaves the others' alone. There are never more addresses in the table than there are connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;

use super::{Permit, PermitRefusal, Refusals, Share, ShareOwner, may_take};

/// What a client's address is counted as: an IPv4 address, or the network of an IPv6 one, the first 64 bits. Those that
/// begin with 32 zeros are no client's (RFC 4291, section 2.4), so that the two do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Counted(u64);

/// Addresses for which there is room even if there are none.
const KEPT_ADDRESSES: usize = 64;

/// How many connections of each address there are.
#[derive(Debug)]
pub(crate) struct Sources {
    /// What all of them hold together.
    together: Arc<Share>,
    /// What each may hold, if that does not move.
    fixed: Option<usize>,
    held: Mutex<HashMap<Counted, usize, RandomState>>,
    refusals: Refusals,
}

/// A connection's place among those of its address, given back when it is dropped.
#[derive(Debug)]
pub(super) struct AddressPlace {
    sources: Arc<Sources>,
    address: Counted,
}

impl Sources {
    pub(super) fn new(together: Arc<Share>, fixed: Option<usize>) -> Arc<Self> {
        Arc::new(Sources {
            together,
            fixed,
            held: Mutex::default(),
            refusals: Refusals::new(),
        })
    }

    /// A permit for a client with that address.
    ///
    /// # Errors
    /// When all are taken, or the address has its share, or all of them together theirs.
    pub(crate) fn take(self: &Arc<Self>, client: IpAddr) -> Result<Permit, PermitRefusal> {
        let address = Counted::of(client);
        let mut permit = self.together.take()?;
        let mut all = self.held();
        let held = all.get(&address).copied().unwrap_or(0);
        let (bound, free) = self.together.room();
        // What the connection has already is free to it.
        if !may_take(bound, free.saturating_add(1), held, self.fixed) {
            return Err(PermitRefusal::Address);
        }
        all.insert(address, held + 1);
        permit.place = Some(AddressPlace {
            sources: Arc::clone(self),
            address,
        });
        Ok(permit)
    }

    /// Says that a connection was refused since all addresses together have their share.
    pub(crate) fn say_spent(&self, now: Instant) {
        self.together.say_spent(now);
    }

    /// Says that a connection was refused since its address has its share, unless that was said a moment ago.
    pub(crate) fn say_address(&self, client: IpAddr, port: u16, now: Instant) {
        let Some(refused) = self.refusals.one_more(now) else {
            return;
        };
        let held = self.held().get(&Counted::of(client)).copied().unwrap_or(0);
        let of = self.together.room().0;
        let pod = match &self.together.owner {
            ShareOwner::Strangers(workload) => Some(workload.to_string()),
            _ => None,
        };
        tracing::warn!(
            address = %client,
            port,
            pod,
            held,
            refused,
            of,
            "connections from an address are refused: it holds its share of those without an identity; look what \
             opens so many, or raise proxy.bounds.connections (and ulimit -n), or set \
             proxy.bounds.connections_per_address"
        );
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Counted, usize, RandomState>> {
        // Every change of it is whole before the next begins.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut all = self.sources.held();
        match all.get_mut(&self.address) {
            Some(held) if *held > 1 => *held -= 1,
            _ => {
                all.remove(&self.address);
                if all.capacity() > 2 * KEPT_ADDRESSES.max(4 * all.len()) {
                    let room = KEPT_ADDRESSES.max(2 * all.len());
                    all.shrink_to(room);
                }
            }
        }
    }
}

impl Counted {
    fn of(client: IpAddr) -> Self {
        Counted(match client.to_canonical() {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        })
    }
}

#[cfg(test)]
mod tests;

//! Client addresses as sources, at a listener that any client may reach.
//!
//! An address proves nothing and authorizes nothing: it only determines which connections are counted together, so that
//! one client leaves room for others. An IPv6 client has a whole network of addresses (RFC 4291, section 2.5.4), which
//! counts as one.
//!
//! Each listener counts separately: on loopback, where all clients have the same address, a client that floods one
//! Service does not affect other Services. The table never has more addresses than there are connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;

use super::{Permit, PermitRefusal, Refusals, Share, ShareOwner, may_take};

/// The key that a client's address is counted under: an IPv4 address, or the first 64 bits of an IPv6 address. An IPv6
/// address that begins with 32 zero bits is never a client's (RFC 4291, section 2.4), so the two kinds do not collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Counted(u64);

/// The table keeps capacity for this many addresses even when it is empty.
const KEPT_ADDRESSES: usize = 64;

/// Counts the connections of each address.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The share of all addresses together.
    together: Arc<Share>,
    /// Fixed limit for each address, in place of the moving share.
    fixed: Option<usize>,
    held: Mutex<HashMap<Counted, usize, RandomState>>,
    refusals: Refusals,
}

/// A connection's entry in the count of its address, removed on drop.
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

    /// Takes a permit for a client with that address.
    ///
    /// # Errors
    /// When the connection limit is reached, or the address, or all addresses together, have used up their share.
    pub(crate) fn take(self: &Arc<Self>, client: IpAddr) -> Result<Permit, PermitRefusal> {
        let address = Counted::of(client);
        let mut permit = self.together.take()?;
        let mut all = self.held();
        let held = all.get(&address).copied().unwrap_or(0);
        let (bound, free) = self.together.room();
        // The connection's own permit counts as free for it.
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

    /// Logs that a connection was refused because all addresses together have used up their share.
    pub(crate) fn say_spent(&self, now: Instant) {
        self.together.say_spent(now);
    }

    /// Logs that a connection was refused because its address has used up its share, unless that was logged a moment
    /// ago.
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
            "connections from an address are refused: it has used up its share of the connections without an identity; \
             find out what opens so many, or raise proxy.bounds.connections (and ulimit -n), or set \
             proxy.bounds.connections_per_address"
        );
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Counted, usize, RandomState>> {
        // A panic of another thread leaves the map intact: every change is complete before the next begins.
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

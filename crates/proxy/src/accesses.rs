//! What lazy callers use by this node as their gateway: told to the owner of the proxy, so that callers can learn it and go
//! direct.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use foldhash::fast::RandomState;
use heddle_model::ServiceAccountName;
use tokio::sync::mpsc;

use crate::clock::Millis;

#[cfg(test)]
mod tests;

/// What was told is told again at most this time later, in milliseconds: it may have been lost on its way.
const AGAIN_MS: Millis = 500;
/// Accesses that a Worker tells in that time. More come again.
const MAX_TOLD: usize = 1_024;
/// Accesses that wait for the owner. More are dropped: they come again.
const MAX_WAITING: usize = 1_024;

/// A caller uses what is at an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The account of the caller.
    pub caller: ServiceAccountName,
    /// A cluster address of a Service.
    pub address: IpAddr,
}

/// Where a proxy tells accesses.
#[derive(Debug, Clone)]
pub struct AccessSink(mpsc::Sender<Access>);

impl AccessSink {
    /// A sink, and what comes out of it.
    pub fn new() -> (Self, mpsc::Receiver<Access>) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        (AccessSink(sender), receiver)
    }
}

impl PartialEq for AccessSink {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

/// The accesses by one Worker.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    told: RefCell<Told>,
}

/// What was told since a time.
#[derive(Debug, Default)]
struct Told {
    /// In milliseconds of the Worker's clock.
    since: Millis,
    count: usize,
    by_address: HashMap<IpAddr, HashSet<ServiceAccountName, RandomState>, RandomState>,
}

impl Accesses {
    /// Notes an access, and tells it unless that was done a moment ago.
    pub(crate) fn note(
        &self,
        sink: Option<&AccessSink>,
        (caller, address): (&ServiceAccountName, IpAddr),
        now: Millis,
    ) {
        let Some(AccessSink(sink)) = sink else {
            return;
        };
        if !self.told.borrow_mut().is_due(caller, address, now) {
            return;
        }
        let access = Access {
            caller: caller.clone(),
            address,
        };
        // One that does not fit comes again.
        let _ = sink.try_send(access);
    }
}

impl Told {
    fn is_due(&mut self, caller: &ServiceAccountName, address: IpAddr, now: Millis) -> bool {
        if now.saturating_sub(self.since) >= AGAIN_MS {
            *self = Told {
                since: now,
                ..Told::default()
            };
        }
        let before = self.by_address.get(&address);
        let is_told = before.is_some_and(|callers| callers.contains(caller));
        if is_told || self.count == MAX_TOLD {
            return false;
        }
        self.count += 1;
        let callers = self.by_address.entry(address).or_default();
        callers.insert(caller.clone())
    }
}

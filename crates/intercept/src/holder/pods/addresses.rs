//! Follows address changes of enrolled pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{Found, Pods, READ_EVERY, READ_SHARE, said, sockets};
use crate::PodId;
use crate::holder::watch::Watches;
use crate::hooks::{HookError, Kind, MAX_ADDRESSES};
use crate::request::PodState;

/// Limit of addresses listed in a message; of further ones only the number is given.
const NAMED: usize = 5;
/// Delay before a retry after a failure.
const AGAIN: Duration = Duration::from_secs(1);

impl Pods {
    /// The descriptor that is ready for reading when an address has changed.
    pub(in crate::holder) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Schedules a read of the addresses of pods that have changed: now, or at the earliest permitted time.
    pub(in crate::holder) fn addresses_changed(&mut self) {
        let now = Instant::now();
        for id in self.watches.changed() {
            if let Some(pod) = self.pods.get_mut(&id)
                && pod.state != PodState::Releasing
            {
                pod.read.1 = Some(now.max(pod.read.0));
            }
        }
    }

    /// Reads the addresses of pods that are due. Returns whether a pod newly has an address that is not its own.
    pub(in crate::holder) fn follow(&mut self, now: Instant) -> bool {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let due = self.pods.values().filter(|pod| is_due(pod.read.1));
        let due: Vec<PodId> = due.map(|pod| pod.id).collect();
        let contested = due.into_iter().filter(|id| self.read(*id));
        // Not `any`, which would stop at the first: all of them must be read.
        contested.count() > 0
    }

    /// Schedules a read for pods with contested addresses, because another pod has given up some.
    pub(super) fn offer(&mut self) {
        let now = Instant::now();
        for pod in self.pods.values_mut() {
            if (!pod.others.is_empty() || pod.more > 0) && pod.state != PodState::Releasing {
                pod.read.1 = Some(now.max(pod.read.0));
            }
        }
    }

    /// Reads a pod's addresses. Returns whether it newly has an address that is not its own.
    fn read(&mut self, id: PodId) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        let started = Instant::now();
        let watched = self.watches.again(id, &pod.watch);
        let found = watched.and_then(|()| sockets::addresses(pod.netns.as_fd()));
        pod.read = (not_before(started), None);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                // Until they can be read, connections to new addresses are refused.
                tracing::error!(workload = %pod.workload, %error, "a pod's addresses cannot be read");
                pod.read.1 = Some(pod.read.0.max(started + AGAIN));
                return false;
            }
        };
        let Some(pod) = self.pods.get(&id) else {
            return false;
        };
        let divided = self.divided(id, found, &pod.addresses);
        let is_contested = self.set(id, divided);
        // The time for applying them counts, too.
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.read.0 = not_before(started);
        }
        is_contested
    }

    /// Divides the addresses found in a pod's namespace into its own and those of other pods.
    pub(super) fn divided(&self, id: PodId, found: Found, before: &[IpAddr]) -> Divided {
        let taken = self.all().filter(|other| other.id != id);
        let taken = taken.filter(|other| other.state != PodState::Releasing);
        let taken = taken.flat_map(|other| &other.addresses);
        let taken: BTreeSet<IpAddr> = taken
            .filter(|address| found.addresses.binary_search(address).is_ok())
            .copied()
            .collect();
        divide(found, before, |address| !taken.contains(address))
    }

    fn set(&mut self, id: PodId, divided: Divided) -> bool {
        let Divided { own, others, more } = divided;
        let is_contested = self.contest(id, others, more);
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        if own == pod.addresses {
            return is_contested;
        }
        let done = self.hooks.readdress(id, &own);
        self.readdressed(id, own, done);
        is_contested
    }

    /// Records the result of changing a pod's addresses in the hooks.
    pub(super) fn readdressed(&mut self, id: PodId, own: Vec<IpAddr>, done: Result<(), HookError>) {
        let Some(pod) = self.pods.get_mut(&id) else {
            return;
        };
        if done.is_err() {
            said(done);
            // The proxy must not use the new addresses as a source, although they are not yet recorded as the pod's.
            let new = own.into_iter().filter(|one| !pod.addresses.contains(one));
            pod.others.extend(new);
            pod.read.1 = Some(pod.read.0.max(Instant::now() + AGAIN));
            return;
        }
        tracing::info!(workload = %pod.workload, addresses = ?own, "a pod's addresses have changed");
        let before = std::mem::replace(&mut pod.addresses, own);
        if before.iter().any(|gone| !pod.addresses.contains(gone)) {
            self.offer();
        }
    }

    /// Records the addresses in a namespace that are not the pod's own, and the number of further ones. Returns
    /// whether one of them is new.
    pub(super) fn contest(&mut self, id: PodId, others: Vec<IpAddr>, more: usize) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        let is_contested = others.iter().any(|one| !pod.others.contains(one));
        if is_contested {
            let named = others.get(..NAMED).unwrap_or(&others);
            // Packet filter rules accept every address that the kernel calls local.
            let outcome = match self.hooks.kind() {
                Kind::Nft => {
                    "addresses of a pod are contested, and what arrives there goes through the proxy all the same"
                }
                Kind::Auto | Kind::Bpf => "what arrives at these addresses of a pod is refused",
            };
            tracing::warn!(
                workload = %pod.workload,
                addresses = ?named,
                more = others.len() - named.len() + more,
                "{outcome}: they are another enrolled pod's, or more than {MAX_ADDRESSES}"
            );
        }
        pod.others = others;
        pod.more = more;
        is_contested
    }
}

/// The addresses found in a pod's namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Divided {
    /// The pod's own.
    pub(super) own: Vec<IpAddr>,
    /// Those that are another pod's, or beyond the limit.
    pub(super) others: Vec<IpAddr>,
    /// Number of further ones.
    pub(super) more: usize,
}

/// Divides the addresses found. `before` are the pod's own addresses so far, which it keeps when there are too many.
fn divide(found: Found, before: &[IpAddr], is_free: impl Fn(&IpAddr) -> bool) -> Divided {
    let found_more = found.more;
    let found = found.addresses.into_iter();
    let (mut own, mut others): (Vec<IpAddr>, Vec<IpAddr>) = found.partition(is_free);
    // The addresses that it has already come first, so that they are kept.
    own.sort_by_key(|address| (!before.contains(address), *address));
    others.extend(own.drain(MAX_ADDRESSES.min(own.len())..));
    own.sort_unstable();
    let more = found_more + others.len().saturating_sub(MAX_ADDRESSES);
    others.truncate(MAX_ADDRESSES);
    Divided { own, others, more }
}

/// The earliest time for the next read, after one that began at `started` and ends now. So a pod with many addresses
/// that change all the time can take only a share of the holder's time.
pub(super) fn not_before(started: Instant) -> Instant {
    let now = Instant::now();
    now + READ_EVERY.max((now - started) * READ_SHARE)
}

#[cfg(test)]
mod tests;

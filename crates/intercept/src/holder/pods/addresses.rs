//! Following the addresses of enrolled pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{Found, Pods, READ_EVERY, READ_SHARE, said, sockets};
use crate::PodId;
use crate::holder::watch::Watches;
use crate::hooks::{HookError, Kind, MAX_ADDRESSES};
use crate::request::PodState;

/// So many addresses are named in a message; of more only the number is.
const NAMED: usize = 5;
/// How long after a failure addresses are read again.
const AGAIN: Duration = Duration::from_secs(1);

impl Pods {
    /// What is ready when an address has come or gone.
    pub(in crate::holder) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Addresses have come or gone: they are read now, or a moment after the last time.
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

    /// Reads the addresses that are to be read. Returns whether a pod has one that is another's.
    pub(in crate::holder) fn follow(&mut self, now: Instant) -> bool {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let due = self.pods.values().filter(|pod| is_due(pod.read.1));
        let due: Vec<PodId> = due.map(|pod| pod.id).collect();
        let contested = due.into_iter().filter(|id| self.read(*id));
        // All of them are read, whatever is found at one.
        contested.count() > 0
    }

    /// Pods that wanted what another pod has given up may have it.
    pub(super) fn offer(&mut self) {
        let now = Instant::now();
        for pod in self.pods.values_mut() {
            if (!pod.others.is_empty() || pod.more > 0) && pod.state != PodState::Releasing {
                pod.read.1 = Some(now.max(pod.read.0));
            }
        }
    }

    /// Reads a pod's addresses. Returns whether one is another's that was not before.
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
                // What it has got since is refused.
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
        // All that is done with them counts.
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.read.0 = not_before(started);
        }
        is_contested
    }

    /// Which of the addresses that were found in a pod's namespace are its own, and which are not.
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

    /// The hooks know of a pod's addresses, or do not.
    pub(super) fn readdressed(&mut self, id: PodId, own: Vec<IpAddr>, done: Result<(), HookError>) {
        let Some(pod) = self.pods.get_mut(&id) else {
            return;
        };
        if done.is_err() {
            said(done);
            // No proxy speaks with what it has got since, though it is not known as the pod's.
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

    /// Notes which addresses are there and not a pod's own, and how many more. Returns whether there is one that was
    /// not before.
    pub(super) fn contest(&mut self, id: PodId, others: Vec<IpAddr>, more: usize) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        let is_contested = others.iter().any(|one| !pod.others.contains(one));
        if is_contested {
            let named = others.get(..NAMED).unwrap_or(&others);
            // Packet filters ask the kernel which addresses are a pod's.
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

/// Addresses that were found in a pod's namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Divided {
    /// The pod's.
    pub(super) own: Vec<IpAddr>,
    /// Those that are not.
    pub(super) others: Vec<IpAddr>,
    /// How many there are besides.
    pub(super) more: usize,
}

/// Which of the addresses that were found are the pod's, of which some were so before, and which are not.
fn divide(found: Found, before: &[IpAddr], is_free: impl Fn(&IpAddr) -> bool) -> Divided {
    let found_more = found.more;
    let found = found.addresses.into_iter();
    let (mut own, mut others): (Vec<IpAddr>, Vec<IpAddr>) = found.partition(is_free);
    // Those that it has it keeps.
    own.sort_by_key(|address| (!before.contains(address), *address));
    others.extend(own.drain(MAX_ADDRESSES.min(own.len())..));
    own.sort_unstable();
    let more = found_more + others.len().saturating_sub(MAX_ADDRESSES);
    others.truncate(MAX_ADDRESSES);
    Divided { own, others, more }
}

/// When addresses may be read again whose reading began then and is over now: a pod that has many, and changes them all
/// the time, has a share of the holder and not all of it.
pub(super) fn not_before(started: Instant) -> Instant {
    let now = Instant::now();
    now + READ_EVERY.max((now - started) * READ_SHARE)
}

#[cfg(test)]
mod tests;

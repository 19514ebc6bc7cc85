//! Following the addresses of enrolled pods.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use super::{Pods, READ_EVERY, said, sockets};
use crate::PodId;
use crate::holder::watch::Watches;
use crate::hooks::MAX_ADDRESSES;
use crate::request::PodState;

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
                pod.read.1 = Some(now.max(pod.read.0 + READ_EVERY));
            }
        }
    }

    /// Reads the addresses that are to be read. Returns whether a pod has one that is another's.
    pub(in crate::holder) fn follow(&mut self, now: Instant) -> bool {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let due = self.pods.values().filter(|pod| is_due(pod.read.1));
        let due: Vec<PodId> = due.map(|pod| pod.id).collect();
        let contested = due.into_iter().filter(|id| self.read(*id, now));
        // All of them are read, whatever is found at one.
        contested.count() > 0
    }

    /// Pods that wanted what somebody has given up may have it.
    pub(super) fn offer(&mut self) {
        let now = Instant::now();
        for pod in self.pods.values_mut() {
            if !pod.others.is_empty() && pod.state != PodState::Releasing {
                pod.read.1 = Some(now);
            }
        }
    }

    /// Reads a pod's addresses. Returns whether one is another's that was not before.
    fn read(&mut self, id: PodId, now: Instant) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        pod.read = (now, None);
        let watched = self.watches.again(id, &pod.watch);
        let found = watched.and_then(|()| sockets::addresses(pod.netns.as_fd()));
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                // What it has got since is refused.
                tracing::error!(workload = %pod.workload, %error, "a pod's addresses cannot be read");
                pod.read.1 = Some(now + READ_EVERY * 10);
                return false;
            }
        };
        let Some(pod) = self.pods.get(&id) else {
            return false;
        };
        let (own, others) = self.divided(id, found, &pod.addresses);
        self.set(id, own, others)
    }

    /// Which of the addresses that were found in a pod's namespace are its own, and which are not.
    pub(super) fn divided(
        &self,
        id: PodId,
        found: Vec<IpAddr>,
        before: &[IpAddr],
    ) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let taken = self.all().filter(|other| other.id != id);
        let taken = taken.filter(|other| other.state != PodState::Releasing);
        let taken: Vec<&[IpAddr]> = taken.map(|other| &*other.addresses).collect();
        let is_free = |address: &IpAddr| !taken.iter().any(|taken| taken.contains(address));
        divide(found, before, is_free)
    }

    fn set(&mut self, id: PodId, own: Vec<IpAddr>, others: Vec<IpAddr>) -> bool {
        let is_contested = self.contest(id, others);
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        if own == pod.addresses {
            return is_contested;
        }
        said(self.hooks.readdress(id, &own));
        tracing::info!(workload = %pod.workload, addresses = ?own, "a pod's addresses have changed");
        let before = std::mem::replace(&mut pod.addresses, own);
        if before.iter().any(|gone| !pod.addresses.contains(gone)) {
            self.offer();
        }
        is_contested
    }

    /// Notes which addresses are there and not a pod's own. Returns whether there is one that was not before.
    pub(super) fn contest(&mut self, id: PodId, others: Vec<IpAddr>) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        let is_contested = others.iter().any(|one| !pod.others.contains(one));
        if is_contested {
            tracing::warn!(
                workload = %pod.workload,
                addresses = ?others,
                "what arrives at these addresses of a pod is refused: they are another enrolled pod's, or more than \
                 {MAX_ADDRESSES}"
            );
        }
        pod.others = others;
        is_contested
    }
}

/// Which of the addresses that were found are the pod's, of which some were so before, and which are not.
fn divide(
    found: Vec<IpAddr>,
    before: &[IpAddr],
    is_free: impl Fn(&IpAddr) -> bool,
) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let (mut own, mut others): (Vec<IpAddr>, Vec<IpAddr>) = found.into_iter().partition(is_free);
    // Those that it has it keeps.
    own.sort_by_key(|address| (!before.contains(address), *address));
    others.extend(own.drain(MAX_ADDRESSES.min(own.len())..));
    own.sort_unstable();
    (own, others)
}

#[cfg(test)]
mod tests;

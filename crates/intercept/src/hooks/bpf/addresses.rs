//! Addresses of pods in the tables. Each address belongs to one pod only.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Bpf;
use super::tables::{refused, removed};
use crate::PodId;
use crate::hooks::layout::{self, Address};
use crate::hooks::{HookError, MAX_ADDRESSES};

impl Bpf {
    /// Checks that a pod may have these addresses.
    pub(super) fn check_addresses(
        &self,
        pod: PodId,
        addresses: &[IpAddr],
    ) -> Result<(), HookError> {
        let wrong = |reason: String| Err(HookError::pod(pod, reason));
        let count = addresses.len();
        if count > MAX_ADDRESSES {
            return wrong(format!(
                "has {count} addresses: {MAX_ADDRESSES} are the most"
            ));
        }
        let mut seen = BTreeSet::new();
        for address in addresses {
            if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
                return wrong(format!("{address} is no address of a pod"));
            }
            if !seen.insert(layout::address(*address)) {
                return wrong(format!("{address} is named twice"));
            }
            let owner = self.owner(&layout::address(*address));
            if let Some(other) = owner.filter(|owner| *owner != pod) {
                return wrong(format!("{address} is pod {other}'s"));
            }
        }
        Ok(())
    }

    /// The enrolled pod that has an address.
    pub(super) fn owner(&self, address: &Address) -> Option<PodId> {
        let mut pods = self.pods.iter();
        pods.find_map(|(id, pod)| pod.addresses.contains(address).then_some(*id))
    }

    /// Removes old addresses from the table before it adds new ones. `enrolled.addresses` reflects only writes that
    /// succeeded, so that the next call tries the others again.
    pub(in crate::hooks) fn readdress(
        &mut self,
        pod: PodId,
        addresses: &[IpAddr],
    ) -> Result<(), HookError> {
        self.check_addresses(pod, addresses)?;
        let enrolled = self.pods.get_mut(&pod).ok_or(HookError::Unknown(pod))?;
        let table = &mut self.tables.addresses;
        let now: Vec<Address> = addresses.iter().copied().map(layout::address).collect();
        let (kept, gone) = std::mem::take(&mut enrolled.addresses)
            .into_iter()
            .partition::<Vec<_>, _>(|one| now.contains(one));
        let new = now.into_iter().filter(|one| !kept.contains(one));
        enrolled.addresses.clone_from(&kept);
        let mut done = Ok(());
        for gone in gone {
            let removed = removed("a pod's address", table.remove(&gone));
            if removed.is_err() {
                enrolled.addresses.push(gone);
            }
            done = done.and(removed);
        }
        for new in new {
            let inserted = refused("a pod's address", table.insert(new, enrolled.cookie, 0));
            if inserted.is_ok() {
                enrolled.addresses.push(new);
            }
            done = done.and(inserted);
        }
        done
    }

    /// Removes addresses that an earlier process had recorded for a pod and that the pod no longer has.
    pub(super) fn disown(&mut self, pod: PodId) -> Result<(), HookError> {
        let enrolled = self.pods.get(&pod).ok_or(HookError::Unknown(pod))?;
        let now = &enrolled.addresses;
        self.tables.remove_addresses(enrolled.cookie, now)
    }
}

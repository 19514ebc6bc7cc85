//! The accounts that forward requests in the name of others, and those in whose name they do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Mesh, Proxy, ServiceAccountName, Workload};

/// The header field in which a gateway names the caller of a request, by its SPIFFE id.
pub const CALLER_FIELD: &str = "x-heddle-caller";
/// The header field in which a lazy Envoy tells a gateway where a request was going: `IP:PORT`.
pub const ORIGINAL_DST_FIELD: &str = "x-heddle-original-dst";
/// Header fields that only proxies write, for each other: no route may change them.
pub const PROXY_FIELDS: [&str; 2] = [CALLER_FIELD, ORIGINAL_DST_FIELD];

/// The most accounts of gateways.
pub const MAX_GATEWAY_ACCOUNTS: usize = 64;
/// The most lazy accounts that a mesh has: nodes are told all of them. In the name of others gateways do not forward to nodes.
pub const MAX_LAZY_ACCOUNTS: usize = 4_096;

/// The accounts with a part in forwarding what lazy Envoys do not know, sorted, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Forwarding {
    /// Those of gateways, which name the caller of each request that they forward; at most [`MAX_GATEWAY_ACCOUNTS`].
    pub gateways: Vec<ServiceAccountName>,
    /// Those of lazy workloads, which gateways may name as callers; at most [`MAX_LAZY_ACCOUNTS`].
    pub lazy: Vec<ServiceAccountName>,
}

impl Forwarding {
    /// Whether there are no gateways.
    pub fn is_empty(&self) -> bool {
        self.gateways.is_empty()
    }

    /// Whether the node of a workload is a gateway because of it: it has that role, and no Envoy of its own.
    pub fn is_at(&self, workload: &Workload) -> bool {
        !workload.proxy.is_envoy()
            && self
                .gateways
                .binary_search(&workload.service_account)
                .is_ok()
    }

    /// Whether gateways forward in the name of a workload: its Envoy knows only what it uses.
    pub fn is_lazy(&self, workload: &Workload) -> bool {
        workload.proxy == Proxy::Envoy { lazy: true }
            && self.lazy.binary_search(&workload.service_account).is_ok()
    }

    /// The same without those that are denied: gateways do not forward in their name, and they are none themselves.
    #[must_use]
    pub fn without(&self, is_denied: impl Fn(&ServiceAccountName) -> bool) -> Self {
        let rest = |accounts: &[ServiceAccountName]| {
            let accounts = accounts.iter().filter(|account| !is_denied(account));
            accounts.cloned().collect()
        };
        Self {
            gateways: rest(&self.gateways),
            lazy: rest(&self.lazy),
        }
    }

    /// The roles in a mesh with these gateways, of which the first [`MAX_GATEWAY_ACCOUNTS`] count.
    pub fn of(mesh: &Mesh, gateways: impl IntoIterator<Item = ServiceAccountName>) -> Self {
        let mut forwarding = Self {
            gateways: sorted(gateways, MAX_GATEWAY_ACCOUNTS),
            lazy: Vec::new(),
        };
        // Without ranges a lazy Envoy could not tell what is to be sent to a gateway: it is told everything.
        if forwarding.is_empty() || mesh.address_ranges.is_empty() {
            return forwarding;
        }
        let lazy = mesh.workloads.iter();
        let lazy = lazy.filter(|workload| workload.proxy == Proxy::Envoy { lazy: true });
        let lazy = lazy.map(|workload| &workload.service_account);
        let lazy = lazy.filter(|account| !forwarding.gateways.contains(account));
        forwarding.lazy = sorted(lazy.cloned(), MAX_LAZY_ACCOUNTS);
        forwarding
    }
}

fn sorted(
    accounts: impl IntoIterator<Item = ServiceAccountName>,
    most: usize,
) -> Vec<ServiceAccountName> {
    let accounts: BTreeSet<ServiceAccountName> = accounts.into_iter().collect();
    accounts.into_iter().take(most).collect()
}

//! Who forwards requests in whose name.

use serde::{Deserialize, Serialize};

use crate::{Mesh, Proxy, ServiceAccountName, Workload};

/// The header field in which a gateway says who has sent a request: a SPIFFE id.
pub const CALLER_FIELD: &str = "x-heddle-caller";
/// The header field in which a lazy Envoy tells a gateway where a request was going: `IP:PORT`.
pub const ORIGINAL_DST_FIELD: &str = "x-heddle-original-dst";
/// Header fields that only proxies write, for each other: no route may change them.
pub const PROXY_FIELDS: [&str; 2] = [CALLER_FIELD, ORIGINAL_DST_FIELD];

/// The most lazy accounts that a mesh has: nodes are told all of them. In the name of others gateways do not forward to nodes.
pub const MAX_LAZY_ACCOUNTS: usize = 4_096;

/// The accounts with a part in forwarding what lazy Envoys do not know, sorted, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Forwarding {
    /// Those of gateways, which assert who calls.
    pub gateways: Vec<ServiceAccountName>,
    /// Those of lazy workloads, of whom gateways may assert that they call; at most [`MAX_LAZY_ACCOUNTS`].
    pub lazy: Vec<ServiceAccountName>,
}

impl Forwarding {
    /// Whether there are no gateways.
    pub fn is_empty(&self) -> bool {
        self.gateways.is_empty()
    }

    /// Whether gateways forward in the name of a workload: its Envoy knows only what it uses.
    pub fn is_lazy(&self, workload: &Workload) -> bool {
        workload.proxy == Proxy::Envoy { lazy: true }
            && self.lazy.binary_search(&workload.service_account).is_ok()
    }

    /// The roles in a mesh with these gateways.
    pub fn of(mesh: &Mesh, gateways: impl IntoIterator<Item = ServiceAccountName>) -> Self {
        let mut forwarding = Self {
            gateways: gateways.into_iter().collect(),
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
        let mut lazy: Vec<ServiceAccountName> = lazy.cloned().collect();
        lazy.sort();
        lazy.dedup();
        lazy.truncate(MAX_LAZY_ACCOUNTS);
        forwarding.lazy = lazy;
        forwarding
    }
}

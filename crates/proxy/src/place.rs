//! The addresses of endpoints, and how each is reached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use heddle_intercept::PodId;
use heddle_model::{ServiceAccountName, ServiceName, WorkloadName};

/// The address of an endpoint, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) way: Way,
}

/// How an endpoint is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// The proxy dials it directly.
    Here,
    /// It is in a pod of this node, and is dialled from inside that pod: nothing leaves the pod, so the connection is
    /// not intercepted again.
    Inside(PodId),
    /// The mesh does not know it. It is dialled from inside the calling pod, the only one that is known to be allowed
    /// to reach it.
    Outside(PodId),
    /// Through the proxy of another node.
    Through(Arc<Via>),
    /// Its workload has an Envoy of its own, which is dialled at the endpoint's address, on any node, by mutual TLS.
    Envoy(Arc<ByEnvoy>),
}

/// An endpoint with an Envoy of its own.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByEnvoy {
    /// The service account that the Envoy must prove.
    pub(crate) account: ServiceAccountName,
    /// The Service's port on whose behalf it is called.
    pub(crate) service: ServiceName,
    pub(crate) port: u16,
}

/// Another node, and what the proxy requests from it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Via {
    /// The address at which its proxy accepts connections.
    pub(crate) node: SocketAddr,
    /// The service account that the endpoint must prove.
    pub(crate) account: ServiceAccountName,
    /// The Service's port on whose behalf it is called.
    pub(crate) service: ServiceName,
    pub(crate) port: u16,
}

impl Place {
    /// An endpoint that the proxy dials directly.
    pub(crate) fn here(address: SocketAddr) -> Self {
        let way = Way::Here;
        Place { address, way }
    }

    /// The other node, if it is reached through one.
    pub(crate) fn via(&self) -> Option<&Arc<Via>> {
        match &self.way {
            Way::Through(via) => Some(via),
            Way::Here | Way::Inside(_) | Way::Outside(_) | Way::Envoy(_) => None,
        }
    }

    /// Whether its peer is told the caller's identity, by mutual TLS.
    pub(crate) fn sees_caller(&self) -> bool {
        matches!(self.way, Way::Through(_) | Way::Envoy(_))
    }

    /// The pod from inside which it is dialled.
    pub(crate) fn pod(&self) -> Option<PodId> {
        match self.way {
            Way::Inside(pod) | Way::Outside(pod) => Some(pod),
            Way::Here | Way::Through(_) | Way::Envoy(_) => None,
        }
    }

    /// The address that is dialled to reach it.
    pub(crate) fn dialled(&self) -> SocketAddr {
        self.via().map_or(self.address, |via| via.node)
    }
}

/// The pods whose traffic is intercepted.
#[derive(Debug, Default)]
pub(crate) struct Pods(pub(crate) Arc<BTreeMap<WorkloadName, PodId>>);

impl Pods {
    pub(crate) fn of(&self, workload: &WorkloadName) -> Option<PodId> {
        self.0.get(workload).copied()
    }

    /// Whether a workload has that pod.
    pub(crate) fn has(&self, pod: PodId) -> bool {
        self.0.values().any(|&known| known == pod)
    }
}

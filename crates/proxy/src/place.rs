//! Where endpoints are, and how they are reached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use heddle_intercept::PodId;
use heddle_model::{ServiceAccountName, ServiceName, WorkloadName};

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) way: Way,
}

/// How an endpoint is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// It is dialled from where the proxy is.
    Here,
    /// It is in a pod of this node, and dialled from within: nothing that leaves the pod is steered back.
    Inside(PodId),
    /// The mesh does not know it. It is dialled from within the pod that calls it, which is the only one that
    /// is known to be allowed to.
    Outside(PodId),
    /// Through the proxy of another node.
    Through(Arc<Via>),
}

/// Another node, and what is said to it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Via {
    /// Where its proxy takes connections.
    pub(crate) node: SocketAddr,
    /// The service account that the endpoint must prove.
    pub(crate) account: ServiceAccountName,
    /// For which Service's port it is called.
    pub(crate) service: ServiceName,
    pub(crate) port: u16,
}

impl Place {
    /// An endpoint that is dialled itself.
    pub(crate) fn here(address: SocketAddr) -> Self {
        let way = Way::Here;
        Place { address, way }
    }

    /// The other node, if it is reached through one.
    pub(crate) fn via(&self) -> Option<&Arc<Via>> {
        match &self.way {
            Way::Through(via) => Some(via),
            Way::Here | Way::Inside(_) | Way::Outside(_) => None,
        }
    }

    /// The pod from within which it is dialled.
    pub(crate) fn pod(&self) -> Option<PodId> {
        match self.way {
            Way::Inside(pod) | Way::Outside(pod) => Some(pod),
            Way::Here | Way::Through(_) => None,
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
    /// The pod of a workload.
    pub(crate) fn of(&self, workload: &WorkloadName) -> Option<PodId> {
        self.0.get(workload).copied()
    }

    /// Whether any workload has that pod.
    pub(crate) fn has(&self, pod: PodId) -> bool {
        self.0.values().any(|&known| known == pod)
    }
}

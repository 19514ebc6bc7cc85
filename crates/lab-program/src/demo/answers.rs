//! The parts of the JSON of `heddle status`, `heddle check` and `heddle root status` that the demo uses.

use std::net::SocketAddr;

use anyhow::Context;
use serde::Deserialize;

/// `heddle status` of a node.
#[derive(Deserialize)]
pub(super) struct MeshNodeStatus {
    pub(super) ready: bool,
    /// The process that carries the traffic, which is the proxy.
    pub(super) pid: u32,
    listeners: Vec<Listener>,
    pub(super) workloads: Vec<Workload>,
}

#[derive(Deserialize)]
pub(super) struct Workload {
    pub(super) name: String,
}

#[derive(Deserialize)]
struct Listener {
    kind: ListenerKind,
    caller: Option<String>,
    service: Option<String>,
    address: SocketAddr,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum ListenerKind {
    Service,
    ForwardProxy,
}

impl MeshNodeStatus {
    /// The address on which `caller` (`None`: any caller) reaches `service`.
    ///
    /// # Errors
    /// The node has no such listener.
    pub(super) fn address(
        &self,
        caller: Option<&str>,
        service: &str,
    ) -> anyhow::Result<SocketAddr> {
        self.listeners
            .iter()
            .filter(|listener| listener.kind == ListenerKind::Service)
            .find(|listener| {
                listener.caller.as_deref() == caller && listener.service.as_deref() == Some(service)
            })
            .map(|listener| listener.address)
            .with_context(|| format!("the node has no address of {service} for {caller:?}"))
    }

    /// The forward proxy of `caller`, if it has one.
    pub(super) fn forward_proxy(&self, caller: &str) -> Option<SocketAddr> {
        self.listeners
            .iter()
            .filter(|listener| listener.kind == ListenerKind::ForwardProxy)
            .find(|listener| listener.caller.as_deref() == Some(caller))
            .map(|listener| listener.address)
    }
}

/// `heddle status` of a control plane.
#[derive(Deserialize)]
pub(super) struct ControlStatus {
    pub(super) ready: bool,
    pub(super) listen: SocketAddr,
}

/// `heddle check`.
#[derive(Deserialize)]
pub(super) struct NodeCheck {
    pub(super) mesh_address: Option<SocketAddr>,
    pub(super) clock: Clock,
    pub(super) trust: Option<Trust>,
    pub(super) identities: Vec<Identity>,
    pub(super) problems: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Clock {
    pub(super) now: u64,
}

#[derive(Deserialize)]
pub(super) struct Trust {
    pub(super) roots: usize,
}

#[derive(Deserialize)]
pub(super) struct Identity {
    pub(super) spiffe_id: String,
    pub(super) serial: Option<String>,
    pub(super) root_sha256: Option<String>,
    pub(super) not_after: Option<u64>,
}

impl NodeCheck {
    /// Whether every identity has a certificate and there are no problems.
    pub(super) fn are_well(&self) -> bool {
        let mut all = self.identities.iter();
        self.problems.is_empty() && all.all(|one| one.not_after.is_some())
    }

    /// The identity whose SPIFFE ID has this suffix.
    pub(super) fn account(&self, end: &str) -> Option<&Identity> {
        let mut all = self.identities.iter();
        all.find(|one| one.spiffe_id.ends_with(end))
    }
}

/// `heddle root status`.
#[derive(Deserialize)]
pub(super) struct Root {
    pub(super) stage: String,
    pub(super) sha256: String,
}

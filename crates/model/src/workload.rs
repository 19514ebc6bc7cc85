//! Workloads: the processes connected by a mesh.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    Mode, NodeName, PolicyName, Probe, Qos, ServiceAccountName, ServiceName, Shared, WorkloadName,
};

/// One process that serves or calls: a LocalWorkload outside of a cluster, a pod in one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The workload's name, also when it is the caller.
    pub name: WorkloadName,
    /// The labels that Service selectors match. Replicas have equal ones, and share them.
    pub labels: Shared<BTreeMap<String, String>>,
    /// The service account of its identity; `default` of its namespace if the manifest names none.
    pub service_account: ServiceAccountName,
    /// The address on which it listens, and on which its forward-proxy port is opened.
    pub address: IpAddr,
    /// Further addresses, sorted, each once, without `address`. Intercepted traffic is attributed by them; Services do
    /// not use them, so that a workload with two addresses does not get a double share.
    #[serde(default)]
    pub more_addresses: Vec<IpAddr>,
    /// The ports on which it serves.
    pub ports: Vec<WorkloadPort>,
    /// Weight beside the other endpoints of its Services, at least 1.
    pub weight: u32,
    /// The node that runs it. `None`: the only node of the mesh.
    pub node: Option<NodeName>,
    /// The requirement on its callers, in addition to its policies.
    pub mode: Mode,
    /// The policies that select it, sorted, each once; all in its own namespace.
    pub policies: Vec<PolicyName>,
    /// Health checks that its policies do not block, sorted, each once.
    pub probes: Vec<Probe>,
    /// What node QoS does for it.
    #[serde(default, skip_serializing_if = "Qos::is_default")]
    pub qos: Qos,
    /// The proxy that carries its traffic.
    #[serde(default, skip_serializing_if = "Proxy::is_node")]
    pub proxy: Proxy,
    /// The Services that its Envoy knows, if that is lazy, from the start and for good, sorted, each once. Nodes are not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<ServiceName>,
    /// The program to start; `None` for a process that Heddle does not start.
    pub command: Option<Command>,
}

impl Workload {
    /// Every address of the workload, `address` first.
    pub fn all_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        std::iter::once(self.address).chain(self.more_addresses.iter().copied())
    }
}

/// The proxy that carries a workload's traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proxy {
    /// The proxy of its node.
    #[default]
    Node,
    /// An Envoy of its own (a sidecar), which the control plane configures. Its node leaves the workload alone.
    Envoy {
        /// Whether the Envoy knows only the Services that the workload uses.
        lazy: bool,
    },
}

impl Proxy {
    /// Whether the node's proxy carries the traffic.
    pub fn is_node(&self) -> bool {
        *self == Proxy::Node
    }

    /// Whether an Envoy of the workload's own carries the traffic.
    pub fn is_envoy(&self) -> bool {
        !self.is_node()
    }
}

/// A port that a workload serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPort {
    /// The name by which a Service's `targetPort` may select it.
    pub name: Option<String>,
    /// The port number, never 0.
    pub port: u16,
}

/// A process that Heddle starts, watches and stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments; never empty. No shell is involved.
    pub argv: Vec<String>,
    /// Environment variables in addition to inherited ones.
    pub env: BTreeMap<String, String>,
    /// Absolute working directory: the manifest's folder unless the workload sets another.
    pub working_dir: Option<PathBuf>,
}

//! Workloads: the processes that a mesh connects.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Mode, NodeName, PolicyName, Probe, ServiceAccountName, WorkloadName};

/// One process that serves or calls: on a laptop a LocalWorkload, in a cluster a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name, by which it is told apart as a caller.
    pub name: WorkloadName,
    /// What Service selectors match.
    pub labels: BTreeMap<String, String>,
    /// Whose identity it has; `default` of its namespace unless it says otherwise.
    pub service_account: ServiceAccountName,
    /// Where it listens, and where its forward-proxy port is put.
    pub address: IpAddr,
    /// Its further addresses, sorted, each once, without `address`. It is found by them when its traffic is
    /// intercepted; Services send nothing there, so that a workload with two addresses has no more than its
    /// share.
    #[serde(default)]
    pub more_addresses: Vec<IpAddr>,
    /// The ports that it serves.
    pub ports: Vec<WorkloadPort>,
    /// Its share of its Services' requests beside the other endpoints, at least 1.
    pub weight: u32,
    /// The node that it is on. `None`: it belongs to the only node there is.
    pub node: Option<NodeName>,
    /// What is required of its callers beside its policies.
    pub mode: Mode,
    /// The policies that concern it, sorted, each once; all of its own namespace.
    pub policies: Vec<PolicyName>,
    /// The health checks that stay open whatever its policies say, sorted, each once.
    pub probes: Vec<Probe>,
    /// What to run; none for a process that Heddle does not start.
    pub command: Option<Command>,
}

impl Workload {
    /// Every address that it has, `address` first.
    pub fn all_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        std::iter::once(self.address).chain(self.more_addresses.iter().copied())
    }
}

/// A port that a workload serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPort {
    /// What a Service's `targetPort` may call it.
    pub name: Option<String>,
    /// The port, never 0.
    pub port: u16,
}

/// A process that Heddle starts, watches and stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments; never empty. No shell is involved.
    pub argv: Vec<String>,
    /// Environment variables beside those inherited.
    pub env: BTreeMap<String, String>,
    /// Where it starts: absolute. The folder of the manifest unless the workload says otherwise.
    pub working_dir: Option<PathBuf>,
}

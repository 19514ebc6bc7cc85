//! The simulated mesh: which pod is on which node, and which node uses which Service. Numbers only, no I/O.
//!
//! Pods go to the nodes in turn, so that those of one Service are on different nodes. The Services that nodes use
//! beside those of their own pods go around in turn, too: every Service is used by about as many nodes as any other.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

#[cfg(test)]
mod tests;

/// Pods of a node, and of a Service.
const PODS_OF_NODE: usize = 30;
pub(super) const PODS_OF_SERVICE: usize = 10;
/// Services that a node uses beside those of its own pods.
const NAMED: usize = 10;
/// Services of a namespace: its pods are fewer than the registry takes of one.
const SERVICES_OF_NAMESPACE: usize = 190;
/// The most pods for which there are addresses and names.
pub(super) const MAX_PODS: usize = 1_000_000;
/// The port at which pods listen, and that at which nodes do.
pub(super) const POD_PORT: u16 = 8080;
const NODE_PORT: u16 = 15008;

/// A mesh of so many pods. Pods, Services and nodes are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) pods: usize,
    pub(super) nodes: usize,
    pub(super) services: usize,
    /// By node: the Services of its pods, and those that it uses beside them; each sorted.
    own: Vec<Vec<usize>>,
    named: Vec<Vec<usize>>,
    /// By Service: the nodes that use it, sorted.
    users: Vec<Vec<usize>>,
}

impl Shape {
    /// A mesh of at least so many pods: Services are whole.
    pub(super) fn new(pods: usize) -> Shape {
        let services = pods.div_ceil(PODS_OF_SERVICE).max(1);
        let pods = services * PODS_OF_SERVICE;
        let nodes = pods.div_ceil(PODS_OF_NODE);
        let own: Vec<BTreeSet<usize>> = (0..nodes)
            .map(|node| (node..pods).step_by(nodes).map(service_of).collect())
            .collect();
        let mut next = 0;
        let named: Vec<BTreeSet<usize>> = own
            .iter()
            .map(|own| {
                let wanted = NAMED.min(services - own.len());
                let mut named = BTreeSet::new();
                while named.len() < wanted {
                    let service = next % services;
                    next += 1;
                    if !own.contains(&service) {
                        named.insert(service);
                    }
                }
                named
            })
            .collect();
        let mut users = vec![Vec::new(); services];
        for (node, (own, named)) in own.iter().zip(&named).enumerate() {
            for service in own.union(named) {
                users[*service].push(node);
            }
        }
        let sorted = |all: Vec<BTreeSet<usize>>| {
            let all = all.into_iter();
            all.map(|one| one.into_iter().collect()).collect()
        };
        Shape {
            pods,
            nodes,
            services,
            own: sorted(own),
            named: sorted(named),
            users,
        }
    }

    /// The node that runs a pod.
    pub(super) fn node_of(&self, pod: usize) -> usize {
        pod % self.nodes
    }

    /// The Services that a node names.
    pub(super) fn named(&self, node: usize) -> &[usize] {
        &self.named[node]
    }

    /// The Services that a node knows of: those of its pods, and those that it names.
    pub(super) fn used(&self, node: usize) -> BTreeSet<usize> {
        let own = self.own[node].iter();
        own.chain(&self.named[node]).copied().collect()
    }

    /// The nodes that the pods of these Services are on.
    pub(super) fn nodes_of(&self, services: &BTreeSet<usize>) -> BTreeSet<usize> {
        let pods = services.iter().flat_map(|service| {
            let first = service * PODS_OF_SERVICE;
            first..first + PODS_OF_SERVICE
        });
        pods.map(|pod| self.node_of(pod)).collect()
    }

    /// The nodes that are told of a change of a Service's pods.
    pub(super) fn users(&self, service: usize) -> &[usize] {
        &self.users[service]
    }

    /// The namespaces.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = String> {
        let count = self.services.div_ceil(SERVICES_OF_NAMESPACE);
        (0..count).map(|number| format!("ns-{number}"))
    }
}

/// The Service of a pod.
pub(super) fn service_of(pod: usize) -> usize {
    pod / PODS_OF_SERVICE
}

/// The namespace of a Service, and its name there.
pub(super) fn service_name(service: usize) -> (String, String) {
    let namespace = service / SERVICES_OF_NAMESPACE;
    (format!("ns-{namespace}"), format!("s{service}"))
}

/// The number of the Service with which the name of a resource begins, such as `ns-0/s7` or `ns-0/s7/80/10.0.0.1:8080`.
pub(super) fn service_in(resource: &str) -> Option<usize> {
    let name = resource.split('/').nth(1)?;
    // A workload's name is that of its Service and its own.
    let name = name.split('.').next()?;
    name.strip_prefix('s')?.parse().ok()
}

pub(super) fn node_name(node: usize) -> String {
    format!("node-{node}")
}

/// Where other nodes would reach a node.
pub(super) fn node_address(node: usize) -> String {
    format!(
        "{}:{NODE_PORT}",
        address(Ipv4Addr::new(192, 168, 0, 1), node)
    )
}

/// A pod's address at the beginning.
pub(super) fn first_address(pod: usize) -> Ipv4Addr {
    address(FIRST, pod)
}

/// The address that a change gives to a pod: no other change, and no pod at the beginning, has it.
pub(super) fn changed_address(change: usize) -> Ipv4Addr {
    address(CHANGED, change)
}

/// The change that gave a pod this address; `None` for an address of the beginning.
pub(super) fn change_of(address: Ipv4Addr) -> Option<usize> {
    let number = address.to_bits().checked_sub(CHANGED.to_bits())?;
    usize::try_from(number).ok()
}

/// The address of a Service.
pub(super) fn service_address(service: usize) -> Ipv4Addr {
    address(Ipv4Addr::new(172, 16, 1, 0), service)
}

/// Where addresses of pods begin: those at the beginning, and those of changes.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CHANGED: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);

fn address(first: Ipv4Addr, number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    Ipv4Addr::from_bits(first.to_bits().saturating_add(number))
}

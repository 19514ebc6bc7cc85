//! Everything that a node serves, as one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Cidr, Dependency, DependencyState, Endpoint, Forwarding, NodeName, Pages, Policy, PolicyName,
    Service, ServiceName, Shared, TrustDomain, Workload, WorkloadName,
};

#[cfg(test)]
mod tests;

/// A snapshot of the mesh. All lists are sorted by name and hold each name once.
///
/// What one snapshot has unchanged from the one before is the same object in memory, where the source can tell: of two
/// snapshots only what differs in that need be compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mesh {
    /// Counts the snapshots of one source, starting at 1. It identifies the served configuration, and does not affect
    /// the meaning of the mesh.
    pub generation: u64,
    /// The trust domain of every identity in the mesh.
    pub trust_domain: TrustDomain,
    /// The nodes whose address is known. Endpoints may be on other nodes, which cannot be reached yet.
    pub nodes: Vec<Node>,
    /// Every Service that the node knows, with its endpoints and routes.
    pub services: Vec<Shared<Service>>,
    /// Every workload on this node.
    pub workloads: Pages<Shared<Workload>>,
    /// Every policy that selects one of these workloads.
    pub policies: Vec<Arc<Policy>>,
    /// The addresses of workloads on other nodes, sorted, each once, including those without any Service. Traffic to
    /// them must go through their node, or is refused.
    #[serde(default)]
    pub elsewhere: Vec<IpAddr>,
    /// Further addresses among these, each with the address that Services use for the same workload; sorted by the
    /// further address, each once.
    #[serde(default)]
    pub further: Vec<(IpAddr, IpAddr)>,
    /// Where the addresses of everything in the mesh are, sorted, each once. Empty: they may be any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub address_ranges: Vec<Cidr>,
    /// Who forwards what lazy Envoys do not know, and in whose name.
    #[serde(default, skip_serializing_if = "no_forwarding")]
    pub forwarding: Shared<Forwarding>,
    /// Of a node that is a gateway: the workloads of other nodes that policies select, sorted by name. It judges by them what
    /// it forwards.
    #[serde(default, skip_serializing_if = "no_workloads")]
    pub judged: Shared<Vec<Shared<Workload>>>,
    /// Workloads that the node was told of in a form that it does not understand, sorted, each once. As a gateway it refuses
    /// what goes to them: policies that it does not know may select them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<WorkloadName>,
    /// Of a node that names what it uses: what it has named and has an answer to, sorted, each once. Of anything else,
    /// nothing can be said. `None`: the mesh has everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<Shared<Vec<(Dependency, DependencyState)>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The node's name, unique in the mesh.
    pub name: NodeName,
    /// The address on which its proxy accepts links from other nodes.
    pub address: SocketAddr,
}

/// Finds an item by name in a list sorted by name.
fn find<'a, T, K: Ord + ?Sized>(list: &'a [T], name: &K, of: impl Fn(&T) -> &K) -> Option<&'a T> {
    let found = list.binary_search_by(|item| of(item).cmp(name)).ok()?;
    list.get(found)
}

fn no_workloads(workloads: &Shared<Vec<Shared<Workload>>>) -> bool {
    workloads.is_empty()
}

fn no_forwarding(forwarding: &Shared<Forwarding>) -> bool {
    forwarding.is_empty()
}

impl Mesh {
    /// The Service of that name; a binary search.
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        find(&self.services, name, |service| &service.name).map(|shared| &**shared)
    }

    /// The workload of that name; a binary search.
    pub fn workload(&self, name: &WorkloadName) -> Option<&Workload> {
        let found = self.workloads.find(|workload| workload.name.cmp(name));
        found.map(|shared| &**shared)
    }

    /// Puts a workload where it belongs. Returns the one of that name that it replaces.
    pub fn put_workload(&mut self, workload: Shared<Workload>) -> Option<Shared<Workload>> {
        let workloads = &mut self.workloads;
        workloads.put(workload, |one, other| one.name.cmp(&other.name))
    }

    /// The policy of that name; a binary search.
    pub fn policy(&self, name: &PolicyName) -> Option<&Arc<Policy>> {
        find(&self.policies, name, |policy| &policy.name)
    }

    /// The node of that name, if its address is known.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        find(&self.nodes, name, |node| &node.name)
    }

    /// The nodes with endpoints but without a known address, each once: none of their endpoints can be reached. Valid
    /// only for a [`Mesh::for_node`], in which this node's endpoints name their workloads.
    pub fn unreached_nodes(&self) -> BTreeSet<&NodeName> {
        let ports = self.services.iter().flat_map(|service| &service.ports);
        let endpoints = ports.flat_map(|port| &port.endpoints);
        endpoints
            .filter(|endpoint| endpoint.workload.is_none() && !endpoint.has_envoy)
            .filter_map(|endpoint| endpoint.node.as_ref())
            .filter(|name| self.node(name).is_none())
            .collect()
    }

    /// The part of the mesh that one node needs: every Service and endpoint, its own workloads, and the policies that
    /// select them. Endpoints on other nodes keep account and node and lose their workload; of the workloads there only
    /// the addresses remain, for a gateway those that policies select too, with their policies.
    ///
    /// If no workload names a node, there is one node, which has all of them. As soon as one names a node, the
    /// workloads without one belong to no node.
    pub fn for_node(&self, node: &NodeName) -> Mesh {
        let is_one_node = self
            .workloads
            .iter()
            .all(|workload| workload.node.is_none());
        let mut mesh = self.clone();
        if is_one_node {
            return mesh;
        }
        let workloads = self.workloads.iter().cloned();
        let (own, others): (Vec<_>, Vec<_>) =
            workloads.partition(|workload| workload.node.as_ref() == Some(node));
        mesh.workloads = own.into();
        let mut elsewhere: BTreeSet<IpAddr> = mesh.elsewhere.drain(..).collect();
        elsewhere.extend(others.iter().flat_map(|other| other.all_addresses()));
        mesh.elsewhere = elsewhere.into_iter().collect();
        let mut further: BTreeMap<IpAddr, IpAddr> = mesh.further.drain(..).collect();
        for workload in &others {
            let more = workload.more_addresses.iter();
            further.extend(more.map(|&address| (address, workload.address)));
        }
        // The first address of one workload is not a further address of another.
        for workload in &others {
            further.remove(&workload.address);
        }
        mesh.further = further.into_iter().collect();
        let is_gateway = mesh.workloads.iter().any(|own| mesh.forwarding.is_at(own));
        let judged = others
            .iter()
            .filter(|other| is_gateway && !other.policies.is_empty());
        mesh.judged = judged.cloned().collect::<Vec<_>>().into();
        let needed: BTreeSet<&PolicyName> = mesh
            .workloads
            .iter()
            .chain(mesh.judged.iter())
            .flat_map(|workload| &workload.policies)
            .collect();
        mesh.policies.retain(|policy| needed.contains(&policy.name));
        let is_remote = |one: &Endpoint| one.node.as_ref() != Some(node) && one.workload.is_some();
        for service in &mut mesh.services {
            if !service.endpoints().any(is_remote) {
                continue;
            }
            let ports = service.ports.iter_mut();
            let endpoints = ports.flat_map(|port| &mut port.endpoints);
            for endpoint in endpoints.filter(|one| is_remote(one)) {
                endpoint.remote_workload = endpoint.workload.take();
            }
        }
        mesh
    }
}

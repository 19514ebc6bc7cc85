//! The whole of what a node serves, as one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    NodeName, Policy, PolicyName, Service, ServiceName, TrustDomain, Workload, WorkloadName,
};

#[cfg(test)]
mod tests;

/// A snapshot of the mesh. All lists are sorted by name and hold each name once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mesh {
    /// Counts snapshots of one source from 1. It says which configuration is being served, and is
    /// no part of what the mesh means.
    pub generation: u64,
    /// Who vouches for the identities of the mesh.
    pub trust_domain: TrustDomain,
    /// The nodes whose address is known. Endpoints may be on others, which cannot be reached yet.
    pub nodes: Vec<Node>,
    /// Every Service, with its endpoints and routes.
    pub services: Vec<Service>,
    /// Every workload that this process hosts.
    pub workloads: Vec<Workload>,
    /// Every policy that concerns one of these workloads.
    pub policies: Vec<Arc<Policy>>,
    /// Where the workloads of other nodes are, sorted, each address once: those that no Service has an
    /// endpoint at, too. What goes there goes through their node or not at all.
    #[serde(default)]
    pub elsewhere: Vec<IpAddr>,
    /// Of these, the further addresses of workloads, each with the one at which Services have them; sorted by
    /// the further one, each once.
    #[serde(default)]
    pub further: Vec<(IpAddr, IpAddr)>,
}

/// A node of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Where its proxy takes links from other nodes.
    pub address: SocketAddr,
}

/// What has that name in a list that is sorted by name.
fn find<'a, T, K: Ord + ?Sized>(list: &'a [T], name: &K, of: impl Fn(&T) -> &K) -> Option<&'a T> {
    let found = list.binary_search_by(|item| of(item).cmp(name)).ok()?;
    list.get(found)
}

impl Mesh {
    /// The Service of that name.
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        find(&self.services, name, |service| &service.name)
    }

    /// The workload of that name.
    pub fn workload(&self, name: &WorkloadName) -> Option<&Workload> {
        find(&self.workloads, name, |workload| &workload.name)
    }

    /// The policy of that name.
    pub fn policy(&self, name: &PolicyName) -> Option<&Arc<Policy>> {
        find(&self.policies, name, |policy| &policy.name)
    }

    /// The node of that name, if its address is known.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        find(&self.nodes, name, |node| &node.name)
    }

    /// The nodes that have endpoints and whose address is not known, each once: no endpoint can be reached there.
    /// Only of a [`Mesh::for_node`], whose own endpoints name their workloads.
    pub fn unreached_nodes(&self) -> BTreeSet<&NodeName> {
        let ports = self.services.iter().flat_map(|service| &service.ports);
        let endpoints = ports.flat_map(|port| &port.endpoints);
        endpoints
            .filter(|endpoint| endpoint.workload.is_none())
            .filter_map(|endpoint| endpoint.node.as_ref())
            .filter(|name| self.node(name).is_none())
            .collect()
    }

    /// What one node needs: every Service and endpoint, its own workloads, and the policies that
    /// concern them. Endpoints of other nodes keep account and node and lose their workload; of the workloads
    /// there only the addresses are left.
    ///
    /// Where no workload says which node it is on, there is one node, and all of them are its own.
    /// As soon as one says so, those that do not belong to no node.
    pub fn for_node(&self, node: &NodeName) -> Mesh {
        let is_one_node = self
            .workloads
            .iter()
            .all(|workload| workload.node.is_none());
        let mut mesh = self.clone();
        if is_one_node {
            return mesh;
        }
        let (own, others): (Vec<_>, Vec<_>) = std::mem::take(&mut mesh.workloads)
            .into_iter()
            .partition(|workload| workload.node.as_ref() == Some(node));
        mesh.workloads = own;
        let mut elsewhere: BTreeSet<IpAddr> = mesh.elsewhere.drain(..).collect();
        elsewhere.extend(others.iter().flat_map(Workload::all_addresses));
        mesh.elsewhere = elsewhere.into_iter().collect();
        let mut further: BTreeMap<IpAddr, IpAddr> = mesh.further.drain(..).collect();
        for workload in &others {
            let more = workload.more_addresses.iter();
            further.extend(more.map(|&address| (address, workload.address)));
        }
        // The first address of one workload is no further address of another.
        for workload in &others {
            further.remove(&workload.address);
        }
        mesh.further = further.into_iter().collect();
        let needed: BTreeSet<&PolicyName> = mesh
            .workloads
            .iter()
            .flat_map(|workload| &workload.policies)
            .collect();
        mesh.policies.retain(|policy| needed.contains(&policy.name));
        for service in &mut mesh.services {
            for endpoint in service
                .ports
                .iter_mut()
                .flat_map(|port| &mut port.endpoints)
            {
                if endpoint.node.as_ref() != Some(node)
                    && let Some(workload) = endpoint.workload.take()
                {
                    endpoint.remote_workload = Some(workload);
                }
            }
        }
        mesh
    }
}

//! The mesh that a snapshot was made from, as far as the next one is compared with it.

use std::collections::HashSet;
use std::sync::Arc;

use heddle_model::{
    Endpoint, Forwarding, Mesh, Node, NodeName, Pages, Policy, Service, Shared, TrustDomain,
    Workload, WorkloadName, differences,
};

/// Parts of a mesh.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) services: Vec<Shared<Service>>,
    nodes: Arc<[Node]>,
    trust_domain: TrustDomain,
    workloads: Pages<Shared<Workload>>,
    policies: Arc<[Arc<Policy>]>,
    forwarding: Shared<Forwarding>,
    judged: Shared<Vec<Shared<Workload>>>,
    unreadable: Vec<WorkloadName>,
}

/// What is another one in a mesh than in the one before.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    /// Services that are gone, or that are another object now …
    pub(super) gone: Vec<&'a Shared<Service>>,
    /// … and those that are new, or another object.
    pub(super) new: Vec<&'a Shared<Service>>,
    /// The workloads of this node, policies, or who forwards in whose name.
    pub(super) workloads: bool,
}

impl Source {
    /// The same of a mesh, which has what has not changed from the one before.
    pub(super) fn after(before: &Source, mesh: &Mesh) -> Self {
        Source {
            services: mesh.services.clone(),
            nodes: shared(&before.nodes, &mesh.nodes, Node::eq),
            trust_domain: mesh.trust_domain.clone(),
            workloads: mesh.workloads.clone(),
            policies: shared(&before.policies, &mesh.policies, Arc::ptr_eq),
            forwarding: mesh.forwarding.clone(),
            judged: mesh.judged.clone(),
            unreadable: mesh.unreadable.clone(),
        }
    }

    /// What has changed since `before`. A Service with an endpoint on a node that has come, gone or moved is reached in another
    /// way, and counts as another object.
    pub(super) fn changes<'a>(&'a self, before: &'a Source) -> Changes<'a> {
        let nodes = match Arc::ptr_eq(&self.nodes, &before.nodes) {
            true => Vec::new(),
            false => {
                let by_name = |one: &Node, other: &Node| one.name.cmp(&other.name);
                differences(before.nodes.iter(), self.nodes.iter(), by_name, Node::eq)
            }
        };
        let nodes = nodes.iter().filter_map(|(old, new)| new.or(*old));
        let nodes: HashSet<&NodeName> = nodes.map(|node| &node.name).collect();
        let is_moved = |one: &Endpoint| {
            let node = one.node.as_ref().filter(|_| one.workload.is_none());
            node.is_some_and(|node| nodes.contains(node))
        };
        let is_same = |one: &Shared<Service>, other: &Shared<Service>| {
            Shared::is_same(one, other) && (nodes.is_empty() || !one.endpoints().any(is_moved))
        };
        let by_name = |one: &Shared<Service>, other: &Shared<Service>| one.name.cmp(&other.name);
        let services = differences(&before.services, &self.services, by_name, is_same);
        let gone = services.iter().filter_map(|(old, _)| *old).collect();
        let new = services.iter().filter_map(|(_, new)| *new).collect();
        Changes {
            gone,
            new,
            workloads: self.trust_domain != before.trust_domain
                || !self.workloads.is_each_same(&before.workloads)
                || !Arc::ptr_eq(&self.policies, &before.policies)
                || self.forwarding != before.forwarding
                || self.judged != before.judged
                || self.unreadable != before.unreadable,
        }
    }
}

/// `before`, if its items are those of `now`.
fn shared<T: Clone>(before: &Arc<[T]>, now: &[T], is_same: impl Fn(&T, &T) -> bool) -> Arc<[T]> {
    let mut pairs = before.iter().zip(now);
    match before.len() == now.len() && pairs.all(|(one, other)| is_same(one, other)) {
        true => Arc::clone(before),
        false => now.into(),
    }
}

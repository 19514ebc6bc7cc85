//! The mesh that a snapshot was made from, as far as the next one is compared with it.

use std::sync::Arc;

use heddle_model::{Mesh, Node, Policy, Service, Shared, TrustDomain, Workload};

/// Parts of a mesh.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) services: Vec<Shared<Service>>,
    nodes: Arc<[Node]>,
    trust_domain: TrustDomain,
    workloads: Arc<[Shared<Workload>]>,
    policies: Arc<[Arc<Policy>]>,
}

/// What is another one in a mesh than in the one before.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    /// Services that are gone, or that are another object now …
    pub(super) gone: Vec<&'a Shared<Service>>,
    /// … and those that are new, or another object.
    pub(super) new: Vec<&'a Shared<Service>>,
    /// The workloads of this node, or policies.
    pub(super) workloads: bool,
}

impl Source {
    /// The same of a mesh, which has what has not changed from the one before.
    pub(super) fn after(before: &Source, mesh: &Mesh) -> Self {
        Source {
            services: mesh.services.clone(),
            nodes: shared(&before.nodes, &mesh.nodes, Node::eq),
            trust_domain: mesh.trust_domain.clone(),
            workloads: shared(&before.workloads, &mesh.workloads, Shared::is_same),
            policies: shared(&before.policies, &mesh.policies, Arc::ptr_eq),
        }
    }

    /// What has changed since `before`. All Services have if nodes have: they may be reached in another way.
    pub(super) fn changes<'a>(&'a self, before: &'a Source) -> Changes<'a> {
        let are_nodes_same = Arc::ptr_eq(&self.nodes, &before.nodes);
        let (gone, new) = match are_nodes_same {
            true => differences(&before.services, &self.services),
            false => (
                before.services.iter().collect(),
                self.services.iter().collect(),
            ),
        };
        Changes {
            gone,
            new,
            workloads: self.trust_domain != before.trust_domain
                || !Arc::ptr_eq(&self.workloads, &before.workloads)
                || !Arc::ptr_eq(&self.policies, &before.policies),
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

/// The objects that only one of two lists has. Lists that are not sorted by name share less than they could.
fn differences<'a>(
    before: &'a [Shared<Service>],
    now: &'a [Shared<Service>],
) -> (Vec<&'a Shared<Service>>, Vec<&'a Shared<Service>>) {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    let (mut olds, mut news) = (before.iter().peekable(), now.iter().peekable());
    loop {
        match (olds.peek(), news.peek()) {
            (Some(old), Some(now)) if Shared::is_same(old, now) => {
                olds.next();
                news.next();
            }
            (Some(old), Some(now)) if old.name < now.name => gone.extend(olds.next()),
            (Some(_), None) => gone.extend(olds.next()),
            (_, Some(_)) => new.extend(news.next()),
            (None, None) => return (gone, new),
        }
    }
}

//! What is for each node alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_model::{Difference, NodeName, Service, ServiceAccountName, Shared, Workload};
use heddle_xds::delta::Name;
use heddle_xds::resources::Type;

use super::{Change, Finding, policy_name};
use crate::catalog::Own;

/// The parts of all nodes; that of `None` is of the workloads that name no node.
#[derive(Debug, Default)]
pub(super) struct Parts {
    of: BTreeMap<Option<NodeName>, Part>,
    changed: BTreeSet<Option<NodeName>>,
    /// What is for a node without workloads.
    nothing: Arc<Own>,
    /// The accounts of gateways.
    gateways: Vec<ServiceAccountName>,
}

/// The part of one node.
#[derive(Debug, Default)]
struct Part {
    workloads: BTreeMap<Name, OfWorkload>,
    /// Services of which a workload here is an endpoint.
    services: BTreeSet<Name>,
    /// The part as nodes get it, without changes since.
    own: Arc<Own>,
}

#[derive(Debug)]
struct OfWorkload {
    policies: Vec<Name>,
    /// The account that the node acts for; `None` if the workload has an Envoy of its own.
    account: Option<ServiceAccountName>,
}

impl Parts {
    /// Follows the accounts of gateways.
    pub(super) fn follow_gateways(&mut self, gateways: &[ServiceAccountName]) {
        if self.gateways != gateways {
            self.gateways = gateways.to_vec();
            self.changed.extend(self.of.keys().cloned());
        }
    }

    /// Follows the differences of workloads and Services between two meshes.
    pub(super) fn follow(
        &mut self,
        workloads: &[Difference<'_, Shared<Workload>>],
        services: &[Difference<'_, Shared<Service>>],
        names: &Finding<'_>,
    ) {
        for old in workloads.iter().filter_map(|(old, _)| *old) {
            let name = names.name(Type::Workload, &old.name.to_string());
            self.part(old.node.as_ref()).workloads.remove(&name);
        }
        for new in workloads.iter().filter_map(|(_, new)| *new) {
            let policies = new.policies.iter();
            let policies = policies.map(|policy| names.name(Type::Policy, &policy_name(policy)));
            let of = OfWorkload {
                policies: policies.collect(),
                account: (!new.proxy.is_envoy()).then(|| new.service_account.clone()),
            };
            let name = names.name(Type::Workload, &new.name.to_string());
            self.part(new.node.as_ref()).workloads.insert(name, of);
        }
        for (old, new) in services {
            let Some(service) = new.or(*old) else {
                continue;
            };
            let name = names.name(Type::Service, &service.name.to_string());
            let [before, now] = [old, new].map(|one| one.map(|one| nodes(one)).unwrap_or_default());
            for gone in before.difference(&now) {
                self.part(*gone).services.remove(&name);
            }
            for come in now.difference(&before) {
                self.part(*come).services.insert(name.clone());
            }
        }
    }

    /// The part of a node, which is about to change.
    fn part(&mut self, node: Option<&NodeName>) -> &mut Part {
        let node = node.cloned();
        self.changed.insert(node.clone());
        self.of.entry(node).or_default()
    }

    /// Puts into a change what is for each node from now on.
    pub(super) fn take_changed(&mut self, change: &mut Change) {
        for node in std::mem::take(&mut self.changed) {
            let owners = &mut change.changed.owners;
            match &node {
                Some(node) => drop(owners.nodes.insert(node.clone())),
                None => owners.is_any = true,
            }
            let Some(part) = self.of.get_mut(&node) else {
                continue;
            };
            // Streams tell by the pointer whether there is another one.
            let has_changed = part.renew(&self.gateways);
            let own = (!part.workloads.is_empty()).then(|| Arc::clone(&part.own));
            if part.workloads.is_empty() && part.services.is_empty() {
                self.of.remove(&node);
            }
            if let Some(node) = node.filter(|_| has_changed) {
                change.own.push((node, own));
            }
        }
        let mut parts = self.of.iter();
        let is_one_node = parts.all(|(node, part)| node.is_none() || part.workloads.is_empty());
        let everyones = || self.of.get(&None).map(|part| Arc::clone(&part.own));
        let nothing = || Arc::clone(&self.nothing);
        change.everyones = is_one_node.then(|| everyones().unwrap_or_else(nothing));
    }
}

impl Part {
    /// Whether the part is another one than it was.
    fn renew(&mut self, gateways: &[ServiceAccountName]) -> bool {
        let policies = self.workloads.values().flat_map(|one| &one.policies);
        let accounts = self
            .workloads
            .values()
            .filter_map(|one| one.account.as_ref());
        let accounts: BTreeSet<ServiceAccountName> = accounts.cloned().collect();
        let own = Own {
            is_gateway: gateways.iter().any(|account| accounts.contains(account)),
            workloads: self.workloads.keys().cloned().collect(),
            policies: policies.cloned().collect(),
            services: self.services.clone(),
            accounts,
        };
        let has_changed = *self.own != own;
        if has_changed {
            self.own = Arc::new(own);
        }
        has_changed
    }
}

/// The nodes on which a Service has endpoints that are workloads.
fn nodes(service: &Service) -> BTreeSet<Option<&NodeName>> {
    let endpoints = service.endpoints();
    let workloads = endpoints.filter(|endpoint| endpoint.workload.is_some());
    workloads.map(|endpoint| endpoint.node.as_ref()).collect()
}

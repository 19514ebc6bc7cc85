//! Checks the invariants of a mesh.
//!
//! The types of this crate cannot enforce everything that their documentation promises. Tests and fuzzing check
//! compiled meshes against these invariants; a proxy relies on them without a check. A mesh from another process is
//! checked before any other use: the check takes time proportional to the mesh (times the logarithm of its longest
//! list), and ends without a panic for any content.
//!
//! Each object has a check of its own, of all that can be seen in the object alone. The check of a mesh adds what
//! concerns several objects: references, lists of objects, and identities, which depend on the trust domain.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{
    Endpoint, Mesh, Node, PathMatch, Service, ServiceAccountName, ServiceName, Shared, SpiffeId,
    is_dns_label,
};

mod balancing;
mod policy;
mod route;
mod service;
mod text;
mod workload;

#[cfg(test)]
mod tests;

/// TLS clients cannot ask for an identity of this length.
const TOO_LONG: &str = "its identity is too long";

impl Mesh {
    /// Checks the invariants that the documentation of this crate promises.
    ///
    /// # Errors
    /// The first broken invariant, with its place.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_part()?;
        for workload in &self.workloads {
            self.check_guard(workload)
                .map_err(|broken| format!("{}: {broken}", workload.name))?;
        }
        Ok(())
    }

    /// Like [`Mesh::check_invariants`], for what a node has: a policy may be missing, which it could not read. Its
    /// workload's guard refuses every call then.
    ///
    /// # Errors
    /// The first broken invariant, with its place.
    pub fn check_part(&self) -> Result<(), String> {
        self.check_part_after(&Mesh::default())
    }

    /// The same as [`Mesh::check_part`], where `before` has passed it: what is the same object in both, and depends on
    /// nothing that is not, is not looked at again.
    ///
    /// # Errors
    /// The first broken invariant, with its place.
    pub fn check_part_after(&self, before: &Mesh) -> Result<(), String> {
        increasing(&self.services, |service| &service.name, "services")?;
        let is_same_domain = self.trust_domain == before.trust_domain;
        if !is_same_domain || self.nodes != before.nodes {
            self.check_nodes()?;
        }
        let is_same_guarded = is_same_domain
            && Shared::is_same(&self.judged, &before.judged)
            && self.workloads.is_each_same(&before.workloads)
            && is_each_same(&self.policies, &before.policies, Arc::ptr_eq);
        if !is_same_guarded {
            self.check_workloads()?;
        }
        self.check_services(before, is_same_guarded)?;
        if self.elsewhere != before.elsewhere || self.further != before.further {
            self.check_elsewhere()?;
        }
        increasing(&self.address_ranges, |range| range, "address ranges")?;
        if !Shared::is_same(&self.judged, &before.judged) {
            increasing(
                self.judged.iter(),
                |workload| &workload.name,
                "judged workloads",
            )?;
            for workload in self.judged.iter() {
                workload
                    .check_invariants()
                    .map_err(|broken| format!("{}: {broken}", workload.name))?;
            }
        }
        increasing(&self.unreadable, |name| name, "unreadable workloads")?;
        if !Shared::is_same(&self.forwarding, &before.forwarding) {
            increasing(&self.forwarding.gateways, |account| account, "gateways")?;
            increasing(&self.forwarding.lazy, |account| account, "lazy accounts")?;
        }
        match (&self.named, &before.named) {
            (Some(named), Some(before)) if Shared::is_same(named, before) => Ok(()),
            (named, _) => increasing(
                named.iter().flat_map(|named| named.iter()),
                |(dependency, _)| dependency,
                "what the node has named",
            ),
        }
    }

    /// Checks the Services, of which those that are the same as before refer to what is there as long as that has become
    /// no less.
    fn check_services(&self, before: &Mesh, is_same_guarded: bool) -> Result<(), String> {
        let mut known = before.services.iter().peekable();
        let (mut new, mut has_less) = (Vec::new(), false);
        for service in &self.services {
            // No names are compared where all is the same.
            if known.next_if(|one| Shared::is_same(one, service)).is_some() {
                continue;
            }
            while known.next_if(|one| one.name < service.name).is_some() {
                has_less = true;
            }
            if let Some(one) = known.next_if(|one| one.name == service.name) {
                if Shared::is_same(one, service) {
                    continue;
                }
                let mut ports = one.ports.iter().map(|port| port.port);
                has_less |= ports.any(|port| service.port(port).is_none());
            }
            new.push(service);
        }
        has_less |= known.next().is_some();
        let place = |service: &Service| {
            let name = service.name.clone();
            move |broken| format!("{name}: {broken}")
        };
        for service in &new {
            service
                .check_invariants()
                .and_then(|()| self.check_references(service, |one| self.check_reference(one)))
                .map_err(place(service))?;
        }
        if has_less || !is_same_guarded {
            for service in &self.services {
                let checked = match is_same_guarded {
                    true => self.check_references(service, |_| Ok(())),
                    false => self.check_references(service, |one| self.check_reference(one)),
                };
                checked.map_err(place(service))?;
            }
        }
        let new = new.iter().flat_map(|service| &service.addresses);
        self.check_addresses(&new.copied().collect())
    }

    fn check_nodes(&self) -> Result<(), String> {
        increasing(&self.nodes, |node| &node.name, "nodes")?;
        for node in &self.nodes {
            node.check_invariants()
                .and_then(|()| ensure(self.has_valid_identity(node), TOO_LONG))
                .map_err(|broken| format!("node {}: {broken}", node.name))?;
        }
        Ok(())
    }

    /// Checks the workloads, and the policies, of which each concerns one of them.
    fn check_workloads(&self) -> Result<(), String> {
        increasing(&self.workloads, |workload| &workload.name, "workloads")?;
        self.check_policies()?;
        for workload in &self.workloads {
            workload
                .check_invariants()
                .and_then(|()| self.check_account(&workload.service_account))
                .map_err(|broken| format!("{}: {broken}", workload.name))?;
        }
        Ok(())
    }

    fn check_elsewhere(&self) -> Result<(), String> {
        increasing(&self.elsewhere, |address| address, "addresses elsewhere")?;
        increasing(
            &self.further,
            |(address, _)| address,
            "further addresses elsewhere",
        )?;
        let is_elsewhere = |address| self.elsewhere.binary_search(address).is_ok();
        ensure(
            self.further.iter().all(|(further, first)| {
                further != first && is_elsewhere(further) && is_elsewhere(first)
            }),
            "a further address, or the first address of its workload, is missing in elsewhere",
        )?;
        let places = self.elsewhere.iter();
        ensure(
            places.copied().all(is_one_place),
            "an address in elsewhere is invalid",
        )
    }

    /// Checks that no two Services have one of these addresses.
    fn check_addresses(&self, new: &BTreeSet<IpAddr>) -> Result<(), String> {
        if new.is_empty() {
            return Ok(());
        }
        let owned = self.services.iter().flat_map(|service| {
            let addresses = service.addresses.iter();
            let addresses = addresses.filter(|address| new.contains(address));
            addresses.map(move |address| (*address, &service.name))
        });
        let mut owned: Vec<(IpAddr, &ServiceName)> = owned.collect();
        owned.sort_unstable();
        for pair in owned.windows(2) {
            let [(address, other), (next, name)] = pair else {
                continue;
            };
            if address == next {
                return Err(format!("{address} is that of {other} and of {name}"));
            }
        }
        Ok(())
    }

    fn has_valid_identity(&self, node: &Node) -> bool {
        let id = SpiffeId::node(self.trust_domain.clone(), node.name.clone());
        id.server_name().is_some()
    }

    /// Checks that TLS clients can ask for workloads of this account.
    fn check_account(&self, account: &ServiceAccountName) -> Result<(), String> {
        let id = SpiffeId::workload(self.trust_domain.clone(), account.clone());
        ensure(id.server_name().is_some(), TOO_LONG)
    }

    /// Checks what a Service refers to: its endpoints by `check`.
    fn check_references(
        &self,
        service: &Service,
        check: impl Fn(&Endpoint) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut actions = BTreeSet::new();
        for port in &service.ports {
            let place = |broken| format!("port {}: {broken}", port.port);
            for endpoint in &port.endpoints {
                check(endpoint)
                    .map_err(|broken| place(format!("endpoint {}: {broken}", endpoint.address)))?;
            }
            for rule in port.all_rules() {
                if actions.insert(Arc::as_ptr(&rule.action)) {
                    self.check_backends(&rule.action).map_err(|broken| {
                        place(format!("{} {}: {broken}", rule.name, rule.rule))
                    })?;
                }
            }
        }
        Ok(())
    }

    fn check_reference(&self, endpoint: &Endpoint) -> Result<(), String> {
        let Some(account) = &endpoint.account else {
            return Ok(());
        };
        self.check_account(account)?;
        let Some(name) = &endpoint.workload else {
            return Ok(());
        };
        let Some(workload) = self.workload(name) else {
            return Err("its workload is unknown".to_owned());
        };
        ensure(
            endpoint.is_of(workload),
            "its address, node or account differs from its workload's",
        )
    }
}

impl Node {
    /// Checks the invariants of a node alone.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        ensure(self.address.port() > 0, "its port is 0")?;
        ensure(is_one_place(self.address.ip()), "invalid address")
    }
}

fn is_each_same<T>(ones: &[T], others: &[T], is_same: impl Fn(&T, &T) -> bool) -> bool {
    let mut pairs = ones.iter().zip(others);
    ones.len() == others.len() && pairs.all(|(one, other)| is_same(one, other))
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(broken.to_owned())
    }
}

fn increasing<'i, T: 'i, K: Ord>(
    items: impl IntoIterator<Item = &'i T>,
    key: impl Fn(&T) -> &K,
    what: &str,
) -> Result<(), String> {
    let holds = items
        .into_iter()
        .is_sorted_by(|one, next| key(one) < key(next));
    if holds {
        return Ok(());
    }
    Err(format!(
        "the {what} are not sorted, or one of them occurs twice"
    ))
}

/// Whether a single process can have this address: it is neither unspecified nor multicast nor broadcast.
pub fn is_one_place(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}

fn check_port_name(name: Option<&str>) -> Result<(), String> {
    ensure(name.is_none_or(is_dns_label), "a port's name")
}

fn check_path_match(path: &PathMatch) -> Result<(), String> {
    match path {
        PathMatch::Exact(path) => ensure(text::is_canonical_path(path), "a path"),
        PathMatch::Prefix(prefix) => check_prefix(prefix),
    }
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    let holds = prefix.is_empty() || (text::is_canonical_path(prefix) && !prefix.ends_with('/'));
    ensure(
        holds,
        "a prefix neither is empty nor starts, and does not end, with a slash",
    )
}

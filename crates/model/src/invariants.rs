//! Checks the invariants of a mesh.
//!
//! The types of this crate cannot enforce everything that their documentation promises. Tests and fuzzing check
//! compiled meshes against these invariants; a proxy relies on them without a check. A mesh from another process is
//! checked before any other use: the check takes time proportional to the mesh (times the logarithm of its longest
//! list), and ends without a panic for any content.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::{
    Endpoint, Mesh, Node, PathMatch, Service, ServiceAccountName, ServiceName, ServicePort,
    SpiffeId, Workload, is_dns_label,
};

mod balancing;
mod policy;
mod route;
mod text;

#[cfg(test)]
mod tests;

impl Mesh {
    /// Checks the invariants that the documentation of this crate promises.
    ///
    /// # Errors
    /// The first broken invariant, with its place.
    pub fn check_invariants(&self) -> Result<(), String> {
        increasing(&self.nodes, |node| &node.name, "nodes")?;
        increasing(&self.services, |service| &service.name, "services")?;
        increasing(&self.workloads, |workload| &workload.name, "workloads")?;
        for node in &self.nodes {
            self.check_node(node)
                .map_err(|broken| format!("node {}: {broken}", node.name))?;
        }
        self.check_policies()?;
        for workload in &self.workloads {
            self.check_workload(workload)
                .map_err(|broken| format!("{}: {broken}", workload.name))?;
        }
        for service in &self.services {
            self.check_service(service)
                .map_err(|broken| format!("{}: {broken}", service.name))?;
        }
        self.check_addresses()?;
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

    /// Checks that each cluster address belongs to one Service.
    fn check_addresses(&self) -> Result<(), String> {
        let mut owners: BTreeMap<IpAddr, &ServiceName> = BTreeMap::new();
        for service in &self.services {
            for address in &service.addresses {
                if let Some(other) = owners.insert(*address, &service.name) {
                    let name = &service.name;
                    return Err(format!("{address} is that of {other} and of {name}"));
                }
            }
        }
        Ok(())
    }

    fn check_node(&self, node: &Node) -> Result<(), String> {
        ensure(node.address.port() > 0, "its port is 0")?;
        ensure(is_one_place(node.address.ip()), "invalid address")?;
        let id = SpiffeId::node(self.trust_domain.clone(), node.name.clone());
        ensure(id.server_name().is_some(), "its identity is too long")
    }

    /// Checks that TLS clients can ask for workloads of this account.
    fn check_account(&self, account: &ServiceAccountName) -> Result<(), String> {
        let id = SpiffeId::workload(self.trust_domain.clone(), account.clone());
        ensure(id.server_name().is_some(), "its identity is too long")
    }

    fn check_workload(&self, workload: &Workload) -> Result<(), String> {
        ensure(workload.weight > 0, "it has no weight")?;
        ensure(is_one_place(workload.address), "invalid address")?;
        let more = &workload.more_addresses;
        increasing(more, |address| address, "further addresses")?;
        ensure(
            more.iter()
                .all(|&one| is_one_place(one) && one != workload.address),
            "a further address is invalid, or equal to the first one",
        )?;
        ensure(
            workload.service_account.namespace == workload.name.namespace,
            "its service account is another namespace's",
        )?;
        self.check_account(&workload.service_account)?;
        for port in &workload.ports {
            ensure(port.port > 0, "it has a port 0")?;
            check_port_name(port.name.as_deref())?;
        }
        self.check_guard(workload)?;
        check_command(workload)
    }

    fn check_service(&self, service: &Service) -> Result<(), String> {
        increasing(&service.ports, |port| &port.port, "ports")?;
        increasing(&service.addresses, |address| address, "cluster addresses")?;
        let mut addresses = service.addresses.iter();
        ensure(
            addresses.all(|&one| is_one_place(one) && !one.is_loopback()),
            "a cluster address is invalid",
        )?;
        ensure(
            service.addresses.is_empty() || !service.headless,
            "it is headless and has an address",
        )?;
        balancing::check(&service.balancing)?;
        for port in &service.ports {
            self.check_port(port)
                .map_err(|broken| format!("port {}: {broken}", port.port))?;
        }
        Ok(())
    }

    fn check_port(&self, port: &ServicePort) -> Result<(), String> {
        ensure(port.port > 0, "its number is 0")?;
        check_port_name(port.name.as_deref())?;
        increasing(&port.endpoints, |endpoint| &endpoint.address, "endpoints")?;
        for endpoint in &port.endpoints {
            self.check_endpoint(endpoint)
                .map_err(|broken| format!("endpoint {}: {broken}", endpoint.address))?;
        }
        for rule in port
            .routes
            .iter()
            .chain(port.consumer_routes.values())
            .flatten()
        {
            self.check_rule(rule)
                .map_err(|broken| format!("{} {}: {broken}", rule.name, rule.rule))?;
        }
        Ok(())
    }

    fn check_endpoint(&self, endpoint: &Endpoint) -> Result<(), String> {
        ensure(endpoint.weight > 0, "it has no weight")?;
        balancing::check_room(endpoint.max_requests)?;
        ensure(endpoint.address.port() > 0, "its port is 0")?;
        ensure(is_one_place(endpoint.address.ip()), "invalid address")?;
        let Some(account) = &endpoint.account else {
            let is_outside = endpoint.workload.is_none() && endpoint.node.is_none();
            return ensure(is_outside, "it is in the mesh and has no account");
        };
        self.check_account(account)?;
        let Some(name) = &endpoint.workload else {
            return Ok(());
        };
        let Some(workload) = self.workload(name) else {
            return Err("its workload is unknown".to_owned());
        };
        ensure(
            *account == workload.service_account
                && endpoint.node == workload.node
                && endpoint.address.ip() == workload.address,
            "its address, node or account differs from its workload's",
        )
    }
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(broken.to_owned())
    }
}

fn increasing<T, K: Ord>(items: &[T], key: impl Fn(&T) -> &K, what: &str) -> Result<(), String> {
    let holds = items.is_sorted_by(|one, next| key(one) < key(next));
    if holds {
        return Ok(());
    }
    Err(format!(
        "the {what} are not sorted, or one of them occurs twice"
    ))
}

/// Whether a single process can have this address.
fn is_one_place(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}

fn check_port_name(name: Option<&str>) -> Result<(), String> {
    ensure(name.is_none_or(is_dns_label), "a port's name")
}

fn check_command(workload: &Workload) -> Result<(), String> {
    let Some(command) = &workload.command else {
        return Ok(());
    };
    let program = command.argv.first();
    ensure(
        program.is_some_and(|program| !program.is_empty()),
        "no program",
    )?;
    let is_nul_free = |text: &String| !text.contains('\0');
    let env_names = command.env.keys();
    ensure(
        command
            .argv
            .iter()
            .chain(command.env.values())
            .all(is_nul_free)
            && env_names
                .into_iter()
                .all(|name| !name.is_empty() && !name.contains(['=', '\0'])),
        "a command that cannot be started",
    )?;
    let absolute = command
        .working_dir
        .as_ref()
        .is_none_or(|dir| dir.is_absolute());
    ensure(absolute, "its working directory is relative")
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

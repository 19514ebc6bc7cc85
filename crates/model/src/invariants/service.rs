//! Invariants of Services and their endpoints.

use super::{balancing, check_port_name, ensure, increasing, is_one_place, route};
use crate::{Endpoint, Service, ServicePort};

impl Service {
    /// Checks the invariants of a Service alone, with its endpoints and routes, without what they refer to.
    ///
    /// # Errors
    /// The first broken invariant, with its place.
    pub fn check_invariants(&self) -> Result<(), String> {
        increasing(&self.ports, |port| &port.port, "ports")?;
        increasing(&self.addresses, |address| address, "cluster addresses")?;
        let mut addresses = self.addresses.iter();
        ensure(
            addresses.all(|&one| is_one_place(one) && !one.is_loopback()),
            "a cluster address is invalid",
        )?;
        ensure(
            self.addresses.is_empty() || !self.headless,
            "it is headless and has an address",
        )?;
        balancing::check(&self.balancing)?;
        let mut checked = route::Checked::default();
        for port in &self.ports {
            check_port(port, &mut checked)
                .map_err(|broken| format!("port {}: {broken}", port.port))?;
        }
        Ok(())
    }
}

impl Endpoint {
    /// Checks the invariants of an endpoint alone, without its workload.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        ensure(self.weight > 0, "it has no weight")?;
        balancing::check_room(self.max_requests)?;
        ensure(self.address.port() > 0, "its port is 0")?;
        ensure(is_one_place(self.address.ip()), "invalid address")?;
        let is_outside = self.workload.is_none() && self.node.is_none();
        ensure(
            self.account.is_some() || is_outside,
            "it is in the mesh and has no account",
        )?;
        ensure(
            !self.has_envoy || self.account.is_some(),
            "it has an Envoy and no account",
        )
    }
}

fn check_port<'s>(port: &'s ServicePort, checked: &mut route::Checked<'s>) -> Result<(), String> {
    ensure(port.port > 0, "its number is 0")?;
    check_port_name(port.name.as_deref())?;
    increasing(&port.endpoints, |endpoint| &endpoint.address, "endpoints")?;
    for endpoint in &port.endpoints {
        endpoint
            .check_invariants()
            .map_err(|broken| format!("endpoint {}: {broken}", endpoint.address))?;
    }
    for rule in port.all_rules() {
        checked
            .check(rule)
            .map_err(|broken| format!("{} {}: {broken}", rule.name, rule.rule))?;
    }
    Ok(())
}

//! Names of resources. Each has one valid spelling.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use heddle_model::{NodeName, PolicyName, ServiceName, WorkloadName};

use super::{EndpointOf, InvalidResource};

/// The name of the only MeshSettings.
pub(super) const MESH: &str = "mesh";

/// The parts of an endpoint's name.
pub(super) struct EndpointName {
    pub(super) service: ServiceName,
    pub(super) port: u16,
    pub(super) address: SocketAddr,
}

/// The name of a policy's resource.
pub fn of_policy(name: &PolicyName) -> String {
    format!("{}/{}/{}", name.kind.as_str(), name.namespace, name.name)
}

pub(super) fn of_endpoint(of: &EndpointOf) -> String {
    format!("{}/{}/{}", of.service, of.port, of.endpoint.address)
}

pub(super) fn mesh(name: &str) -> Result<(), InvalidResource> {
    match name == MESH {
        true => Ok(()),
        false => Err(InvalidResource::Name(MESH)),
    }
}

pub(super) fn node(name: &str) -> Result<NodeName, InvalidResource> {
    NodeName::parse(name).map_err(|_| InvalidResource::Name("NODE"))
}

pub(super) fn address(name: &str) -> Result<IpAddr, InvalidResource> {
    canonical(name, name.parse().ok()).ok_or(InvalidResource::Name("IP"))
}

pub(crate) fn workload(name: &str) -> Result<WorkloadName, InvalidResource> {
    WorkloadName::parse(name).map_err(|_| InvalidResource::Name("NAMESPACE/NAME"))
}

pub(super) fn service(name: &str) -> Result<ServiceName, InvalidResource> {
    ServiceName::parse(name).map_err(|_| InvalidResource::Name("NAMESPACE/NAME"))
}

pub(super) fn policy(name: &str) -> Result<PolicyName, InvalidResource> {
    parse_policy(name).ok_or(InvalidResource::Name("KIND/NAMESPACE/NAME"))
}

/// Parses the name of a policy's resource.
pub(super) fn parse_policy(name: &str) -> Option<PolicyName> {
    let (kind, rest) = name.split_once('/')?;
    PolicyName::parse(&format!("{kind} {rest}")).ok()
}

pub(super) fn endpoint(name: &str) -> Result<EndpointName, InvalidResource> {
    parse_endpoint(name).ok_or(InvalidResource::Name("NAMESPACE/SERVICE/PORT/IP:PORT"))
}

fn parse_endpoint(name: &str) -> Option<EndpointName> {
    let mut parts = name.splitn(4, '/');
    let service = ServiceName::new(parts.next()?, parts.next()?).ok()?;
    let port = parts.next()?;
    let port = canonical(port, port.parse().ok())?;
    let address = parts.next()?;
    let address: SocketAddr = canonical(address, address.parse().ok())?;
    // The scope of an address has a meaning on one machine only.
    let is_scoped = matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0);
    (port != 0 && !is_scoped).then_some(EndpointName {
        service,
        port,
        address,
    })
}

/// A value that is displayed as it was written.
fn canonical<T: Display>(written: &str, value: Option<T>) -> Option<T> {
    value.filter(|value| value.to_string() == written)
}

//! EndpointSlices: endpoints that are not LocalWorkloads.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use heddle_model::ServiceName;

use super::index::Index;
use super::{Scope, balancing, did_you_mean, find_service, protocol};
use crate::Options;
use crate::check;
use crate::findings::Findings;
use crate::manifest::core::EndpointSlice;
use crate::manifest::node::FieldPath;
use crate::manifest::{Kind, Object};

/// The label that names the Service of a slice.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Limits of endpoints and ports of one slice, and of addresses of one endpoint (the API's).
const MAX_ENDPOINTS: usize = 1_000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 100;

/// One slice's ready addresses and its ports.
pub(super) struct SlicePorts {
    addresses: Vec<IpAddr>,
    ports: Vec<(Option<String>, u16)>,
    /// The limit of concurrent requests of each endpoint.
    pub(super) max_requests: Option<u32>,
}

impl SlicePorts {
    /// The slice's endpoints for a Service's port, whose name must be the same.
    pub(super) fn endpoints(&self, name: Option<&str>) -> impl Iterator<Item = SocketAddr> {
        let matching = self
            .ports
            .iter()
            .filter(move |(own, _)| own.as_deref() == name);
        matching.flat_map(|(_, port)| self.addresses.iter().map(|ip| SocketAddr::new(*ip, *port)))
    }
}

/// All slices by their Service.
pub(super) fn by_service(
    index: &Index<'_>,
    options: &Options,
    findings: &mut Findings,
) -> BTreeMap<ServiceName, Vec<SlicePorts>> {
    let mut slices: BTreeMap<ServiceName, Vec<SlicePorts>> = BTreeMap::new();
    for (object, body) in &index.slices {
        let mut scope = Scope::of(object, findings);
        let service = service_of(object, index, &mut scope);
        let compiled = SlicePorts {
            max_requests: balancing::max_requests(object, &mut scope),
            ..slice(body, options, &mut scope)
        };
        if let Some(service) = service {
            slices.entry(service).or_default().push(compiled);
        }
    }
    slices
}

fn service_of(object: &Object, index: &Index<'_>, scope: &mut Scope<'_>) -> Option<ServiceName> {
    let labels = FieldPath::of("metadata.labels");
    let Some(text) = object.metadata.labels.get(SERVICE_LABEL) else {
        let reason = format!("without the label {SERVICE_LABEL} it belongs to no Service");
        scope.warn(&labels, reason, "add the label with the Service's name");
        return None;
    };
    let path = labels.field(SERVICE_LABEL);
    let Ok(service) = ServiceName::new(object.namespace.as_str(), text) else {
        scope.error(&path, format!("{text:?} is no name of a Service"), "");
        return None;
    };
    if !index.services.contains_key(&service) {
        if scope.is_refused(Kind::Service, &service.namespace, &service.name) {
            return None;
        }
        let remedy = find_service(&service, index.services.keys(), |elsewhere| {
            format!(
                "write namespace: {} in the EndpointSlice's metadata",
                elsewhere.namespace
            )
        });
        scope.error(&path, format!("there is no Service {service}"), remedy);
        return None;
    }
    Some(service)
}

fn slice(body: &EndpointSlice, options: &Options, scope: &mut Scope<'_>) -> SlicePorts {
    let at = FieldPath::default();
    let wants_ipv4 = match body.address_type.as_str() {
        "IPv4" => true,
        "IPv6" => false,
        "FQDN" => {
            scope.error(
                &at.field("addressType"),
                "names are not looked up",
                "write the addresses, with addressType IPv4 or IPv6",
            );
            return SlicePorts {
                addresses: Vec::new(),
                ports: Vec::new(),
                max_requests: None,
            };
        }
        other => {
            let remedy = did_you_mean(other, ["IPv4", "IPv6"], "use IPv4 or IPv6");
            scope.error(
                &at.field("addressType"),
                format!("{other:?} is no type"),
                remedy,
            );
            return SlicePorts {
                addresses: Vec::new(),
                ports: Vec::new(),
                max_requests: None,
            };
        }
    };
    SlicePorts {
        addresses: addresses(body, wants_ipv4, options, scope),
        ports: ports(body, scope),
        max_requests: None,
    }
}

fn addresses(
    body: &EndpointSlice,
    wants_ipv4: bool,
    options: &Options,
    scope: &mut Scope<'_>,
) -> Vec<IpAddr> {
    let at = FieldPath::of("endpoints");
    let endpoints = scope.at_most(&at, &body.endpoints, MAX_ENDPOINTS);
    let mut addresses = Vec::new();
    for (position, endpoint) in endpoints.iter().enumerate() {
        let at = at.index(position).field("addresses");
        let own = scope.at_most(&at, &endpoint.addresses, MAX_ADDRESSES);
        if own.is_empty() {
            scope.error(&at, "there is no address", "add one");
        }
        // The addresses of one endpoint are interchangeable; clients use the first.
        for (which, text) in own.iter().enumerate() {
            let at = at.index(which);
            let address = scope.check(&at, check::endpoint_address(text));
            let address = address.and_then(|one| scope.within(&at, one, options));
            let Some(address) = address else {
                continue;
            };
            if address.is_ipv4() != wants_ipv4 {
                let remedy = "use a slice for each family";
                let reason = format!("{address} is no {} address", body.address_type);
                scope.error(&at, reason, remedy);
            } else if which == 0 && endpoint.conditions.ready != Some(false) {
                addresses.push(address);
            }
        }
    }
    addresses
}

fn ports(body: &EndpointSlice, scope: &mut Scope<'_>) -> Vec<(Option<String>, u16)> {
    let at = FieldPath::of("ports");
    let written = scope.at_most(&at, &body.ports, MAX_PORTS);
    let mut ports = Vec::new();
    for (position, written) in written.iter().enumerate() {
        let at = at.index(position);
        if !protocol::is_tcp(written.protocol.as_deref(), &at, scope) {
            continue;
        }
        let Some(number) = written.port else {
            scope.error(&at.field("port"), "this port has no number", "add port");
            continue;
        };
        if let Some(port) = scope.check(&at.field("port"), check::port(number)) {
            let name = written.name.clone().filter(|name| !name.is_empty());
            ports.push((name, port));
        }
    }
    ports
}

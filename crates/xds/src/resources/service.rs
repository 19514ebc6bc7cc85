//! Services, without their endpoints.

use std::collections::BTreeMap;

use heddle_model::{AppProtocol, Namespace, Service, ServiceName, ServicePort};

use super::InvalidResource;
use super::fields::{ip_bytes, ips, or_empty, port, some_text};
use super::route::{Actions, Rules};
use crate::proto;
use crate::trust::Invalid;

impl From<&Service> for proto::Service {
    fn from(service: &Service) -> Self {
        let mut actions = Actions::default();
        let ports = service.ports.iter();
        Self {
            headless: service.headless,
            addresses: service.addresses.iter().copied().map(ip_bytes).collect(),
            balancer: proto::Balancer::from(service.balancer).into(),
            balancing: Some((&service.balancing).into()),
            ports: ports.map(|port| port_message(port, &mut actions)).collect(),
            actions: actions.messages(),
        }
    }
}

pub(super) fn service(
    name: ServiceName,
    message: proto::Service,
) -> Result<Service, InvalidResource> {
    let balancer = proto::Balancer::try_from(message.balancer);
    let balancing = message.balancing.ok_or(Invalid("service.balancing"))?;
    let mut rules = Rules::new(message.actions)?;
    let ports = message.ports.into_iter();
    let service = Service {
        name,
        headless: message.headless,
        addresses: ips(&message.addresses, "service.addresses")?,
        balancer: balancer.map_err(|_| Invalid("service.balancer"))?.into(),
        balancing: balancing.try_into()?,
        ports: ports
            .map(|port| service_port(port, &mut rules))
            .collect::<Result<_, _>>()?,
    };
    service
        .check_invariants()
        .map_err(InvalidResource::Invariant)?;
    Ok(service)
}

fn port_message<'s>(port: &'s ServicePort, actions: &mut Actions<'s>) -> proto::ServicePort {
    let routes = port.routes.as_ref().map(|rules| actions.rules(rules));
    let consumer_routes = port.consumer_routes.iter();
    proto::ServicePort {
        port: port.port.into(),
        name: or_empty(port.name.as_ref()),
        protocol: proto::AppProtocol::from(port.protocol).into(),
        routes,
        consumer_routes: consumer_routes
            .map(|(namespace, rules)| (namespace.to_string(), actions.rules(rules)))
            .collect(),
    }
}

fn service_port(message: proto::ServicePort, rules: &mut Rules) -> Result<ServicePort, Invalid> {
    let protocol = proto::AppProtocol::try_from(message.protocol);
    let routes = message.routes.map(|list| rules.take(list)).transpose()?;
    let mut consumer_routes = BTreeMap::new();
    for (namespace, list) in message.consumer_routes {
        let namespace = Namespace::parse(&namespace);
        let namespace = namespace.map_err(|_| Invalid("service.ports.consumer_routes"))?;
        consumer_routes.insert(namespace, rules.take(list)?);
    }
    Ok(ServicePort {
        name: some_text(message.name),
        port: port(message.port, "service.ports.port")?,
        protocol: protocol
            .map_err(|_| Invalid("service.ports.protocol"))?
            .into(),
        endpoints: Vec::new(),
        routes,
        consumer_routes,
    })
}

impl From<AppProtocol> for proto::AppProtocol {
    fn from(protocol: AppProtocol) -> Self {
        match protocol {
            AppProtocol::Undeclared => Self::Undeclared,
            AppProtocol::Http => Self::Http,
            AppProtocol::Http2Cleartext => Self::Http2Cleartext,
            AppProtocol::Grpc => Self::Grpc,
            AppProtocol::Tcp => Self::Tcp,
            AppProtocol::Tls => Self::Tls,
        }
    }
}

impl From<proto::AppProtocol> for AppProtocol {
    fn from(protocol: proto::AppProtocol) -> Self {
        match protocol {
            proto::AppProtocol::Undeclared => Self::Undeclared,
            proto::AppProtocol::Http => Self::Http,
            proto::AppProtocol::Http2Cleartext => Self::Http2Cleartext,
            proto::AppProtocol::Grpc => Self::Grpc,
            proto::AppProtocol::Tcp => Self::Tcp,
            proto::AppProtocol::Tls => Self::Tls,
        }
    }
}

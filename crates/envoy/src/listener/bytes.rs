//! Listeners of Services whose connections carry bytes: outgoing connections to their addresses are handed over to them.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};
use heddle_model::{Service, ServicePort};

use super::{chain, manager, tcp_filter, tcp_proxy};
use crate::cluster::flavours;
use crate::names::{ClusterName, Flavour, bytes_listener};
use crate::values::{address, truth};

/// The listeners of a Service's port, one for each of its addresses; none if it carries requests only.
pub(crate) fn of_service(service: &Service, port: &ServicePort) -> impl Iterator<Item = Listener> {
    let flavours = flavours(port);
    let addresses = match flavours.contains(&Flavour::Bytes) {
        true => service.addresses.as_slice(),
        false => &[],
    };
    let has_requests = flavours.contains(&Flavour::Requests);
    let name = ClusterName {
        service: &service.name,
        port: port.port,
        flavour: Flavour::Bytes,
    };
    let proxy = tcp_proxy("bytes", &name.to_string());
    addresses.iter().map(move |ip| {
        let at = SocketAddr::new(*ip, port.port);
        let requests = FilterChainMatch {
            application_protocols: ["http/1.0", "http/1.1"].map(str::to_owned).to_vec(),
            ..FilterChainMatch::default()
        };
        let requests = chain("requests", requests, None, vec![manager::outgoing()]);
        Listener {
            name: bytes_listener(&service.name, at),
            address: Some(address(at)),
            bind_to_port: truth(false),
            // A port that is not declared may carry either.
            filter_chains: has_requests.then_some(requests).into_iter().collect(),
            default_filter_chain: Some(FilterChain {
                name: "bytes".to_owned(),
                filters: vec![tcp_filter(&proxy)],
                ..FilterChain::default()
            }),
            ..Listener::default()
        }
    })
}

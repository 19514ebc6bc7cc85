//! The listener of connections to a workload.
//!
//! ```text
//!   TLS, server name *.sa.TRUST-DOMAIN ─▶ mutual TLS ─┬─ http/1.1 ───────▶ policies ─▶ the workload
//!                                                     └─ heddle-bytes/1 ─▶ policies ─▶ the workload
//!   anything else, from an anonymous caller ─────────────────────────────▶ policies ─▶ the workload
//! ```
//!
//! Policies may be about ports, and probes always are: each port that one of them names has filter chains of its own.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch, Listener};
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route, route_action,
    route_match,
};
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::UpstreamConnectMode;
use heddle_model::{Guard, Mesh, Workload};

use super::gateway::forwarding;
use super::{
    INBOUND_PORT, chain, listener_filter, longest, manager, no_circle, original_dst, redirected,
    tcp_filter, tcp_proxy,
};
use crate::gateway::Roles;
use crate::names::{BLACKHOLE, CALLER, Flavour, INBOUND, ORIGINAL_DST};
use crate::policy::{self, Callers, accepted};
use crate::tls;
use crate::values::{number, seconds};

/// The listener of connections to a workload, with its policies. Services say that some of its ports carry bytes.
pub(crate) fn inbound(
    mesh: &Mesh,
    workload: &Workload,
    bytes_ports: &BTreeSet<u16>,
    roles: &Roles,
) -> Listener {
    let guard = Guard::new(mesh, workload);
    let mut chains = vec![no_circle(INBOUND_PORT)];
    if roles.is_gateway(workload) {
        chains.push(forwarding(roles));
    }
    for port in ports(workload, &guard).union(bytes_ports) {
        let is_bytes = bytes_ports.contains(port);
        chains.extend(of_port(roles, &guard, Some(*port), is_bytes));
    }
    chains.extend(of_port(roles, &guard, None, false));
    let inspector = TlsInspector::default();
    Listener {
        filter_chains: chains,
        listener_filters: vec![
            original_dst(),
            listener_filter("envoy.filters.listener.tls_inspector", &inspector),
        ],
        ..redirected("virtual_inbound", workload, INBOUND_PORT)
    }
}

/// The ports that a rule or a probe names.
fn ports(workload: &Workload, guard: &Guard) -> BTreeSet<u16> {
    let rules = guard.policies().iter().flat_map(|policy| &policy.rules);
    let ruled = rules.flat_map(|rule| rule.ports.iter().copied());
    let probed = workload.probes.iter().map(|probe| probe.port);
    ruled.chain(probed).collect()
}

/// The chains of a port; of all others for `None`.
fn of_port(
    roles: &Roles,
    guard: &Guard,
    port: Option<u16>,
    is_bytes: bool,
) -> impl Iterator<Item = FilterChain> {
    let shown = port.map_or_else(|| "other".to_owned(), |port| port.to_string());
    let to_port = FilterChainMatch {
        destination_port: port.and_then(|port| number(port.into())),
        ..FilterChainMatch::default()
    };
    // No rule is about port 0.
    let port = port.unwrap_or(0);
    let proven = [Flavour::Requests, Flavour::Bytes].map(|flavour| {
        let matching = FilterChainMatch {
            transport_protocol: "tls".to_owned(),
            server_names: vec![format!("*.sa.{}", roles.trust_domain)],
            application_protocols: vec![flavour.alpn().to_owned()],
            ..to_port.clone()
        };
        let name = format!("mesh/{shown}/{}", flavour.alpn());
        let callers = match flavour {
            // No request is seen on it.
            Flavour::Requests if is_bytes => Vec::new(),
            Flavour::Requests => tls::workloads(&roles.trust_domain),
            Flavour::Bytes => accepted::identities(guard, port, roles),
        };
        if callers.is_empty() {
            // Not left out: the chain for anything else would take its connections.
            return chain(name, matching, None, refused());
        }
        let filters = match flavour {
            Flavour::Requests => requests(&name, guard, port, Callers::Proven, roles),
            Flavour::Bytes => bytes_of_proven(&name),
        };
        let socket = tls::downstream(callers, flavour);
        chain(name, matching, Some(socket), filters)
    });
    let name = format!("plain/{shown}");
    let has_rules = guard.looks_at_requests(port) || guard.has_probe_requests(port);
    let is_judged = has_rules && !is_bytes;
    let filters = match accepted::is_open_to_anonymous(guard, port) {
        _ if is_judged => requests(&name, guard, port, Callers::Anonymous, roles),
        true => vec![tcp_filter(&tcp_proxy(&name, INBOUND))],
        false => refused(),
    };
    proven
        .into_iter()
        .chain([chain(name, to_port, None, filters)])
}

/// What closes a connection.
fn refused() -> Vec<Filter> {
    vec![tcp_filter(&tcp_proxy("refused", BLACKHOLE))]
}

fn requests(name: &str, guard: &Guard, port: u16, callers: Callers, roles: &Roles) -> Vec<Filter> {
    let policies = policy::http(guard, port, callers, roles);
    let routes = RouteSpecifier::RouteConfig(to_workload());
    vec![manager::arriving(name, routes, policies)]
}

/// Bytes of callers whose identity the handshake has accepted.
fn bytes_of_proven(name: &str) -> Vec<Filter> {
    let mut proxy = tcp_proxy(name, INBOUND);
    // The workload is connected to once the caller is known.
    proxy.upstream_connect_mode = UpstreamConnectMode::OnDownstreamTlsHandshake.into();
    proxy.max_early_data_bytes = number(0);
    proxy.max_downstream_connection_duration = longest();
    vec![tcp_filter(&proxy)]
}

/// Every request to the workload, without what only proxies say to each other.
fn to_workload() -> RouteConfiguration {
    let action = RouteAction {
        cluster_specifier: Some(route_action::ClusterSpecifier::Cluster(INBOUND.to_owned())),
        timeout: seconds(0),
        ..RouteAction::default()
    };
    let route = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
            ..RouteMatch::default()
        }),
        action: Some(route::Action::Route(action)),
        ..Route::default()
    };
    RouteConfiguration {
        name: "inbound".to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "inbound".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![route],
            request_headers_to_remove: [CALLER, ORIGINAL_DST].map(str::to_owned).to_vec(),
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    }
}

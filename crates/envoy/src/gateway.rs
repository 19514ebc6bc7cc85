//! Gateways: Envoys that forward what lazy Envoys do not know, in the name of the caller.
//!
//! ```text
//!   lazy Envoy ── mutual TLS, the original destination in a header ──▶ gateway ── the caller's id in a header ──▶ destination
//! ```
//!
//! A gateway is an Envoy whose account has that role, or the node of a workload without an Envoy whose account has it. It serves lazy callers only, judges their requests by the policies of
//! the destination, and asserts who they are. A destination believes that of gateways alone, and of lazy callers alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy, TransportSocketMatch,
};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, OutlierDetection};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heddle_model::{Mesh, Proxy, ServiceAccountName, StockDestination, TrustDomain, Workload};

use crate::cluster::{CONNECT_S, http_options, socket_match, unlimited_breakers};
use crate::names::{Flavour, GATEWAY};
use crate::values::{ads, number, seconds};
use crate::{endpoints, tls};

/// The port on which a gateway's Envoy serves other Envoys: connections to it are redirected like any other.
pub(crate) const PORT: u16 = 15_443;
/// A gateway that could not be connected to is left alone for so long.
const EJECTED_S: u32 = 5;

/// Where the gateways of a mesh are, and the account that each has.
pub fn gateways(mesh: &Mesh) -> BTreeMap<SocketAddr, ServiceAccountName> {
    Roles::of(mesh).addresses
}

/// The accounts with a part in forwarding. Compared by content: the listeners of many Envoys are made of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) trust_domain: TrustDomain,
    /// Those of gateways.
    pub(crate) gateways: BTreeSet<ServiceAccountName>,
    /// Those of lazy workloads, whose requests gateways forward.
    pub(crate) lazy: BTreeSet<ServiceAccountName>,
    /// Where gateways are, and the account that each has.
    pub(crate) addresses: BTreeMap<SocketAddr, ServiceAccountName>,
}

impl Roles {
    /// The roles in a mesh.
    pub(crate) fn of(mesh: &Mesh) -> Self {
        let mut roles = Roles {
            trust_domain: mesh.trust_domain.clone(),
            gateways: mesh.forwarding.gateways.iter().cloned().collect(),
            lazy: mesh.forwarding.lazy.iter().cloned().collect(),
            ..Roles::default()
        };
        if roles.gateways.is_empty() {
            return roles;
        }
        for workload in mesh.workloads.iter() {
            let address = match roles.is_gateway(workload) {
                true => Some(SocketAddr::new(workload.address, PORT)),
                // The node of a workload without an Envoy is the gateway.
                false if mesh.forwarding.is_at(workload) => {
                    let node = workload.node.as_ref().and_then(|node| mesh.node(node));
                    node.map(|node| node.address)
                }
                false => None,
            };
            // One that cannot be asked for by TLS is none: it would be connected to without.
            let name = StockDestination::gateway(&roles.trust_domain, &workload.service_account);
            if let Some(address) = address.filter(|_| name.is_some()) {
                let account = workload.service_account.clone();
                roles.addresses.entry(address).or_insert(account);
            }
        }
        roles
    }

    /// Whether the workload's Envoy is a gateway.
    pub(crate) fn is_gateway(&self, workload: &Workload) -> bool {
        workload.proxy.is_envoy() && self.gateways.contains(&workload.service_account)
    }

    /// Whether the workload's Envoy knows only what it uses: it is annotated so, a gateway can be reached, and the mesh says which
    /// addresses it has, so that other ones are not sent to gateways.
    pub(crate) fn is_lazy(&self, workload: &Workload, mesh: &Mesh) -> bool {
        workload.proxy == Proxy::Envoy { lazy: true }
            && !self.addresses.is_empty()
            && !self.gateways.contains(&workload.service_account)
            && !mesh.address_ranges.is_empty()
    }

    /// The SPIFFE id of an account.
    pub(crate) fn id(&self, account: &ServiceAccountName) -> String {
        tls::identity(&self.trust_domain, account)
    }

    /// The cluster of all gateways; `None` if there is no such role.
    pub(crate) fn cluster(&self) -> Option<Cluster> {
        let socket = |account: &ServiceAccountName| {
            let name = StockDestination::gateway(&self.trust_domain, account)?;
            let socket = tls::to_servers(name, [self.id(account)], Flavour::Requests);
            Some(socket_match(Some(account), socket))
        };
        let matches: Vec<TransportSocketMatch> = self.gateways.iter().filter_map(socket).collect();
        Some(Cluster {
            name: GATEWAY.to_owned(),
            connect_timeout: seconds(CONNECT_S),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            eds_cluster_config: Some(EdsClusterConfig {
                eds_config: Some(ads()),
                ..EdsClusterConfig::default()
            }),
            lb_policy: LbPolicy::LeastRequest.into(),
            // Only a gateway that cannot be reached: what destinations answer is not its fault.
            outlier_detection: Some(OutlierDetection {
                split_external_local_origin_errors: true,
                consecutive_local_origin_failure: number(1),
                enforcing_consecutive_local_origin_failure: number(100),
                enforcing_local_origin_success_rate: number(0),
                enforcing_consecutive_5xx: number(0),
                enforcing_consecutive_gateway_failure: number(0),
                enforcing_success_rate: number(0),
                base_ejection_time: seconds(EJECTED_S),
                max_ejection_percent: number(50),
                ..OutlierDetection::default()
            }),
            circuit_breakers: Some(unlimited_breakers()),
            // Of an endpoint that no match is about yet: never without TLS.
            transport_socket: matches.first()?.transport_socket.clone(),
            transport_socket_matches: matches,
            typed_extension_protocol_options: http_options(),
            ..Cluster::default()
        })
    }

    /// Where gateways are.
    pub(crate) fn assignment(&self) -> ClusterLoadAssignment {
        endpoints::at(GATEWAY, &self.addresses)
    }
}

//! The endpoints of a Service's port, as Envoys reach them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as EnvoyEndpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use heddle_model::{Endpoint, Mesh, ServiceAccountName, ServicePort};

use crate::values::{address, number};

/// Where the transport socket of an endpoint is looked up.
const SOCKET_MATCH: &str = "envoy.transport_socket_match";
/// The key there: the endpoint's account.
pub(crate) const ACCOUNT: &str = "account";

/// The place to which Envoys connect for some of a port's endpoints, and the account that they expect there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'m> {
    address: SocketAddr,
    /// `None`: it is outside the mesh, and proves no identity.
    account: Option<&'m ServiceAccountName>,
}

/// The endpoints of a port. One of a node stands for all of its node, which chooses among them: an Envoy takes each address
/// once. Of several accounts behind one node's address, the one with the most weight counts.
pub(crate) fn assignment(mesh: &Mesh, port: &ServicePort, cluster: &str) -> ClusterLoadAssignment {
    let mut weights: BTreeMap<SocketAddr, BTreeMap<Option<&ServiceAccountName>, u64>> =
        BTreeMap::new();
    for endpoint in &port.endpoints {
        let Some(place) = place(mesh, endpoint) else {
            continue;
        };
        let accounts = weights.entry(place.address).or_default();
        *accounts.entry(place.account).or_default() += u64::from(endpoint.weight);
    }
    let has_several = accounts(port).len() > 1;
    let heaviest = weights.into_iter().filter_map(|(at, accounts)| {
        let heaviest = accounts.into_iter().max_by_key(|(_, weight)| *weight);
        let (account, weight) = heaviest?;
        Some((at, account.filter(|_| has_several), weight))
    });
    let heaviest: Vec<_> = heaviest.collect();
    let all = heaviest.iter().map(|(_, _, weight)| weight).sum();
    let endpoints = heaviest
        .into_iter()
        .map(|(at, account, weight)| endpoint(at, share(weight, all), account));
    of(cluster, endpoints.collect())
}

/// A weight, made smaller with all others if their sum would be more than an Envoy takes.
fn share(weight: u64, all: u64) -> u32 {
    // Half of the most, so that those that become 1 have room.
    const MOST: u64 = 1 << 31;
    let weight = match all > MOST {
        true => u64::try_from(u128::from(weight) * u128::from(MOST) / u128::from(all)).unwrap_or(1),
        false => weight,
    };
    u32::try_from(weight.max(1)).unwrap_or(u32::MAX)
}

/// Endpoints of equal weight, each with the account that is expected there.
pub(crate) fn at(
    cluster: &str,
    addresses: &BTreeMap<SocketAddr, ServiceAccountName>,
) -> ClusterLoadAssignment {
    let endpoints = addresses.iter();
    let endpoints = endpoints.map(|(at, account)| endpoint(*at, 1, Some(account)));
    of(cluster, endpoints.collect())
}

fn of(cluster: &str, lb_endpoints: Vec<LbEndpoint>) -> ClusterLoadAssignment {
    ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: match lb_endpoints.is_empty() {
            // Nothing at all: an Envoy keeps what it had when an assignment is removed, and not when it is empty.
            true => Vec::new(),
            false => vec![LocalityLbEndpoints {
                lb_endpoints,
                ..LocalityLbEndpoints::default()
            }],
        },
        ..ClusterLoadAssignment::default()
    }
}

/// The accounts of a port's endpoints, each once and sorted; `None` for those outside the mesh.
pub(crate) fn accounts(port: &ServicePort) -> Vec<Option<&ServiceAccountName>> {
    let accounts = port.endpoints.iter();
    let mut accounts: Vec<_> = accounts.map(|one| one.account.as_ref()).collect();
    accounts.sort_unstable();
    accounts.dedup();
    accounts
}

/// Where an endpoint is reached: at its own address if it has an Envoy or is outside the mesh, or else through its node's proxy.
/// `None`: its node's address is not known.
fn place<'m>(mesh: &Mesh, endpoint: &'m Endpoint) -> Option<Place<'m>> {
    let account = endpoint.account.as_ref();
    let address = match (&endpoint.node, account) {
        _ if endpoint.has_envoy => endpoint.address,
        (_, None) => endpoint.address,
        (Some(node), Some(_)) => mesh.node(node)?.address,
        (None, Some(_)) => return None,
    };
    Some(Place { address, account })
}

fn endpoint(at: SocketAddr, weight: u32, account: Option<&ServiceAccountName>) -> LbEndpoint {
    let endpoint = EnvoyEndpoint {
        address: Some(address(at)),
        ..EnvoyEndpoint::default()
    };
    LbEndpoint {
        load_balancing_weight: number(weight),
        metadata: account.map(|account| Metadata {
            filter_metadata: HashMap::from([(SOCKET_MATCH.to_owned(), of_account(account))]),
            ..Metadata::default()
        }),
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..LbEndpoint::default()
    }
}

/// What matches the endpoints of an account.
pub(crate) fn of_account(account: &ServiceAccountName) -> Struct {
    let value = Value {
        kind: Some(Kind::StringValue(account.to_string())),
    };
    Struct {
        fields: HashMap::from([(ACCOUNT.to_owned(), value)]),
    }
}

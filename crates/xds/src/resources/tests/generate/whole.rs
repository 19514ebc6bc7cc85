//! Random meshes, as a control plane has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use heddle_model::{
    Backend, BackendTarget, Endpoint, Mesh, Node, NodeName, Outcome, Policy, PolicyName,
    RouteAction, RouteRule, Service, ServiceAccountName, ServiceName, ServicePort, Shared,
    TrustDomain, Workload, WorkloadName,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::{address_ranges, forwarding, policy, routes, workload};

/// The nodes of all meshes, and one that is of none.
pub(in crate::resources::tests) const NODES: [&str; 4] = ["n0", "n1", "n2", "unknown"];

fn node_name() -> BoxedStrategy<NodeName> {
    select(NODES[..3].to_vec())
        .prop_map(|name| NodeName::parse(name).unwrap())
        .boxed()
}

/// Few addresses, so that workloads share some.
fn address() -> BoxedStrategy<IpAddr> {
    let addresses = [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
    ];
    select(addresses.to_vec())
        .prop_map(|text| text.parse().unwrap())
        .boxed()
}

/// A mesh that holds its invariants.
pub(in crate::resources::tests) fn mesh() -> BoxedStrategy<Mesh> {
    let domain = select(vec!["cluster.local", "mesh.test"]);
    let nodes = btree_map(node_name(), 1..u16::MAX, 0..3).prop_map(|nodes| {
        let node = |(name, port)| Node {
            name,
            address: ([192, 0, 2, 1], port).into(),
        };
        nodes.into_iter().map(node).collect::<Vec<_>>()
    });
    let policies = vec(policy(), 4);
    let settings = (domain, address_ranges(), forwarding());
    let all = (settings, nodes, workloads(), policies, vec(written(), 0..4));
    all.prop_map(
        |((domain, address_ranges, forwarding), nodes, workloads, policies, services)| {
            let services = named(services, &workloads);
            Mesh {
                generation: 0,
                trust_domain: TrustDomain::parse(domain).unwrap(),
                nodes,
                policies: needed(&workloads, &policies),
                workloads: workloads.into_iter().map(Shared::from).collect(),
                services: services.into_iter().map(Shared::from).collect(),
                forwarding,
                judged: Shared::default(),
                unreadable: Vec::new(),
                elsewhere: Vec::new(),
                further: Vec::new(),
                address_ranges,
                named: None,
            }
        },
    )
    .boxed()
}

/// Node, address, further addresses, namespace and policies of a workload.
type Place = (
    Option<NodeName>,
    IpAddr,
    BTreeSet<IpAddr>,
    &'static str,
    Vec<&'static str>,
);

/// Workloads of which each, or none, or any may name a node.
fn workloads() -> BoxedStrategy<Vec<Workload>> {
    let place = (
        option::of(node_name()),
        address(),
        btree_set(address(), 0..3),
        select(vec!["a", "b"]),
        subsequence(vec!["p0", "p1", "p2"], 0..3),
    );
    (any::<bool>(), vec((workload(), place), 0..7))
        .prop_map(|(is_placed, list)| {
            let workload = |(number, (mut workload, place)): (usize, (Workload, Place))| {
                let (node, address, mut more, namespace, policies) = place;
                more.remove(&address);
                workload.name = WorkloadName::new(namespace, &format!("w{number}")).unwrap();
                workload.service_account = ServiceAccountName::new(namespace, "default").unwrap();
                workload.node = node.filter(|_| is_placed);
                workload.address = address;
                workload.more_addresses = more.into_iter().collect();
                let policy = |name: &&str| -> PolicyName {
                    PolicyName::parse(&format!("AuthorizationPolicy {namespace}/{name}")).unwrap()
                };
                workload.policies = policies.iter().map(policy).collect();
                workload
            };
            let mut list: Vec<Workload> = list.into_iter().enumerate().map(workload).collect();
            list.sort_by(|one, next| one.name.cmp(&next.name));
            list
        })
        .boxed()
}

/// Every policy that a workload names.
fn needed(workloads: &[Workload], like: &[Policy]) -> Vec<Arc<Policy>> {
    let names = workloads.iter().flat_map(|workload| &workload.policies);
    let names: BTreeSet<&PolicyName> = names.collect();
    let policy = |(name, like): (&&PolicyName, &Policy)| {
        let mut policy = like.clone();
        policy.name = (*name).clone();
        Arc::new(policy)
    };
    names.iter().zip(like.iter().cycle()).map(policy).collect()
}

/// A Service, and what decides its endpoints.
type Written = (Service, Vec<(Index, u16, Kind)>);

#[derive(Debug, Clone)]
enum Kind {
    OfWorkload,
    Outside,
    Account(Option<NodeName>),
}

fn written() -> BoxedStrategy<Written> {
    let kind = prop_oneof![
        3 => Just(Kind::OfWorkload),
        1 => Just(Kind::Outside),
        1 => option::of(node_name()).prop_map(Kind::Account),
    ];
    (
        routes::service(),
        vec((any::<Index>(), 1..4_u16, kind), 0..6),
    )
        .boxed()
}

/// The Services with their names, endpoints and resolved backends.
fn named(written: Vec<Written>, workloads: &[Workload]) -> Vec<Service> {
    let mut services = Vec::new();
    for (number, (mut service, endpoints)) in written.into_iter().enumerate() {
        service.name = ServiceName::parse(&format!("a/s{number}")).unwrap();
        service.addresses = match service.headless || number % 2 == 1 {
            true => Vec::new(),
            false => vec![[10, 96, 0, u8::try_from(number).unwrap()].into()],
        };
        for port in &mut service.ports {
            let endpoints = endpoints.iter();
            let endpoints = endpoints.filter_map(|written| endpoint(written, workloads));
            let by_address: BTreeMap<SocketAddr, Endpoint> = endpoints
                .map(|endpoint| (endpoint.address, endpoint))
                .collect();
            port.endpoints = by_address.into_values().collect();
        }
        services.push(service);
    }
    let targets: Vec<(ServiceName, u16)> = services
        .iter()
        .flat_map(|service| {
            let ports = service.ports.iter();
            ports.map(|port| (service.name.clone(), port.port))
        })
        .collect();
    for service in &mut services {
        let mut actions = BTreeMap::new();
        for rule in service.ports.iter_mut().flat_map(rules_mut) {
            // Rules that shared an action share the new one. The old one lives on, so that its address stays its own.
            let (_, action) = actions.entry(Arc::as_ptr(&rule.action)).or_insert_with(|| {
                (
                    Arc::clone(&rule.action),
                    Arc::new(aimed(&rule.action, &targets)),
                )
            });
            rule.action = Arc::clone(action);
        }
    }
    services
}

fn rules_mut(port: &mut ServicePort) -> impl Iterator<Item = &mut RouteRule> {
    let lists = port.routes.iter_mut();
    lists.chain(port.consumer_routes.values_mut()).flatten()
}

fn endpoint(
    (index, target, kind): &(Index, u16, Kind),
    workloads: &[Workload],
) -> Option<Endpoint> {
    let mut endpoint = Endpoint {
        address: ([10, 1, 0, 1], *target).into(),
        weight: 1,
        max_requests: None,
        workload: None,
        remote_workload: None,
        account: None,
        node: None,
        has_envoy: false,
    };
    match kind {
        Kind::Outside => {}
        Kind::Account(node) => {
            endpoint.address = ([10, 1, 0, 2], *target).into();
            endpoint.account = Some(ServiceAccountName::parse("c/d").unwrap());
            endpoint.node = node.clone();
        }
        Kind::OfWorkload => {
            if workloads.is_empty() {
                return None;
            }
            let workload = index.get(workloads);
            endpoint.address = (workload.address, *target).into();
            endpoint.workload = Some(workload.name.clone());
            endpoint.account = Some(workload.service_account.clone());
            endpoint.node = workload.node.clone();
            endpoint.has_envoy = workload.proxy.is_envoy();
        }
    }
    Some(endpoint)
}

/// The action with backends that exist.
fn aimed(action: &RouteAction, targets: &[(ServiceName, u16)]) -> RouteAction {
    let backend = |(number, backend): (usize, &Backend)| {
        let mut backend = backend.clone();
        if let BackendTarget::Service { service, port } = &mut backend.target
            && let Some(target) = targets.get((number + usize::from(*port)) % targets.len().max(1))
        {
            (*service, *port) = target.clone();
        }
        backend
    };
    let outcome = match &action.outcome {
        Outcome::Forward(backends) => {
            Outcome::Forward(backends.iter().enumerate().map(backend).collect())
        }
        redirect => redirect.clone(),
    };
    RouteAction {
        filters: action.filters.clone(),
        outcome,
        request_timeout_ms: action.request_timeout_ms,
        backend_timeout_ms: action.backend_timeout_ms,
    }
}

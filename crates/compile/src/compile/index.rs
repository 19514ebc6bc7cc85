//! The index of all objects, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use heddle_model::{
    GROUP, MAX_GATEWAY_ACCOUNTS, Name, Namespace, PolicyKind, PolicyName, ServiceAccountName,
    ServiceName, WorkloadName,
};

use super::{Scope, balancing, did_you_mean, proxy, qos};
use crate::findings::Findings;
use crate::manifest::closed::{ClosedPolicy, ClosedRoute};
use crate::manifest::node::FieldPath;
use crate::manifest::{
    Body, Kind, MODE_LABEL, Object, SERVICE_LABEL, core, gateway, local, policy, smi,
};

/// The annotation of a ServiceAccount that allows registered providers to have it.
pub(crate) const REGISTRY_ANNOTATION: &str = "heddle.dev/registry";

/// The only value of that annotation.
pub(crate) const REGISTRY_ALLOW: &str = "allow";

/// The kind in which a policy was written.
#[derive(Clone, Copy)]
pub(super) enum WrittenPolicy<'o> {
    Authorization(&'o policy::AuthorizationPolicy),
    TrafficTarget(&'o smi::TrafficTarget),
    Closed(&'o ClosedPolicy),
}

/// Objects by kind and name.
pub(super) struct Index<'o> {
    pub(super) services: BTreeMap<ServiceName, (&'o Object, &'o core::Service)>,
    pub(super) workloads: BTreeMap<WorkloadName, (&'o Object, &'o local::LocalWorkload)>,
    pub(super) namespaces: BTreeMap<Namespace, &'o Object>,
    pub(super) accounts: BTreeSet<ServiceAccountName>,
    /// Those of them whose workloads are gateways.
    pub(super) gateways: BTreeMap<ServiceAccountName, &'o Object>,
    pub(super) slices: Vec<(&'o Object, &'o core::EndpointSlice)>,
    pub(super) routes: Vec<(&'o Object, &'o gateway::HttpRoute)>,
    pub(super) closed_routes: Vec<(&'o Object, &'o ClosedRoute)>,
    pub(super) grants: Vec<(&'o Object, &'o gateway::ReferenceGrant)>,
    pub(super) policies: BTreeMap<PolicyName, (&'o Object, WrittenPolicy<'o>)>,
    pub(super) http_groups: BTreeMap<(Namespace, Name), (&'o Object, &'o smi::HttpRouteGroup)>,
    pub(super) tcp_routes: BTreeMap<(Namespace, Name), (&'o Object, &'o smi::TcpRoute)>,
    /// Where workloads are that are refused: nothing else is at these addresses and sockets.
    closed_addresses: BTreeSet<IpAddr>,
    closed_sockets: BTreeSet<SocketAddr>,
}

impl<'o> Index<'o> {
    /// Sorts objects by kind; a second object of the same name is an error that names the senior one.
    pub(super) fn build(objects: &[&'o Object], findings: &mut Findings) -> Self {
        let mut index = Self {
            services: BTreeMap::new(),
            workloads: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            accounts: BTreeSet::new(),
            gateways: BTreeMap::new(),
            slices: Vec::new(),
            routes: Vec::new(),
            closed_routes: Vec::new(),
            grants: Vec::new(),
            policies: BTreeMap::new(),
            http_groups: BTreeMap::new(),
            tcp_routes: BTreeMap::new(),
            closed_addresses: BTreeSet::new(),
            closed_sockets: BTreeSet::new(),
        };
        let mut seen: BTreeMap<(Kind, &Namespace, &Name), &Object> = BTreeMap::new();
        let mut objects = objects.to_vec();
        objects.sort_by_cached_key(|object| object.written.seniority());
        for object in objects {
            let mut scope = Scope::of(object, findings);
            check_annotations(object, &mut scope);
            check_registry(object, &mut scope);
            check_labels(object, &mut scope);
            let is_gateway = proxy::is_gateway(object, &mut scope);
            match seen.entry((object.kind, &object.namespace, &object.name)) {
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(object);
                }
                std::collections::btree_map::Entry::Occupied(first) => {
                    let first = &first.get().written;
                    scope.error(
                        &FieldPath::of("metadata.name"),
                        format!("this object is written twice: first in {}", first.begins()),
                        "remove one of the two, or rename it",
                    );
                    continue;
                }
            }
            index.insert(object);
            if is_gateway && object.kind == Kind::ServiceAccount {
                index.insert_gateway(object, &mut scope);
            }
        }
        index
    }

    /// Whether a workload is a registered provider: its claims about its address do not apply to other workloads.
    pub(super) fn is_registered(&self, name: &WorkloadName) -> bool {
        let written = self.workloads.get(name);
        written.is_some_and(|(object, _)| object.written.origin.is_registry())
    }

    /// Whether a workload that is refused is at this socket.
    pub(super) fn is_closed(&self, socket: SocketAddr) -> bool {
        self.closed_addresses.contains(&socket.ip()) || self.closed_sockets.contains(&socket)
    }

    fn insert_gateway(&mut self, account: &'o Object, scope: &mut Scope<'_>) {
        if self.gateways.len() == MAX_GATEWAY_ACCOUNTS {
            return scope.error(
                &FieldPath::of("metadata.annotations").field(proxy::GATEWAY),
                format!("a mesh has at most {MAX_GATEWAY_ACCOUNTS} accounts of gateways"),
                "remove it: one account may have any number of gateways",
            );
        }
        let name = ServiceAccountName {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        };
        self.gateways.insert(name, account);
    }

    fn insert(&mut self, object: &'o Object) {
        let (namespace, name) = (object.namespace.clone(), object.name.clone());
        match &object.body {
            Body::Service(body) => {
                self.services
                    .insert(ServiceName { namespace, name }, (object, body));
            }
            Body::LocalWorkload(body) => {
                self.workloads
                    .insert(WorkloadName { namespace, name }, (object, body));
            }
            Body::ServiceAccount => {
                self.accounts.insert(ServiceAccountName { namespace, name });
            }
            Body::Namespace => {
                // The name was checked to be a label when the object was read.
                if let Ok(name) = Namespace::parse(name.as_str()) {
                    self.namespaces.insert(name, object);
                }
            }
            Body::EndpointSlice(body) => self.slices.push((object, body)),
            Body::HttpRoute(body) => self.routes.push((object, body)),
            Body::ClosedRoute(body) => self.closed_routes.push((object, body)),
            Body::ClosedWorkload(body) => {
                self.closed_addresses.extend(&body.addresses);
                self.closed_sockets.extend(&body.sockets);
            }
            Body::ReferenceGrant(body) => self.grants.push((object, body)),
            Body::AuthorizationPolicy(body) => {
                let name = PolicyName {
                    namespace,
                    name,
                    kind: PolicyKind::AuthorizationPolicy,
                };
                self.policies
                    .insert(name, (object, WrittenPolicy::Authorization(body)));
            }
            Body::ClosedPolicy(body) => {
                let name = PolicyName {
                    namespace,
                    name,
                    kind: body.kind,
                };
                self.policies
                    .insert(name, (object, WrittenPolicy::Closed(body)));
            }
            Body::TrafficTarget(body) => {
                let name = PolicyName {
                    namespace,
                    name,
                    kind: PolicyKind::TrafficTarget,
                };
                self.policies
                    .insert(name, (object, WrittenPolicy::TrafficTarget(body)));
            }
            Body::HttpRouteGroup(body) => {
                self.http_groups.insert((namespace, name), (object, body));
            }
            Body::TcpRoute(body) => {
                self.tcp_routes.insert((namespace, name), (object, body));
            }
        }
    }
}

/// Checks annotations of Heddle's own group: a misspelt one would silently do nothing.
fn check_annotations(object: &Object, scope: &mut Scope<'_>) {
    let known: &[&str] = match object.kind {
        Kind::Service => &balancing::OF_SERVICES,
        Kind::LocalWorkload => &[
            balancing::MAX_REQUESTS,
            qos::CLASS,
            qos::CGROUP,
            qos::LATENCY,
            proxy::PROXY,
            proxy::USES,
            proxy::LAZY,
        ],
        Kind::EndpointSlice => &[balancing::MAX_REQUESTS],
        Kind::ServiceAccount => &[REGISTRY_ANNOTATION, proxy::GATEWAY],
        _ => &[],
    };
    let keys = object.metadata.annotations.keys();
    check_own(object, "annotation", keys, known, scope);
}

/// Checks the registry annotation of a ServiceAccount.
fn check_registry(object: &Object, scope: &mut Scope<'_>) {
    let Some(text) = object.metadata.annotations.get(REGISTRY_ANNOTATION) else {
        return;
    };
    if object.kind == Kind::ServiceAccount && text != REGISTRY_ALLOW {
        scope.error(
            &FieldPath::of("metadata.annotations").field(REGISTRY_ANNOTATION),
            format!("{text:?} is not known"),
            did_you_mean(text, [REGISTRY_ALLOW], "write allow, or remove it"),
        );
    }
}

/// Checks labels of Heddle's own group likewise.
fn check_labels(object: &Object, scope: &mut Scope<'_>) {
    let known: &[&str] = match object.kind {
        Kind::Namespace => &[MODE_LABEL],
        Kind::LocalWorkload => &[MODE_LABEL, SERVICE_LABEL, qos::CLASS],
        _ => &[],
    };
    check_own(object, "label", object.metadata.labels.keys(), known, scope);
}

fn check_own<'k>(
    object: &Object,
    what: &str,
    keys: impl Iterator<Item = &'k String>,
    known: &[&str],
    scope: &mut Scope<'_>,
) {
    for key in keys {
        let ours = key.split_once('/').is_some_and(|(group, _)| group == GROUP);
        if ours && !known.contains(&key.as_str()) {
            let remedy = did_you_mean(key, known.iter().copied(), "remove it");
            scope.error(
                &FieldPath::of("metadata")
                    .field(&format!("{what}s"))
                    .field(key),
                format!("a {} has no such {what}", object.kind.as_str()),
                remedy,
            );
        }
    }
}

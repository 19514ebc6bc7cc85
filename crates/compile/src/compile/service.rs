//! Compiles Services into ports with endpoints.

use std::collections::{BTreeMap, BTreeSet};

use heddle_model::{AppProtocol, Service, ServiceName, ServicePort, Workload, WorkloadName};

use super::context::ServiceContext;
use super::index::Index;
use super::selector::{Owners, Selectable};
use super::{Scope, balancing, did_you_mean, endpoint, protocol, slice};
use crate::Options;
use crate::check;
use crate::findings::Findings;
use crate::manifest::core::{self, ServicePortSpec, ServiceSpec};
use crate::manifest::node::FieldPath;
use crate::manifest::{Kind, Object};

/// Limit of endpoints from selectors, for all ports of all Services.
pub(crate) const MAX_ENDPOINTS: usize = 1_000_000;
/// Limit of ports of one Service.
const MAX_PORTS: usize = 256;

/// Compiles every Service, sorted by name, without routes.
pub(super) fn compile(
    index: &Index<'_>,
    workloads: &[Workload],
    options: &Options,
    findings: &mut Findings,
) -> Vec<Service> {
    let slices = slice::by_service(index, options, findings);
    let rooms = rooms(index);
    let selectable = Selectable::new(workloads);
    let owners = Owners::new(workloads, |name| index.is_registered(name));
    let mut endpoints_left = MAX_ENDPOINTS;
    index
        .services
        .iter()
        .map(|(name, (object, body))| {
            let mut scope = Scope::of(object, findings);
            let slices = slices.get(name).map_or(&[][..], Vec::as_slice);
            let left = &mut endpoints_left;
            let context = ServiceContext {
                index,
                selectable: &selectable,
                owners: &owners,
                rooms: &rooms,
                slices,
            };
            service(name, object, body, &context, left, &mut scope)
        })
        .collect()
}

/// The limits of concurrent requests of LocalWorkloads that set one. Faults are reported when the workload itself is
/// compiled.
fn rooms(index: &Index<'_>) -> BTreeMap<WorkloadName, u32> {
    let told = &mut Findings::default();
    let each = index.workloads.iter().filter_map(|(name, (object, _))| {
        let room = balancing::max_requests(object, &mut Scope::of(object, told))?;
        Some((name.clone(), room))
    });
    each.collect()
}

fn service(
    name: &ServiceName,
    object: &Object,
    body: &core::Service,
    context: &ServiceContext<'_>,
    endpoints_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Service {
    let ServiceContext {
        selectable, slices, ..
    } = context;
    let spec = &body.spec;
    check_spec(spec, scope);
    let mut selected = selectable.select(&name.namespace, &spec.selector);
    let unanswered = selected.is_empty()
        && slices.is_empty()
        && !is_external(spec)
        && !scope.is_any_refused(Kind::EndpointSlice, &name.namespace);
    let selects = !spec.selector.is_empty();
    let endpoints = selected.len().saturating_mul(spec.ports.len());
    if endpoints > *endpoints_left {
        let reason = format!("with this Service there are more than {MAX_ENDPOINTS} endpoints");
        scope.error(
            &FieldPath::of("spec.selector"),
            reason,
            "select fewer workloads",
        );
        selected.clear();
    } else {
        *endpoints_left -= endpoints;
    }
    let mut ports = ports(spec, &selected, context, scope);
    if let Some(room) = balancing::max_requests(object, scope) {
        let endpoints = ports.iter_mut().flat_map(|port| &mut port.endpoints);
        // An endpoint's own limit takes precedence over its Service's.
        endpoints.for_each(|one| one.max_requests = one.max_requests.or(Some(room)));
    }
    let balancer = balancing::balancer(object, scope);
    let balancing = balancing::balancing(object, &ports, scope);
    if unanswered && selects && !scope.is_any_refused(Kind::LocalWorkload, &name.namespace) {
        let remedy = match selectable.elsewhere(&name.namespace, &spec.selector) {
            Some(other) => format!(
                "{} of namespace {} has them: a Service selects in its own",
                other.name, other.namespace
            ),
            None => "compare them with metadata.labels of the workloads".to_owned(),
        };
        scope.warn(
            &FieldPath::of("spec.selector"),
            format!(
                "no LocalWorkload of this namespace has these labels: {}",
                without_endpoints(&ports)
            ),
            remedy,
        );
    } else if unanswered && !selects {
        scope.warn(
            &FieldPath::of("spec"),
            format!(
                "there is neither a selector nor an EndpointSlice: {}",
                without_endpoints(&ports)
            ),
            "add a selector, or an EndpointSlice labelled kubernetes.io/service-name",
        );
    }
    Service {
        name: name.clone(),
        headless: false,
        addresses: Vec::new(),
        balancer,
        balancing,
        ports,
    }
}

/// The effect on callers of a port without endpoints. A byte connection gets no answer.
fn without_endpoints(ports: &[ServicePort]) -> &'static str {
    let carries_bytes =
        |port: &ServicePort| matches!(port.protocol, AppProtocol::Tcp | AppProtocol::Tls);
    match !ports.is_empty() && ports.iter().all(carries_bytes) {
        true => "connections are closed",
        false => "requests are answered 503",
    }
}

fn is_external(spec: &ServiceSpec) -> bool {
    spec.kind.as_deref() == Some("ExternalName")
}

fn check_spec(spec: &ServiceSpec, scope: &mut Scope<'_>) {
    let at = FieldPath::of("spec");
    match spec.kind.as_deref() {
        None | Some("ClusterIP" | "NodePort" | "LoadBalancer") => {
            if spec
                .external_name
                .as_deref()
                .is_some_and(|name| !name.is_empty())
            {
                let remedy = "remove it";
                scope.error(
                    &at.field("externalName"),
                    "only an ExternalName Service has this",
                    remedy,
                );
            }
        }
        Some("ExternalName") => scope.error(
            &at.field("type"),
            "an ExternalName Service is only a DNS alias: there is nothing to balance",
            "use type ClusterIP and an EndpointSlice with the addresses",
        ),
        Some(other) => {
            let known = ["ClusterIP", "NodePort", "LoadBalancer"];
            let remedy = did_you_mean(other, known, "use ClusterIP");
            scope.error(
                &at.field("type"),
                format!("{other:?} is no type of Service"),
                remedy,
            );
        }
    }
    let affinity = spec.session_affinity.as_deref();
    let why = "session affinity is not supported: each request is balanced separately";
    let at_affinity = at.field("sessionAffinity");
    check_word(affinity, ["None", "ClientIP"], why, &at_affinity, scope);
    let policy = spec.internal_traffic_policy.as_deref();
    let why = "endpoints of other nodes are called, too";
    let at_policy = at.field("internalTrafficPolicy");
    check_word(policy, ["Cluster", "Local"], why, &at_policy, scope);
}

/// Checks a field with two known values: the first describes what is done anyway, the second is not supported.
fn check_word(
    written: Option<&str>,
    [done, not_done]: [&str; 2],
    why_not: &str,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) {
    match written {
        None | Some("") => {}
        Some(word) if word == done => {}
        Some(word) if word == not_done => scope.warn(at, why_not, "remove it"),
        Some(other) => {
            let remedy = did_you_mean(other, [done, not_done], &format!("use {done}"));
            scope.error(at, format!("{other:?} is not known"), remedy);
        }
    }
}

fn ports(
    spec: &ServiceSpec,
    selected: &[&Workload],
    context: &ServiceContext<'_>,
    scope: &mut Scope<'_>,
) -> Vec<ServicePort> {
    let at = FieldPath::of("spec.ports");
    let written = scope.at_most(&at, &spec.ports, MAX_PORTS);
    let count = written.len();
    if count == 0 && !is_external(spec) {
        scope.error(&at, "there is no port", "add ports with at least one port");
    }
    let mut names = BTreeSet::new();
    let mut ports: BTreeMap<u16, ServicePort> = BTreeMap::new();
    for (position, written) in written.iter().enumerate() {
        let at = at.index(position);
        if !protocol::is_tcp(written.protocol.as_deref(), &at, scope) {
            continue;
        }
        check_name(written, count, &mut names, &at, scope);
        let Some(port) = scope.check(&at.field("port"), check::port(written.port)) else {
            continue;
        };
        if ports.contains_key(&port) {
            scope.error(
                &at.field("port"),
                format!("port {port} is written twice"),
                "remove one",
            );
            continue;
        }
        ports.insert(
            port,
            ServicePort {
                name: written.port_name().map(str::to_owned),
                port,
                protocol: protocol::of(written, &at, scope),
                endpoints: endpoint::of_port(written, port, selected, context, &at, scope),
                routes: None,
                consumer_routes: BTreeMap::new(),
            },
        );
    }
    ports.into_values().collect()
}

fn check_name<'s>(
    written: &'s ServicePortSpec,
    count: usize,
    names: &mut BTreeSet<&'s str>,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) {
    match written.port_name() {
        Some(name) if !heddle_model::is_dns_label(name) => {
            let remedy = "use a-z, 0-9 and '-', at most 63 characters";
            scope.error(
                &at.field("name"),
                format!("{name:?} is no port name"),
                remedy,
            );
        }
        Some(name) if !names.insert(name) => {
            scope.error(
                &at.field("name"),
                format!("{name:?} is written twice"),
                "rename one",
            );
        }
        None if count > 1 => {
            scope.error(
                &at.field("name"),
                "with several ports each needs a name",
                "add a name",
            );
        }
        _ => {}
    }
}

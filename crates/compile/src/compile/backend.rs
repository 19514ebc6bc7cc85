//! Backends: the targets of a rule's requests.
//!
//! An unresolved reference is not an error: the Gateway API requires that its share of the requests is answered 500 and
//! the rest served. It is reported as a warning.

use heddle_model::{Backend, BackendTarget, InvalidName, ServiceName};

use super::context::RouteContext;
use super::workload::MAX_WEIGHT;
use super::{Scope, filter, find_service, name_namespace, protocol};
use crate::check;
use crate::manifest::Kind;
use crate::manifest::gateway::HttpBackendRef;
use crate::manifest::kind::GATEWAY_GROUP;
use crate::manifest::node::FieldPath;

/// Limit of backends of one rule (Gateway API).
const MAX_BACKENDS: usize = 16;

/// Compiles the backends of the rule at `rule`.
pub(super) fn compile(
    context: &RouteContext<'_>,
    written: &[HttpBackendRef],
    rule: &FieldPath,
    scope: &mut Scope<'_>,
) -> Vec<Backend> {
    let at = rule.field("backendRefs");
    let backends = scope.at_most(&at, written, MAX_BACKENDS).iter().enumerate();
    backends
        .map(|(position, backend)| one(context, backend, &at.index(position), scope))
        .collect()
}

fn one(
    context: &RouteContext<'_>,
    written: &HttpBackendRef,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Backend {
    let weight = written.weight.unwrap_or(1);
    let weight = match u32::try_from(weight) {
        Ok(valid) if weight <= MAX_WEIGHT => valid,
        _ => {
            let remedy = format!("use 0 to {MAX_WEIGHT}");
            scope.error(
                &at.field("weight"),
                format!("{weight} is no weight"),
                remedy,
            );
            1
        }
    };
    let filters = filter::of_backend(&written.filters, &at.field("filters"), scope);
    let Some(port) = port(written, &at.field("port"), scope) else {
        let target = BackendTarget::Unresolved {
            reason: "there is no port".to_owned(),
        };
        return Backend {
            weight,
            target,
            filters,
        };
    };
    let target = match resolve(context, written, port) {
        Ok((service, port)) => BackendTarget::Service { service, port },
        Err(unresolved) if is_there_but_wrong(context, written, scope) => {
            BackendTarget::Unresolved {
                reason: unresolved.reason,
            }
        }
        Err(unresolved) => {
            let share = match weight {
                0 => "it has no share of the requests",
                _ => "its share of the requests is answered 500",
            };
            let reason = format!("{}: {share}", unresolved.reason);
            scope.warn(&at.field(unresolved.field), reason, unresolved.remedy);
            BackendTarget::Unresolved {
                reason: unresolved.reason,
            }
        }
    };
    Backend {
        weight,
        target,
        filters,
    }
}

/// The port, without which the API server refuses a reference to a Service.
fn port(written: &HttpBackendRef, at: &FieldPath, scope: &mut Scope<'_>) -> Option<u16> {
    let Some(port) = written.port else {
        if is_service(written) {
            scope.error(at, "this field is required for a Service", "add port");
        }
        return None;
    };
    scope.check(at, check::port(port))
}

fn is_service(written: &HttpBackendRef) -> bool {
    written.group.as_deref().unwrap_or("").is_empty()
        && written.kind.as_deref().unwrap_or("Service") == "Service"
}

fn target_name(
    context: &RouteContext<'_>,
    written: &HttpBackendRef,
) -> Result<ServiceName, InvalidName> {
    let own = context.object.namespace.as_str();
    let namespace = written.namespace.as_deref().filter(|n| !n.is_empty());
    ServiceName::new(namespace.unwrap_or(own), &written.name)
}

/// Whether the reference is unresolved only because its Service, or an object that would permit it, has an error.
fn is_there_but_wrong(
    context: &RouteContext<'_>,
    written: &HttpBackendRef,
    scope: &Scope<'_>,
) -> bool {
    if !is_service(written) {
        return false;
    }
    target_name(context, written).is_ok_and(|target| {
        let namespace = &target.namespace;
        scope.is_refused(Kind::Service, namespace, &target.name)
            // A consumer route is recognised by its parent Service.
            || (!is_permitted(context, &target)
                && [Kind::ReferenceGrant, Kind::Service]
                    .iter()
                    .any(|kind| scope.is_any_refused(*kind, namespace)))
    })
}

struct Unresolved {
    field: &'static str,
    reason: String,
    remedy: String,
}

fn unresolved(
    field: &'static str,
    reason: impl Into<String>,
    remedy: impl Into<String>,
) -> Unresolved {
    Unresolved {
        field,
        reason: reason.into(),
        remedy: remedy.into(),
    }
}

fn resolve(
    context: &RouteContext<'_>,
    written: &HttpBackendRef,
    port: u16,
) -> Result<(ServiceName, u16), Unresolved> {
    if !is_service(written) {
        let group = written.group.as_deref().unwrap_or("");
        let kind = written.kind.as_deref().unwrap_or("Service");
        let field = if kind == "Service" { "group" } else { "kind" };
        let reason = format!("a backend of kind {kind} in group {group:?} is not known");
        return Err(unresolved(
            field,
            reason,
            "only Services are: leave group and kind out",
        ));
    }
    let own = context.object.namespace.as_str();
    let name =
        target_name(context, written).map_err(|error| unresolved("name", error.to_string(), ""))?;
    let namespace = name.namespace.as_str();
    if !is_permitted(context, &name) {
        return Err(unresolved(
            "namespace",
            format!("namespace {namespace} does not let this route refer to {name}"),
            format!("add a ReferenceGrant to {namespace} from HTTPRoutes of {own} to Services"),
        ));
    }
    let Some(service) = context.service(&name) else {
        let known = context.services.iter().map(|service| &service.name);
        let how = name_namespace(written.namespace.as_deref());
        let remedy = find_service(&name, known, how);
        return Err(unresolved(
            "name",
            format!("there is no Service {name}"),
            remedy,
        ));
    };
    let Some(found) = service.port(port) else {
        let ports: Vec<String> = service
            .ports
            .iter()
            .map(|known| known.port.to_string())
            .collect();
        let reason = format!("Service {name} has no port {port}");
        return Err(unresolved(
            "port",
            reason,
            format!("it has {}", ports.join(", ")),
        ));
    };
    if !protocol::takes_routes(found.protocol) {
        let reason = format!(
            "port {port} of {name} speaks {}, not HTTP/1",
            found.protocol.as_str()
        );
        return Err(unresolved(
            "port",
            reason,
            "route to a port that speaks HTTP/1",
        ));
    }
    Ok((name, port))
}

/// Whether the route may refer to a Service of another namespace.
///
/// That takes a ReferenceGrant there, with one exception: a consumer route may send requests to
/// the namespace of the Service it is attached to, where its callers were going anyway (GEP-1294,
/// and the conformance test `MeshConsumerRoute`).
fn is_permitted(context: &RouteContext<'_>, target: &ServiceName) -> bool {
    let own = &context.object.namespace;
    if target.namespace == *own || context.parent_namespaces.contains(&target.namespace) {
        return true;
    }
    context
        .index
        .grants
        .iter()
        .filter(|(grant, _)| grant.namespace == target.namespace)
        .any(|(_, grant)| {
            let from = grant.spec.from.iter().any(|from| {
                from.group == GATEWAY_GROUP
                    && from.kind == "HTTPRoute"
                    && from.namespace == own.as_str()
            });
            let to = grant.spec.to.iter().any(|to| {
                let name = to.name.as_deref().filter(|name| !name.is_empty());
                to.group.is_empty()
                    && to.kind == "Service"
                    && name.is_none_or(|name| name == target.name.as_str())
            });
            from && to
        })
}

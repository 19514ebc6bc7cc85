//! Parents: the Services to which a route is attached.
//!
//! A route whose parent is a Service of its own namespace is a producer route and applies to every caller; a route
//! whose parent is in another namespace is a consumer route and applies to callers of the route's namespace (Gateway
//! API, `ParentReference`).

use heddle_model::{Namespace, Service, ServiceName, ServicePort};

use super::context::RouteContext;
use super::{Scope, did_you_mean, find_service, name_namespace, protocol};
use crate::check;
use crate::manifest::Kind;
use crate::manifest::gateway::ParentReference;
use crate::manifest::kind::GATEWAY_GROUP;
use crate::manifest::node::FieldPath;

/// Limit of parents of one route (Gateway API).
const MAX_PARENTS: usize = 32;

/// A port of a Service to which a route is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) service: ServiceName,
    pub(super) port: u16,
    /// The namespace whose callers a consumer route is limited to; `None` for a producer route.
    pub(super) consumer: Option<Namespace>,
}

/// The ports to which a route is attached, each once.
pub(super) fn attachments(
    context: &RouteContext<'_>,
    written: &[ParentReference],
    scope: &mut Scope<'_>,
) -> Vec<Attachment> {
    let at = FieldPath::of("spec.parentRefs");
    let written = scope.at_most(&at, written, MAX_PARENTS);
    check_distinct(context, written, &at, scope);
    let mut attachments: Vec<Attachment> = Vec::new();
    for (position, parent) in written.iter().enumerate() {
        let at = at.index(position);
        if is_gateway(parent) {
            continue;
        }
        for attachment in attach(context, parent, &at, scope) {
            if !attachments.contains(&attachment) {
                attachments.push(attachment);
            }
        }
    }
    if written.is_empty() {
        let reason = "this route has no parent: it has no effect";
        scope.warn(
            &at,
            reason,
            "add a parent {group: \"\", kind: Service, name: …}",
        );
    }
    attachments
}

/// Whether a route is for Gateways only: then its rules are not checked.
pub(super) fn is_for_gateways(written: &[ParentReference]) -> bool {
    !written.is_empty() && written.iter().all(is_gateway)
}

fn group(parent: &ParentReference) -> &str {
    parent.group.as_deref().unwrap_or(GATEWAY_GROUP)
}

fn kind(parent: &ParentReference) -> &str {
    parent.kind.as_deref().unwrap_or("Gateway")
}

fn is_gateway(parent: &ParentReference) -> bool {
    (group(parent), kind(parent)) == (GATEWAY_GROUP, "Gateway")
}

fn parent_name(context: &RouteContext<'_>, parent: &ParentReference) -> Option<ServiceName> {
    let own = context.object.namespace.as_str();
    let namespace = parent
        .namespace
        .as_deref()
        .filter(|n| !n.is_empty())
        .unwrap_or(own);
    ServiceName::new(namespace, &parent.name).ok()
}

/// If several references name one object, each must name a part of it, and not the same part.
fn check_distinct(
    context: &RouteContext<'_>,
    written: &[ParentReference],
    at: &FieldPath,
    scope: &mut Scope<'_>,
) {
    let part = |parent: &ParentReference| (parent.section_name.clone(), parent.port);
    for (position, parent) in written.iter().enumerate() {
        let earlier = written.iter().take(position).find(|other| {
            (group(other), kind(other)) == (group(parent), kind(parent))
                && parent_name(context, other) == parent_name(context, parent)
                && (part(other) == part(parent)
                    || other.section_name.is_some() != parent.section_name.is_some()
                    || other.port.is_some() != parent.port.is_some())
        });
        if earlier.is_some() {
            scope.error(
                &at.index(position),
                "this parent is already referred to",
                "let each reference to it name another port or sectionName, or keep one",
            );
        }
    }
}

fn attach(
    context: &RouteContext<'_>,
    parent: &ParentReference,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Vec<Attachment> {
    if (group(parent), kind(parent)) != ("", "Service") {
        refuse_kind(parent, at, scope);
        return Vec::new();
    }
    let Some(name) = parent_name(context, parent) else {
        scope.error(&at.field("name"), "this is no name of a Service", "");
        return Vec::new();
    };
    let is_refused = scope.is_refused(Kind::Service, &name.namespace, &name.name);
    let Some(service) = context.service(&name) else {
        if is_refused {
            return Vec::new();
        }
        let known = context.services.iter().map(|service| &service.name);
        let how = name_namespace(parent.namespace.as_deref());
        let remedy = find_service(&name, known, how);
        scope.error(
            &at.field("name"),
            format!("there is no Service {name}"),
            remedy,
        );
        return Vec::new();
    };
    if is_refused {
        // The intended port may be the field with the error.
        return Vec::new();
    }
    let own = &context.object.namespace;
    let consumer = (name.namespace != *own).then(|| own.clone());
    ports(service, parent, at, scope)
        .into_iter()
        .map(|port| Attachment {
            service: name.clone(),
            port,
            consumer: consumer.clone(),
        })
        .collect()
}

fn refuse_kind(parent: &ParentReference, at: &FieldPath, scope: &mut Scope<'_>) {
    let (field, remedy) = match (parent.group.as_deref(), parent.kind.as_deref()) {
        (None, Some("Service")) => ("group", "add group: \"\", which is the group of Services"),
        (Some("v1" | "core"), Some("Service")) => ("group", "write group: \"\""),
        (Some(""), None) => ("kind", "add kind: Service"),
        _ => ("kind", "use {group: \"\", kind: Service, name: …}"),
    };
    let reason = format!(
        "a route cannot be attached to a {} of {:?}",
        kind(parent),
        group(parent)
    );
    scope.error(&at.field(field), reason, remedy);
}

/// The ports that a reference selects, without those that cannot have routes.
fn ports(
    service: &Service,
    parent: &ParentReference,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Vec<u16> {
    let mut selected: Vec<&ServicePort> = service.ports.iter().collect();
    if let Some(section) = parent
        .section_name
        .as_deref()
        .filter(|text| !text.is_empty())
    {
        selected.retain(|port| port.name.as_deref() == Some(section));
        if selected.is_empty() {
            let names = service.ports.iter().filter_map(|port| port.name.as_deref());
            let remedy = did_you_mean(section, names, "name a port of the Service");
            let reason = format!("Service {} has no port named {section:?}", service.name);
            scope.error(&at.field("sectionName"), reason, remedy);
            return Vec::new();
        }
    }
    if let Some(number) = parent.port {
        let path = at.field("port");
        let Some(number) = scope.check(&path, check::port(number)) else {
            return Vec::new();
        };
        selected.retain(|port| port.port == number);
        if selected.is_empty() {
            let ports: Vec<String> = service.ports.iter().map(|p| p.port.to_string()).collect();
            let reason = match parent.section_name {
                Some(_) => format!("port {number} of {} does not have that name", service.name),
                None => format!("Service {} has no port {number}", service.name),
            };
            scope.error(&path, reason, format!("it has {}", ports.join(", ")));
            return Vec::new();
        }
    }
    let routable = |port: &&ServicePort| protocol::takes_routes(port.protocol);
    if !selected.is_empty() && !selected.iter().any(routable) {
        let spoken: Vec<&str> = selected.iter().map(|port| port.protocol.as_str()).collect();
        let reason = format!(
            "Service {} has no HTTP/1 port here, but {}",
            service.name,
            spoken.join(", ")
        );
        scope.error(
            at,
            reason,
            "declare the port's appProtocol as http, or attach elsewhere",
        );
    }
    selected
        .into_iter()
        .filter(routable)
        .map(|port| port.port)
        .collect()
}

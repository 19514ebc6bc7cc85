//! The proxy that carries a workload's traffic, set by annotation.

use std::collections::BTreeMap;

use heddle_model::{Namespace, Proxy, ServiceName};

use super::{Scope, did_you_mean};
use crate::findings::Findings;
use crate::manifest::Object;
use crate::manifest::node::FieldPath;
use crate::{Addresses, Options, Placement};

#[cfg(test)]
mod tests;

/// Which proxy carries a workload's traffic.
pub(super) const PROXY: &str = "heddle.dev/proxy";
/// Whether an Envoy knows only what its workload uses. Without Heddle's prefix, as meshes of Envoys spell it.
pub(super) const LAZY: &str = "lazy-xds";

/// The Services that a lazy Envoy knows from the start: NAME or NAMESPACE/NAME, separated by commas.
pub(super) const USES: &str = "heddle.dev/uses";
/// The most Services that one workload declares.
const MAX_USES: usize = 256;

/// Of a ServiceAccount: its workloads' Envoys are gateways for those that are lazy.
pub(super) const GATEWAY: &str = "heddle.dev/gateway";
/// The only value of that annotation.
const DEFAULT: &str = "default";

/// Whether the workloads of a ServiceAccount are gateways.
pub(super) fn is_gateway(object: &Object, scope: &mut Scope<'_>) -> bool {
    let Some(text) = object.metadata.annotations.get(GATEWAY) else {
        return false;
    };
    let is_known = text == DEFAULT;
    if !is_known {
        let path = FieldPath::of("metadata.annotations").field(GATEWAY);
        let remedy = did_you_mean(text, [DEFAULT], "write default, or remove it");
        scope.error(&path, format!("{text:?} is no gateway"), remedy);
    }
    is_known
}

/// Whether the Envoys of a namespace are lazy, where the Namespace says it.
pub(super) fn lazy_by_namespace(
    namespaces: &BTreeMap<Namespace, &Object>,
    findings: &mut Findings,
) -> BTreeMap<Namespace, bool> {
    let lazy = namespaces.iter().filter_map(|(name, object)| {
        let lazy = lazy(object, &mut Scope::of(object, findings))?;
        Some((name.clone(), lazy))
    });
    lazy.collect()
}

/// The proxy of a workload; an Envoy is `lazy` if the workload does not say otherwise.
pub(super) fn of(
    object: &Object,
    is_lazy: bool,
    options: &Options,
    scope: &mut Scope<'_>,
) -> Proxy {
    let own = lazy(object, scope);
    let proxy = written(object, own.unwrap_or(is_lazy), scope);
    let at = |annotation: &str| FieldPath::of("metadata.annotations").field(annotation);
    let is_for_up =
        options.placement == Placement::OneNode && options.addresses != Addresses::Given;
    if proxy.is_envoy() && is_for_up {
        scope.warn(
            &at(PROXY),
            "heddle up serves no Envoys: nothing carries the traffic of this workload",
            "remove it, or serve the folder by heddle control (heddle validate --for control)",
        );
    }
    for annotation in [LAZY, USES] {
        let has_it = object.metadata.annotations.contains_key(annotation);
        if has_it && !proxy.is_envoy() {
            let reason =
                format!("{annotation} is for workloads with an Envoy, and this one has none");
            let remedy = "remove it, or annotate the workload with heddle.dev/proxy: envoy";
            scope.warn(&at(annotation), reason, remedy);
        }
    }
    proxy
}

fn written(object: &Object, is_lazy: bool, scope: &mut Scope<'_>) -> Proxy {
    let Some(text) = object.metadata.annotations.get(PROXY) else {
        return Proxy::Node;
    };
    let path = FieldPath::of("metadata.annotations").field(PROXY);
    if object.written.origin.is_registry() {
        let reason = "a registration cannot choose its proxy";
        scope.error(&path, reason, "remove it");
        return Proxy::Node;
    }
    match text.as_str() {
        "node" => Proxy::Node,
        "envoy" => Proxy::Envoy { lazy: is_lazy },
        other => {
            scope.error(&path, format!("{other:?} is no proxy"), "use node or envoy");
            Proxy::Node
        }
    }
}

/// The Services that a workload declares to use, sorted, each once. They need not exist yet.
pub(super) fn uses(object: &Object, scope: &mut Scope<'_>) -> Vec<ServiceName> {
    let Some(text) = object.metadata.annotations.get(USES) else {
        return Vec::new();
    };
    let path = FieldPath::of("metadata.annotations").field(USES);
    let written = text.split(',').map(str::trim);
    let written = written.filter(|name| !name.is_empty());
    let count = written.clone().count();
    if count > MAX_USES {
        let reason = format!("{count} Services are too many");
        let remedy = format!("declare at most {MAX_USES}; others are learned");
        scope.error(&path, reason, &remedy);
        return Vec::new();
    }
    let mut names = Vec::new();
    for name in written {
        let whole = match name.contains('/') {
            true => name.to_owned(),
            false => format!("{}/{name}", object.namespace),
        };
        match ServiceName::parse(&whole) {
            Ok(name) => names.push(name),
            Err(error) => scope.error(
                &path,
                format!("{name:?} is no Service: {error}"),
                "write NAME or NAMESPACE/NAME, separated by commas",
            ),
        }
    }
    names.sort();
    names.dedup();
    names
}

/// What an object says of the laziness of Envoys; `None` if it says nothing.
fn lazy(object: &Object, scope: &mut Scope<'_>) -> Option<bool> {
    match object.metadata.annotations.get(LAZY)?.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            let path = FieldPath::of("metadata.annotations").field(LAZY);
            let remedy = "write \"true\" or \"false\", with the quotes";
            scope.error(
                &path,
                format!("{other:?} is neither true nor false"),
                remedy,
            );
            None
        }
    }
}

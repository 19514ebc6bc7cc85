//! One Service, with its endpoints, and its routes as far as they lead somewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_model::{
    BackendTarget, Endpoint, Outcome, RouteAction, RouteRule, Service, ServiceName, ServicePort,
};

use super::parts::Parts;
use super::place::Place;

/// Replacements of the actions of a Service, by the address of the original, which lives in its resource. `None`: the
/// original stays.
type Resolved = BTreeMap<*const RouteAction, Option<Arc<RouteAction>>>;

impl Parts {
    /// The Service of that name; `None` without its resource.
    pub(super) fn service(&self, place: &Place<'_>, name: &ServiceName) -> Option<Service> {
        let mut joined = self.services.get(name)?.clone();
        joined
            .addresses
            .retain(|address| self.is_first(address, name));
        let mut resolved = Resolved::default();
        for port in &mut joined.ports {
            let endpoints = self.endpoints_of(name, port.port);
            port.endpoints = endpoints
                .filter_map(|endpoint| self.endpoint(place, endpoint))
                .collect();
            self.resolve(port, &mut resolved);
        }
        Some(joined)
    }

    fn endpoint(&self, place: &Place<'_>, endpoint: &Endpoint) -> Option<Endpoint> {
        let account = endpoint.account.as_ref();
        if account.is_some_and(|account| !place.can_be_account(account)) {
            return None;
        }
        let mut joined = endpoint.clone();
        let workload = joined.workload.take().or(joined.remote_workload.take());
        if !place.is_here(endpoint.node.as_ref()) {
            joined.remote_workload = workload;
            return Some(joined);
        }
        if let Some(name) = &workload {
            let known = self.workloads.get(name);
            known.filter(|known| endpoint.is_of(known))?;
        }
        joined.workload = workload;
        Some(joined)
    }

    /// Replaces references to Services that are missing.
    fn resolve(&self, port: &mut ServicePort, resolved: &mut Resolved) {
        let lists = port.routes.iter_mut();
        let lists = lists.chain(port.consumer_routes.values_mut());
        for rule in lists.flatten() {
            self.resolve_rule(rule, resolved);
        }
    }

    fn resolve_rule(&self, rule: &mut RouteRule, resolved: &mut Resolved) {
        let key = Arc::as_ptr(&rule.action);
        let replacement = resolved
            .entry(key)
            .or_insert_with(|| self.resolved(&rule.action));
        if let Some(action) = replacement {
            rule.action = Arc::clone(action);
        }
    }

    /// The action with its missing backends unresolved; `None` if none is missing.
    fn resolved(&self, action: &RouteAction) -> Option<Arc<RouteAction>> {
        let Outcome::Forward(backends) = &action.outcome else {
            return None;
        };
        let is_missing = |target: &BackendTarget| match target {
            BackendTarget::Unresolved { .. } => false,
            BackendTarget::Service { service, port } => {
                let known = self.services.get(service);
                known.and_then(|known| known.port(*port)).is_none()
            }
        };
        if !backends.iter().any(|backend| is_missing(&backend.target)) {
            return None;
        }
        let mut backends = backends.clone();
        for backend in &mut backends {
            if let BackendTarget::Service { service, port } = &backend.target
                && is_missing(&backend.target)
            {
                let reason = format!("the node does not know port {port} of the Service {service}");
                backend.target = BackendTarget::Unresolved { reason };
            }
        }
        Some(Arc::new(RouteAction {
            filters: action.filters.clone(),
            outcome: Outcome::Forward(backends),
            request_timeout_ms: action.request_timeout_ms,
            backend_timeout_ms: action.backend_timeout_ms,
        }))
    }
}

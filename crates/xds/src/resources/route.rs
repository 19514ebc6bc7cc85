//! Rules of routes and their actions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_model::{
    Backend, BackendTarget, Outcome, PathMatch, RouteAction, RouteMatch, RouteRule, ServiceName,
};

use super::fields::{pair_messages, pairs, port, some_text};
use super::filters::{filters, filters_message};
use crate::proto;
use crate::trust::Invalid;

/// The actions of a Service while it is encoded, in the order of their first use.
#[derive(Default)]
pub(super) struct Actions<'s> {
    /// Indices in `list`, by the addresses of the actions.
    indices: BTreeMap<*const RouteAction, u32>,
    list: Vec<&'s RouteAction>,
}

impl<'s> Actions<'s> {
    pub(super) fn rules(&mut self, rules: &'s [RouteRule]) -> proto::RouteRules {
        let rule = |rule: &'s RouteRule| proto::RouteRule {
            route: rule.name.to_string(),
            rule: rule.rule,
            matcher: Some((&rule.matcher).into()),
            action: self.index(&rule.action),
        };
        proto::RouteRules {
            rules: rules.iter().map(rule).collect(),
        }
    }

    fn index(&mut self, action: &'s Arc<RouteAction>) -> u32 {
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let index = *self.indices.entry(Arc::as_ptr(action)).or_insert(next);
        if index == next {
            self.list.push(action);
        }
        index
    }

    pub(super) fn messages(&self) -> Vec<proto::RouteAction> {
        self.list.iter().copied().map(Into::into).collect()
    }
}

/// The actions of a Service while it is decoded.
pub(super) struct Rules {
    actions: Vec<Arc<RouteAction>>,
    /// Names of routes: the rules of one route share its name.
    names: BTreeSet<Arc<str>>,
}

impl Rules {
    pub(super) fn new(actions: Vec<proto::RouteAction>) -> Result<Self, Invalid> {
        let actions = actions.into_iter().map(RouteAction::try_from);
        Ok(Self {
            actions: actions
                .map(|action| action.map(Arc::new))
                .collect::<Result<_, _>>()?,
            names: BTreeSet::new(),
        })
    }

    pub(super) fn take(&mut self, message: proto::RouteRules) -> Result<Vec<RouteRule>, Invalid> {
        let rules = message.rules.into_iter();
        rules.map(|rule| self.rule(rule)).collect()
    }

    fn rule(&mut self, message: proto::RouteRule) -> Result<RouteRule, Invalid> {
        let action = usize::try_from(message.action).ok();
        let action = action.and_then(|action| self.actions.get(action));
        let action = Arc::clone(action.ok_or(Invalid("service.ports.routes.action"))?);
        let matcher = message
            .matcher
            .ok_or(Invalid("service.ports.routes.matcher"))?;
        Ok(RouteRule {
            name: self.name(&message.route),
            rule: message.rule,
            matcher: matcher.try_into()?,
            action,
        })
    }

    fn name(&mut self, route: &str) -> Arc<str> {
        if let Some(known) = self.names.get(route) {
            return Arc::clone(known);
        }
        let name: Arc<str> = route.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

impl From<&RouteMatch> for proto::RouteMatch {
    fn from(matcher: &RouteMatch) -> Self {
        Self {
            path: Some((&matcher.path).into()),
            method: matcher.method.clone().unwrap_or_default(),
            headers: pair_messages(&matcher.headers),
            query: pair_messages(&matcher.query),
        }
    }
}

impl TryFrom<proto::RouteMatch> for RouteMatch {
    type Error = Invalid;

    fn try_from(message: proto::RouteMatch) -> Result<Self, Invalid> {
        const PATH: &str = "service.ports.routes.matcher.path";
        Ok(Self {
            path: path_match(message.path.ok_or(Invalid(PATH))?, PATH)?,
            method: some_text(message.method),
            headers: pairs(message.headers),
            query: pairs(message.query),
        })
    }
}

impl From<&PathMatch> for proto::PathMatch {
    fn from(path: &PathMatch) -> Self {
        use proto::path_match::Path;
        Self {
            path: Some(match path {
                PathMatch::Exact(path) => Path::Exact(path.clone()),
                PathMatch::Prefix(prefix) => Path::Prefix(prefix.clone()),
            }),
        }
    }
}

pub(super) fn path_match(
    message: proto::PathMatch,
    field: &'static str,
) -> Result<PathMatch, Invalid> {
    use proto::path_match::Path;
    match message.path.ok_or(Invalid(field))? {
        Path::Exact(path) => Ok(PathMatch::Exact(path)),
        Path::Prefix(prefix) => Ok(PathMatch::Prefix(prefix)),
    }
}

impl From<&RouteAction> for proto::RouteAction {
    fn from(action: &RouteAction) -> Self {
        use proto::route_action::Outcome as Sent;
        Self {
            filters: filters_message(&action.filters),
            outcome: Some(match &action.outcome {
                Outcome::Forward(backends) => Sent::Forward(proto::Forward {
                    backends: backends.iter().map(Into::into).collect(),
                }),
                Outcome::Redirect(redirect) => Sent::Redirect(redirect.into()),
            }),
            request_timeout_ms: action.request_timeout_ms,
            backend_timeout_ms: action.backend_timeout_ms,
        }
    }
}

impl TryFrom<proto::RouteAction> for RouteAction {
    type Error = Invalid;

    fn try_from(message: proto::RouteAction) -> Result<Self, Invalid> {
        use proto::route_action::Outcome as Sent;
        Ok(Self {
            filters: filters(message.filters)?,
            outcome: match message.outcome.ok_or(Invalid("service.actions.outcome"))? {
                Sent::Forward(forward) => {
                    let backends = forward.backends.into_iter().map(Backend::try_from);
                    Outcome::Forward(backends.collect::<Result<_, _>>()?)
                }
                Sent::Redirect(redirect) => Outcome::Redirect(redirect.try_into()?),
            },
            request_timeout_ms: message.request_timeout_ms,
            backend_timeout_ms: message.backend_timeout_ms,
        })
    }
}

impl From<&Backend> for proto::Backend {
    fn from(backend: &Backend) -> Self {
        use proto::backend::Target;
        Self {
            weight: backend.weight,
            target: Some(match &backend.target {
                BackendTarget::Service { service, port } => {
                    Target::Service(proto::BackendService {
                        service: service.to_string(),
                        port: (*port).into(),
                    })
                }
                BackendTarget::Unresolved { reason } => Target::Unresolved(reason.clone()),
            }),
            filters: filters_message(&backend.filters),
        }
    }
}

impl TryFrom<proto::Backend> for Backend {
    type Error = Invalid;

    fn try_from(message: proto::Backend) -> Result<Self, Invalid> {
        use proto::backend::Target;
        const BACKENDS: &str = "service.actions.forward.backends";
        Ok(Self {
            weight: message.weight,
            target: match message.target.ok_or(Invalid(BACKENDS))? {
                Target::Service(of) => BackendTarget::Service {
                    service: ServiceName::parse(&of.service).map_err(|_| Invalid(BACKENDS))?,
                    port: port(of.port, BACKENDS)?,
                },
                Target::Unresolved(reason) => BackendTarget::Unresolved { reason },
            },
            filters: filters(message.filters)?,
        })
    }
}

//! The decisions of the configuration about a request: the result of the [`steps`](super::steps).

use std::rc::Rc;

use crate::clock::Millis;
use crate::route::{Backend, Cluster, PortIndex, Rule, RuleIndex};
use crate::worker::Bound;

/// The results of the steps. The steps fill the fields in order, so that for a request that one of them refuses, the
/// results of the earlier steps are known.
pub(super) struct Decision {
    /// The configuration by which the steps decide.
    pub(super) bound: Rc<Bound>,
    /// The Service's port that was called.
    pub(super) port: Option<PortIndex>,
    /// The rule of that port.
    pub(super) rule: Option<RuleIndex>,
    /// Index in the rule's backends. Small, since every connection has room for an exchange.
    pub(super) backend: u32,
    /// The port whose endpoints get the request.
    pub(super) target: Option<PortIndex>,
    /// Timeout of each attempt, in milliseconds.
    pub(super) attempt_ms: Option<Millis>,
    /// Timeout for the response's head after the request's last byte, in milliseconds.
    pub(super) response_head_ms: Option<Millis>,
}

impl Decision {
    /// A decision in which nothing is decided yet.
    pub(super) fn by(bound: Rc<Bound>) -> Self {
        Decision {
            bound,
            port: None,
            rule: None,
            backend: 0,
            target: None,
            attempt_ms: None,
            response_head_ms: None,
        }
    }

    /// The rule that matched.
    pub(super) fn rule(&self) -> Option<&Rule> {
        let port = self.bound.snapshot.port(self.port?);
        Some(port.rule(self.rule?))
    }

    /// The backend chosen by weight; none if requests go directly to the Service's endpoints.
    pub(super) fn backend(&self) -> Option<&Backend> {
        let rule = self.rule()?;
        rule.action.backends.get(self.backend as usize)
    }

    /// The cluster of endpoints that get the request.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        let target = self.target?;
        Some(&self.bound.snapshot.port(target).cluster)
    }

    /// Whether the cluster has more than one endpoint.
    pub(super) fn has_choice(&self) -> bool {
        self.cluster()
            .is_some_and(|cluster| cluster.endpoints.len() > 1)
    }
}

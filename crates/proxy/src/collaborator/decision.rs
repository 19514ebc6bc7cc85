//! What the configuration makes of a request: the result of the [`steps`](super::steps).

use std::rc::Rc;

use crate::clock::Millis;
use crate::route::{Backend, Cluster, PortIndex, Rule, RuleIndex};
use crate::worker::Bound;

/// What the steps have decided. They fill it in from the front, so that of a request that one of them refuses as
/// much is known as they had found out.
pub(super) struct Decision {
    /// The configuration that it follows.
    pub(super) bound: Rc<Bound>,
    /// The Service's port that was called.
    pub(super) port: Option<PortIndex>,
    pub(super) rule: Option<RuleIndex>,
    /// Which of the rule's backends; in few bytes, since every connection has room for an exchange.
    pub(super) backend: u32,
    /// The port whose endpoints are asked.
    pub(super) target: Option<PortIndex>,
    /// How long each attempt may take, in milliseconds.
    pub(super) attempt_ms: Option<Millis>,
    /// How long a response's head may take after the request's last byte, in milliseconds.
    pub(super) response_head_ms: Option<Millis>,
}

impl Decision {
    /// Nothing is decided yet.
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
        self.rule.map(|rule| self.bound.snapshot.rule(rule))
    }

    /// The backend chosen by weight; none when requests go straight to the Service's endpoints.
    pub(super) fn backend(&self) -> Option<&Backend> {
        let rule = self.rule()?;
        rule.action.backends.get(self.backend as usize)
    }

    /// The endpoints that are asked.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        let target = self.target?;
        Some(&self.bound.snapshot.port(target).cluster)
    }

    /// Whether there is more than one.
    pub(super) fn has_choice(&self) -> bool {
        self.cluster()
            .is_some_and(|cluster| cluster.endpoints.len() > 1)
    }
}

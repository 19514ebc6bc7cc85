//! The effect of the deny-list on an answer.
//!
//! The deny-list concerns certificates, which only connections between nodes present: within one node only policies
//! decide.

use std::collections::BTreeSet;

use heddle_model::{Endpoint, NodeName, SpiffeId, TrustDomain};

use super::{ExplainedEndpoint, Outcome};

/// The caller of a question, and the identities on the deny-list.
pub(super) struct DenyListCheck<'d> {
    pub(super) list: &'d BTreeSet<SpiffeId>,
    pub(super) trust_domain: &'d TrustDomain,
    pub(super) caller: Option<&'d SpiffeId>,
    /// The caller's node, if known.
    pub(super) caller_node: Option<&'d NodeName>,
}

impl DenyListCheck<'_> {
    /// The answer with the deny-list in force.
    pub(super) fn over(&self, answer: ExplainedEndpoint, endpoint: &Endpoint) -> ExplainedEndpoint {
        let Some((id, node)) = self.refused(endpoint) else {
            return answer;
        };
        let within = format!("within node {node} no certificate is asked for");
        if self.caller_node == Some(node) {
            let mut answer = answer;
            let advice = format!("{id} is on the deny-list: other nodes refuse it, but {within}");
            answer.advice.push(advice);
            return answer;
        }
        let mut advice = vec![format!(
            "where the control plane runs, heddle deny list says why, and heddle deny remove {id} ends it"
        )];
        if self.caller_node.is_none() {
            advice.push(format!(
                "{within}: a caller that is there is judged by the policies alone"
            ));
        }
        ExplainedEndpoint {
            outcome: Outcome::Refused,
            reason: format!("{id} is on the deny-list: no other node talks to it"),
            policy: None,
            rule: None,
            dry_run: None,
            advice,
            ..answer
        }
    }

    /// The identity whose certificate would be refused when this endpoint is called from another node, and the
    /// endpoint's node. A caller without an identity does not call through another node.
    fn refused<'e>(&self, endpoint: &'e Endpoint) -> Option<(SpiffeId, &'e NodeName)> {
        let (caller, node) = (self.caller?, endpoint.node.as_ref()?);
        let domain = || self.trust_domain.clone();
        let called = endpoint.account.clone();
        let called = called.map(|account| SpiffeId::workload(domain(), account));
        let its_node = SpiffeId::node(domain(), node.clone());
        let mut all = [Some(caller.clone()), called, Some(its_node)]
            .into_iter()
            .flatten();
        let id = all.find(|id| self.list.contains(id))?;
        Some((id, node))
    }
}

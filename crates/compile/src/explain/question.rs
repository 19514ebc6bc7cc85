//! The decision at one endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use heddle_model::{
    Access, AppProtocol, Connect, Decider, Endpoint, Guard, HttpAccess, Mesh, SpiffeId, Verdict,
};

use super::{Destination, ExplainedEndpoint, Outcome, Request, advice};

/// The question for every endpoint.
pub(super) struct Question<'q> {
    pub(super) mesh: &'q Mesh,
    pub(super) caller: Option<&'q SpiffeId>,
    pub(super) request: Option<&'q Request>,
    /// The destination as it was asked.
    pub(super) destination: &'q Destination,
    /// Endpoints whose ports forward bytes, on which requests are not visible.
    pub(super) opaque: &'q BTreeSet<SocketAddr>,
}

/// The endpoints to which every Service that has them only forwards bytes.
pub(super) fn opaque(mesh: &Mesh, endpoints: &[Endpoint]) -> BTreeSet<SocketAddr> {
    let mut found: BTreeMap<SocketAddr, Option<bool>> = endpoints
        .iter()
        .map(|endpoint| (endpoint.address, None))
        .collect();
    for port in mesh.services.iter().flat_map(|service| &service.ports) {
        let is_opaque = matches!(port.protocol, AppProtocol::Tcp | AppProtocol::Tls);
        for endpoint in &port.endpoints {
            if let Some(known) = found.get_mut(&endpoint.address) {
                *known = Some(known.unwrap_or(true) && is_opaque);
            }
        }
    }
    let opaque = found.into_iter().filter(|(_, known)| *known == Some(true));
    opaque.map(|(address, _)| address).collect()
}

/// A request with no known header.
fn no_field(_: &mut dyn FnMut(&[u8], &[u8])) {}

impl<'q> Question<'q> {
    fn access(&self, request: Option<&'q Request>, port: u16) -> Access<'q> {
        let http = request.map(|request| HttpAccess {
            method: request.method.as_bytes(),
            path: request.path.as_bytes(),
            query: request.query.as_bytes(),
            is_bare: true,
            fields: no_field as heddle_model::NoHeader,
        });
        Access {
            caller: self.caller,
            port,
            http,
        }
    }

    pub(super) fn answer(&self, endpoint: &Endpoint) -> ExplainedEndpoint {
        let port = endpoint.address.port();
        let mut answer = ExplainedEndpoint {
            address: endpoint.address,
            workload: endpoint.workload.clone(),
            node: endpoint.node.clone(),
            outcome: Outcome::Elsewhere,
            reason: String::new(),
            policy: None,
            rule: None,
            dry_run: None,
            advice: Vec::new(),
        };
        let known = endpoint.workload.as_ref();
        let Some(workload) = known.and_then(|name| self.mesh.workload(name)) else {
            answer.reason = match &endpoint.node {
                Some(node) => {
                    answer.advice = advice::elsewhere(self.caller, self.destination, self.request);
                    format!("node {node} decides: ask there, or the control plane")
                }
                None => "it is outside the mesh: no node checks who calls".to_owned(),
            };
            return answer;
        };
        let guard = Guard::new(self.mesh, workload);
        let is_opaque = self.opaque.contains(&endpoint.address);
        let request = self.request.filter(|_| !is_opaque);
        let access = self.access(request, port);
        let decision = guard.decide(&access);
        let (outcome, by) = match decision.allowed {
            true => (Outcome::Allowed, decision.by),
            false if request.is_some() || is_opaque && self.request.is_some() => {
                (Outcome::Refused, decision.by)
            }
            // A connection that is refused for bytes may be accepted for requests.
            false => match guard.may_connect(self.caller, port) {
                Connect::Open => (Outcome::Depends, decision.by),
                Connect::Bare => (Outcome::ConnectOnly, Decider::Probe),
                Connect::Refused(by) => (Outcome::Refused, by),
            },
        };
        answer.outcome = outcome;
        answer.reason = match outcome {
            Outcome::Depends => {
                "requests are decided one by one: ask with a method and a path".to_owned()
            }
            _ => by.to_string(),
        };
        if let Decider::Rule { policy, rule } = by
            && outcome != Outcome::Depends
        {
            (answer.policy, answer.rule) = (Some(policy.clone()), Some(rule));
        }
        answer.dry_run = decision
            .dry_run
            .filter(|_| matches!(outcome, Outcome::Allowed | Outcome::Refused))
            .filter(|_| decision.would_differ())
            .map(|Verdict { allowed, by }| {
                let word = if allowed { "allowed" } else { "refused" };
                format!("{word}: {by}")
            });
        answer.advice = match outcome {
            Outcome::Refused => advice::refused(workload, &guard, &access, by),
            Outcome::Allowed => advice::allowed(&guard, by),
            Outcome::Depends => advice::depends(&guard, &access),
            Outcome::ConnectOnly | Outcome::Elsewhere => Vec::new(),
        };
        answer
    }
}

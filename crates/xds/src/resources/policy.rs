//! Authorization policies.

use heddle_model::{
    HttpMatch, Namespace, Policy, PolicyAction, PolicyName, PolicyRule, SourceNamespace, Sources,
    TrustDomain,
};

use super::InvalidResource;
use super::fields::{pair_messages, pairs, port};
use super::route::path_match;
use crate::proto;
use crate::trust::{Invalid, spiffe_id};

impl From<&Policy> for proto::Policy {
    fn from(policy: &Policy) -> Self {
        let action = match policy.action {
            PolicyAction::Allow => proto::PolicyAction::Allow,
            PolicyAction::Deny => proto::PolicyAction::Deny,
        };
        Self {
            action: action.into(),
            dry_run: policy.dry_run,
            rules: policy.rules.iter().map(Into::into).collect(),
        }
    }
}

pub(super) fn policy(name: PolicyName, message: proto::Policy) -> Result<Policy, InvalidResource> {
    let rules = message.rules.into_iter().map(PolicyRule::try_from);
    let policy = Policy {
        name,
        action: match proto::PolicyAction::try_from(message.action) {
            Ok(proto::PolicyAction::Allow) => PolicyAction::Allow,
            Ok(proto::PolicyAction::Deny) => PolicyAction::Deny,
            Ok(proto::PolicyAction::Unspecified) | Err(_) => {
                return Err(Invalid("policy.action").into());
            }
        },
        dry_run: message.dry_run,
        rules: rules.collect::<Result<_, _>>()?,
    };
    policy
        .check_invariants()
        .map_err(InvalidResource::Invariant)?;
    Ok(policy)
}

impl From<&PolicyRule> for proto::PolicyRule {
    fn from(rule: &PolicyRule) -> Self {
        Self {
            number: rule.number,
            sources: rule.sources.as_ref().map(Into::into),
            ports: rule.ports.iter().copied().map(Into::into).collect(),
            http: rule.http.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::PolicyRule> for PolicyRule {
    type Error = Invalid;

    fn try_from(message: proto::PolicyRule) -> Result<Self, Invalid> {
        let ports = message.ports.into_iter();
        Ok(Self {
            number: message.number,
            sources: message.sources.map(TryInto::try_into).transpose()?,
            ports: ports
                .map(|number| port(number, "policy.rules.ports"))
                .collect::<Result<_, _>>()?,
            http: message.http.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Sources> for proto::Sources {
    fn from(sources: &Sources) -> Self {
        let namespace = |namespace: &SourceNamespace| proto::SourceNamespace {
            trust_domain: namespace.trust_domain.to_string(),
            namespace: namespace.namespace.to_string(),
        };
        Self {
            identities: sources.identities.iter().map(ToString::to_string).collect(),
            namespaces: sources.namespaces.iter().map(namespace).collect(),
        }
    }
}

impl TryFrom<proto::Sources> for Sources {
    type Error = Invalid;

    fn try_from(message: proto::Sources) -> Result<Self, Invalid> {
        let identity =
            |id: &String| spiffe_id(id).map_err(|_| Invalid("policy.rules.sources.identities"));
        let namespaces = message.namespaces.into_iter();
        Ok(Self {
            identities: message
                .identities
                .iter()
                .map(identity)
                .collect::<Result<_, _>>()?,
            namespaces: namespaces
                .map(TryInto::try_into)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<proto::SourceNamespace> for SourceNamespace {
    type Error = Invalid;

    fn try_from(message: proto::SourceNamespace) -> Result<Self, Invalid> {
        Ok(Self {
            trust_domain: TrustDomain::parse(&message.trust_domain)
                .map_err(|_| Invalid("policy.rules.sources.namespaces.trust_domain"))?,
            namespace: Namespace::parse(&message.namespace)
                .map_err(|_| Invalid("policy.rules.sources.namespaces.namespace"))?,
        })
    }
}

impl From<&HttpMatch> for proto::HttpMatch {
    fn from(http: &HttpMatch) -> Self {
        Self {
            methods: http.methods.clone(),
            paths: http.paths.iter().map(Into::into).collect(),
            path_starts: http.path_starts.clone(),
            headers: pair_messages(&http.headers),
        }
    }
}

impl TryFrom<proto::HttpMatch> for HttpMatch {
    type Error = Invalid;

    fn try_from(message: proto::HttpMatch) -> Result<Self, Invalid> {
        let paths = message.paths.into_iter();
        Ok(Self {
            methods: message.methods,
            paths: paths
                .map(|path| path_match(path, "policy.rules.http.paths"))
                .collect::<Result<_, _>>()?,
            path_starts: message.path_starts,
            headers: pairs(message.headers),
        })
    }
}

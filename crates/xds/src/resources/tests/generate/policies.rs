//! Random policies.

use heddle_model::{
    HttpMatch, Policy, PolicyAction, PolicyKind, PolicyName, PolicyRule, SourceNamespace, Sources,
    SpiffeId,
};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::{account, headers, name, namespace, path, path_match, port, token, trust_domain};

pub(super) fn policy_kind() -> BoxedStrategy<PolicyKind> {
    prop_oneof![
        Just(PolicyKind::AuthorizationPolicy),
        Just(PolicyKind::TrafficTarget)
    ]
    .boxed()
}

pub(in crate::resources::tests) fn policy() -> BoxedStrategy<Policy> {
    let name = (namespace(), name(), policy_kind());
    let rules = vec(policy_rule(), 0..4);
    (name, any::<bool>(), any::<bool>(), rules)
        .prop_map(|(name, denies, dry_run, rules)| {
            let (namespace, name, kind) = name;
            let may_deny = kind == PolicyKind::AuthorizationPolicy && !rules.is_empty();
            Policy {
                name: PolicyName {
                    namespace,
                    name,
                    kind,
                },
                action: match denies && may_deny {
                    true => PolicyAction::Deny,
                    false => PolicyAction::Allow,
                },
                dry_run,
                rules,
            }
        })
        .boxed()
}

fn policy_rule() -> BoxedStrategy<PolicyRule> {
    let id =
        (trust_domain(), account()).prop_map(|(domain, name)| SpiffeId::workload(domain, name));
    let from =
        (trust_domain(), namespace()).prop_map(|(trust_domain, namespace)| SourceNamespace {
            trust_domain,
            namespace,
        });
    let sources =
        (btree_set(id, 0..3), btree_set(from, 0..3)).prop_map(|(ids, namespaces)| Sources {
            identities: ids.into_iter().collect(),
            namespaces: namespaces.into_iter().collect(),
        });
    let http = (
        vec(token(), 0..3),
        vec(path_match(), 0..3),
        vec(path(), 0..3),
        headers(),
    );
    let http = http.prop_map(|(methods, paths, path_starts, headers)| HttpMatch {
        methods,
        paths,
        path_starts,
        headers,
    });
    (
        any::<u32>(),
        option::of(sources),
        btree_set(port(), 0..3),
        option::of(http),
    )
        .prop_map(|(number, sources, ports, http)| PolicyRule {
            number,
            sources,
            ports: ports.into_iter().collect(),
            http: http.filter(|http| *http != HttpMatch::default()),
        })
        .boxed()
}

//! Advice: changes that would give another outcome.

use heddle_model::{
    Access, Decider, Guard, Mode, Policy, PolicyAction, PolicyRule, SpiffeId, Unmet, Workload,
};

use super::{Destination, Request};

/// Limit of near-matching rules that are named.
const MAX_NEAR: usize = 3;

/// Changes with which a refused call would be allowed.
pub(super) fn refused(
    workload: &Workload,
    guard: &Guard,
    access: &Access<'_>,
    by: Decider<'_>,
) -> Vec<String> {
    match by {
        Decider::Anonymous => vec![
            "call through Heddle, so that the caller has an identity".to_owned(),
            format!(
                "or label LocalWorkload {} or its namespace heddle.dev/mode: permissive",
                workload.name
            ),
        ],
        Decider::Rule { policy, rule } => {
            let mut policies = guard.policies().iter();
            vec![
                match policies.any(|one| one.name == *policy && denies_all(one)) {
                    true => format!(
                        "{policy} denies every call. If that is not what is written, it has an error, and this stands in \
                     for it: heddle status names the file and the line (with several nodes heddle status --control)"
                    ),
                    false => format!(
                        "a rule of action DENY goes before all others: narrow or remove rules[{rule}] of {policy}"
                    ),
                },
            ]
        }
        Decider::NoRuleMatched => near(guard, access),
        Decider::PolicyMissing => {
            vec!["wait for the control plane, which has not sent all policies".to_owned()]
        }
        Decider::Probe | Decider::Default => Vec::new(),
    }
}

/// Whether it denies every call, as what stands for a policy with an error does.
fn denies_all(policy: &Policy) -> bool {
    let is_all =
        |rule: &PolicyRule| rule.sources.is_none() && rule.ports.is_empty() && rule.http.is_none();
    policy.action == PolicyAction::Deny && policy.rules.iter().any(is_all)
}

/// How to ask another node, which may not know the caller's workload, and the control plane, which knows every
/// workload.
pub(super) fn elsewhere(
    caller: Option<&SpiffeId>,
    destination: &Destination,
    request: Option<&Request>,
) -> Vec<String> {
    let from = match caller.and_then(SpiffeId::service_account) {
        Some(account) => format!("{}/sa/{}", account.namespace, account.name),
        None => "anonymous".to_owned(),
    };
    let mut command = format!("heddle explain {from} {destination}");
    if let Some(Request {
        method,
        path,
        query,
    }) = request
    {
        let target = match query.as_str() {
            "" => path.clone(),
            query => format!("{path}?{query}"),
        };
        command += &format!(" {method} {}", for_shell(&target));
    }
    vec![
        format!("on that node: {command}"),
        format!("where the control plane runs: {command} --control"),
    ]
}

/// Quotes a word for the shell where necessary.
fn for_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Points out that a call is allowed perhaps unintentionally.
pub(super) fn allowed(guard: &Guard, by: Decider<'_>) -> Vec<String> {
    match by {
        Decider::Default if guard.mode() == Mode::Permissive => {
            vec![
                "any caller may call: an AuthorizationPolicy of action ALLOW would say who"
                    .to_owned(),
            ]
        }
        Decider::Default => vec![
            "every caller with an identity may call: an AuthorizationPolicy of action ALLOW would \
             say who"
                .to_owned(),
        ],
        _ => Vec::new(),
    }
}

/// The rules that evaluate requests of this caller to this port.
pub(super) fn depends(guard: &Guard, access: &Access<'_>) -> Vec<String> {
    let looks = |rule: &&PolicyRule| {
        let Unmet { port, caller, .. } = rule.unmet(access);
        rule.http.is_some() && !port && !caller
    };
    let policies = guard.policies().iter().filter(|policy| !policy.dry_run);
    policies
        .flat_map(|policy| {
            policy
                .rules
                .iter()
                .filter(looks)
                .map(move |rule| (policy, rule))
        })
        .take(MAX_NEAR)
        .map(|(policy, rule)| {
            let verb = match policy.action {
                PolicyAction::Allow => "allows",
                PolicyAction::Deny => "denies",
            };
            format!(
                "rules[{}] of {} {verb} some requests",
                rule.number, policy.name
            )
        })
        .collect()
}

/// The allow rules that come closest to matching, with the unmet conditions of each.
fn near(guard: &Guard, access: &Access<'_>) -> Vec<String> {
    let allows = || {
        let policies = guard.policies().iter().map(|policy| &**policy);
        policies.filter(|policy| policy.action == PolicyAction::Allow && !policy.dry_run)
    };
    let mut found: Vec<(usize, &Policy, &PolicyRule, Unmet)> = allows()
        .flat_map(|policy| policy.rules.iter().map(move |rule| (policy, rule)))
        .map(|(policy, rule)| {
            let unmet = rule.unmet(access);
            (unmet.count(), policy, rule, unmet)
        })
        .collect();
    found.sort_by_key(|(count, ..)| *count);
    let fewest = found.first().map_or(0, |(count, ..)| *count);
    let near = found.iter().take_while(|(count, ..)| *count == fewest);
    let advice: Vec<String> = near
        .take(MAX_NEAR)
        .map(|(_, policy, rule, unmet)| lacking(policy, rule, unmet, access))
        .collect();
    if !advice.is_empty() {
        return advice;
    }
    allows()
        .take(1)
        .map(|policy| format!("{} allows no caller: add a rule", policy.name))
        .collect()
}

fn lacking(policy: &Policy, rule: &PolicyRule, unmet: &Unmet, access: &Access<'_>) -> String {
    let mut changes = Vec::new();
    if unmet.caller {
        changes.push(match access.caller {
            Some(caller) => format!("add {}", name(caller)),
            None => "give the caller an identity that is named".to_owned(),
        });
    }
    if unmet.port {
        changes.push(format!("add port {}", access.port));
    }
    if unmet.request {
        changes.push("send a request, not bytes".to_owned());
    }
    if let Some(request) = &access.http {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if unmet.method {
            changes.push(format!("add method {}", text(request.method)));
        }
        if unmet.path {
            changes.push(format!("add path {}", text(request.path)));
        }
    }
    if unmet.headers {
        let headers = rule.http.iter().flat_map(|http| &http.headers);
        let headers: Vec<String> = headers
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        changes.push(format!("send {}", headers.join(", ")));
    }
    format!(
        "to allow it by rules[{}] of {}: {}",
        rule.number,
        policy.name,
        changes.join(", and ")
    )
}

fn name(caller: &SpiffeId) -> String {
    match caller.service_account() {
        Some(account) => format!("service account {account}"),
        None => caller.to_string(),
    }
}

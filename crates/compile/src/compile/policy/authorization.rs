//! Compiles AuthorizationPolicies (Gateway API GEP-3779, with Heddle's extensions).

use heddle_model::{
    HttpMatch, MAX_POLICY_SOURCES, PathMatch, PolicyAction, PolicyRule, Sources, SpiffeId,
    WorkloadName,
};

use super::{Draft, DraftRule, PolicyContext, selector, source};
use crate::check;
use crate::compile::{MAX_CANDIDATES, Scope, did_you_mean, matcher};
use crate::manifest::Kind;
use crate::manifest::node::FieldPath;
use crate::manifest::policy::{
    AuthorizationPolicySpec, AuthorizationRule, AuthorizationSource, HttpAttributes,
};

/// Limits of rules of one policy, and of ports, methods, paths or headers of one rule.
const MAX_RULES: usize = 256;
const MAX_CONDITIONS: usize = 64;

/// Compiles a policy; `None` if its workloads or its action cannot be determined.
pub(super) fn compile(
    context: &PolicyContext<'_>,
    spec: &AuthorizationPolicySpec,
    looks_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Option<Draft> {
    for path in context.object.written.blank_fields() {
        // An absent condition matches every call, so a condition without a value must not count as absent.
        scope.error(
            &path,
            "there is no value",
            "write one, or remove the field; [] is an empty list",
        );
    }
    let at = FieldPath::of("spec");
    let action = action(&spec.action, &at.field("action"), scope);
    let selected = targets(context, spec, looks_left, scope);
    let rules = rules(context, spec, action, scope);
    Some(Draft {
        action: action?,
        dry_run: spec.dry_run,
        rules,
        target: at.field("targetRefs"),
        selected: selected?,
    })
}

fn action(text: &str, at: &FieldPath, scope: &mut Scope<'_>) -> Option<PolicyAction> {
    match text {
        "ALLOW" => Some(PolicyAction::Allow),
        "DENY" => Some(PolicyAction::Deny),
        other => {
            let remedy = did_you_mean(other, ["ALLOW", "DENY"], "use ALLOW or DENY");
            scope.error(at, format!("{other:?} is no action"), remedy);
            None
        }
    }
}

fn targets(
    context: &PolicyContext<'_>,
    spec: &AuthorizationPolicySpec,
    looks_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Option<Vec<WorkloadName>> {
    let at = FieldPath::of("spec.targetRefs");
    let [target] = spec.target_refs.as_slice() else {
        let reason = format!("there are {} targets", spec.target_refs.len());
        scope.error(
            &at,
            reason,
            "write one: {kind: Pod, selector: {}} is the whole namespace",
        );
        return None;
    };
    let at = at.index(0);
    let group = target.group.as_deref().unwrap_or("");
    let is_known = match target.kind.as_str() {
        "Pod" => matches!(group, "" | "core"),
        "LocalWorkload" => matches!(group, "" | heddle_model::GROUP),
        _ => false,
    };
    if !is_known {
        let kind = match group {
            "" => target.kind.clone(),
            group => format!("{} of {group}", target.kind),
        };
        let remedy = did_you_mean(&target.kind, ["Pod"], "write kind: Pod and a selector");
        let reason = format!("a policy cannot be attached to a {kind}");
        scope.error(&at.field("kind"), reason, remedy);
        return None;
    }
    if target.name.as_deref().is_some_and(|name| !name.is_empty()) {
        let reason = "workloads are selected by their labels, not by name";
        scope.error(&at.field("name"), reason, "write a selector in its place");
        return None;
    }
    let Some(selector) = &target.selector else {
        let reason = "this field is required";
        let remedy = "write selector: {} for every workload of the namespace";
        scope.error(&at.field("selector"), reason, remedy);
        return None;
    };
    let at = at.field("selector");
    if !selector::check(selector, &at, scope) {
        return None;
    }
    let namespace = &context.object.namespace;
    let candidates = selector::candidates(context, &at, looks_left, scope)?;
    let selected: Vec<WorkloadName> = candidates
        .iter()
        .filter(|workload| selector::selects(selector, &workload.labels))
        .map(|workload| workload.name.clone())
        .collect();
    if selected.is_empty() && !scope.is_any_refused(Kind::LocalWorkload, namespace) {
        let looked_at = context.workloads.iter().take(MAX_CANDIDATES);
        let mut elsewhere = looked_at.filter(|workload| {
            !selector.match_labels.is_empty() && selector::selects(selector, &workload.labels)
        });
        let remedy = match elsewhere.next() {
            Some(other) => format!(
                "LocalWorkload {} has them: a policy concerns its own namespace",
                other.name
            ),
            None => "compare them with metadata.labels of the workloads".to_owned(),
        };
        let reason = "no LocalWorkload of this namespace has these labels: it concerns no workload";
        scope.warn(&at, reason, remedy);
    }
    Some(selected)
}

fn rules(
    context: &PolicyContext<'_>,
    spec: &AuthorizationPolicySpec,
    action: Option<PolicyAction>,
    scope: &mut Scope<'_>,
) -> Vec<DraftRule> {
    let at = FieldPath::of("spec.rules");
    if spec.rules.is_empty() && action == Some(PolicyAction::Deny) {
        let reason = "a policy that denies nothing has no effect";
        scope.error(&at, reason, "add a rule; {} denies everything");
    }
    let written = scope.at_most(&at, &spec.rules, MAX_RULES);
    let level = level(spec, written, scope);
    let mut rules = Vec::new();
    for (number, written) in (0..).zip(written) {
        let at = at.index(number as usize);
        let http_at = at.field("httpAttributes");
        if written.http_attributes.is_some() && level == Level::Network {
            scope.error(
                &http_at,
                "with enforcementLevel Network there are no requests to look at",
                "write enforcementLevel: Application, or leave it out",
            );
        }
        let sources = written
            .sources
            .as_deref()
            .map(|sources| self::sources(context, sources, action, &at.field("sources"), scope));
        let (ports, ports_at) = ports(written, &at, scope);
        let http = written.http_attributes.as_ref();
        let http = http.map(|http| self::http(http, &http_at, scope));
        rules.push(DraftRule {
            rule: PolicyRule {
                number,
                sources,
                ports,
                http,
            },
            ports_at,
            http_at,
        });
    }
    rules
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Network,
    Application,
}

fn level(
    spec: &AuthorizationPolicySpec,
    rules: &[AuthorizationRule],
    scope: &mut Scope<'_>,
) -> Level {
    match spec.enforcement_level.as_deref() {
        None | Some("Application") => Level::Application,
        Some("Network") => Level::Network,
        Some(other) => {
            let known = ["Network", "Application"];
            let otherwise = match rules.iter().any(|rule| rule.http_attributes.is_some()) {
                true => "use Application",
                false => "use Network",
            };
            let remedy = did_you_mean(other, known, otherwise);
            let at = FieldPath::of("spec.enforcementLevel");
            scope.error(&at, format!("{other:?} is no level"), remedy);
            Level::Application
        }
    }
}

fn sources(
    context: &PolicyContext<'_>,
    written: &[AuthorizationSource],
    action: Option<PolicyAction>,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Sources {
    let mut sources = Sources::default();
    if written.is_empty() && action == Some(PolicyAction::Deny) {
        let reason = "an empty list of sources matches no caller: this rule denies nothing";
        scope.warn(at, reason, "remove sources to deny it to every caller");
    }
    let written = scope.at_most(at, written, MAX_POLICY_SOURCES);
    for (position, written) in written.iter().enumerate() {
        source_of(context, written, &at.index(position), &mut sources, scope);
    }
    source::settle(&mut sources);
    sources
}

fn source_of(
    context: &PolicyContext<'_>,
    written: &AuthorizationSource,
    at: &FieldPath,
    to: &mut Sources,
    scope: &mut Scope<'_>,
) {
    let known = ["ServiceAccount", "SPIFFE"];
    match (
        written.kind.as_str(),
        &written.service_account,
        &written.spiffe,
    ) {
        ("ServiceAccount", Some(account), None) => {
            let at = at.field("serviceAccount");
            let namespace = account.namespace.as_deref();
            let namespace = source::namespace(context, namespace, &at.field("namespace"), scope);
            let at = at.field("name");
            let Some(namespace) = namespace else {
                return;
            };
            if account.name == "*" {
                return source::add_namespace(context, namespace, to);
            }
            if let Some(name) = source::name(&account.name, &at, scope) {
                let account = heddle_model::ServiceAccountName { namespace, name };
                source::add_account(context, account, &at, to, scope);
            }
        }
        ("SPIFFE", None, Some(text)) => {
            let at = at.field("spiffe");
            match SpiffeId::parse(text) {
                Ok(id) => source::add_identity(context, id, &at, to, scope),
                Err(error) => scope.error(
                    &at,
                    error.to_string(),
                    "write it out: there are no wildcards",
                ),
            }
        }
        ("ServiceAccount", ..) => scope.error(
            at,
            "a source of type ServiceAccount has serviceAccount, and nothing else",
            "write serviceAccount: {name: …, namespace: …}",
        ),
        ("SPIFFE", ..) => scope.error(
            at,
            "a source of type SPIFFE has spiffe, and nothing else",
            "write spiffe: spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/NAME",
        ),
        (other, ..) => {
            let remedy = did_you_mean(other, known, "use ServiceAccount or SPIFFE");
            let reason = format!("{other:?} is no type of source");
            scope.error(&at.field("type"), reason, remedy);
        }
    }
}

/// The ports of a rule, sorted, and the place of each.
fn ports(
    written: &AuthorizationRule,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> (Vec<u16>, Vec<FieldPath>) {
    let network = written.network_attributes.as_ref();
    let Some(ports) = network.and_then(|network| network.ports.as_deref()) else {
        return (Vec::new(), Vec::new());
    };
    let at = at.field("networkAttributes").field("ports");
    refuse_empty(ports, &at, scope);
    let mut found: Vec<(u16, FieldPath)> = Vec::new();
    for (position, number) in scope.at_most(&at, ports, MAX_CONDITIONS).iter().enumerate() {
        let at = at.index(position);
        if let Some(port) = scope.check(&at, check::port(*number)) {
            found.push((port, at));
        }
    }
    found.sort_by_key(|(port, _)| *port);
    found.dedup_by_key(|(port, _)| *port);
    found.into_iter().unzip()
}

/// Refuses an empty list: some APIs treat it as no condition, others as one that nothing meets.
fn refuse_empty<T>(list: &[T], at: &FieldPath, scope: &mut Scope<'_>) {
    if list.is_empty() {
        scope.error(at, "the list is empty", "add an item, or remove the field");
    }
}

fn http(written: &HttpAttributes, at: &FieldPath, scope: &mut Scope<'_>) -> HttpMatch {
    let HttpAttributes {
        methods,
        paths,
        headers,
    } = written;
    if methods.is_none() && paths.is_none() && headers.is_none() {
        let remedy = "add methods, paths or headers, or remove it";
        scope.error(at, "it states no condition", remedy);
    }
    let mut compiled = HttpMatch::default();
    let methods_at = at.field("methods");
    if let Some(methods) = methods {
        refuse_empty(methods, &methods_at, scope);
    }
    let methods = methods.as_deref().unwrap_or_default();
    let methods = scope.at_most(&methods_at, methods, MAX_CONDITIONS);
    for (position, method) in methods.iter().enumerate() {
        let method = matcher::method(method, &methods_at.index(position), scope);
        compiled.methods.extend(method);
    }
    let paths_at = at.field("paths");
    if let Some(paths) = paths {
        refuse_empty(paths, &paths_at, scope);
    }
    let paths = paths.as_deref().unwrap_or_default();
    for (position, path) in scope
        .at_most(&paths_at, paths, MAX_CONDITIONS)
        .iter()
        .enumerate()
    {
        let at = paths_at.index(position);
        if path.value.is_none() {
            scope.error(&at.field("value"), "this field is required", "add value");
        }
        let path: PathMatch = matcher::path(Some(path), &at, scope);
        compiled.paths.push(path);
    }
    let headers_at = at.field("headers");
    if let Some(headers) = headers {
        refuse_empty(headers, &headers_at, scope);
        for (position, header) in headers.iter().take(MAX_CONDITIONS).enumerate() {
            let at = headers_at.index(position).field("name");
            scope.check(&at, check::policy_header(&header.name));
        }
        compiled.headers = matcher::headers(headers, &headers_at, scope);
    }
    compiled
}

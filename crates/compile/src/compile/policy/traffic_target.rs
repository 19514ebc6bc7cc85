//! Compiles TrafficTargets (Service Mesh Interface, traffic access v1alpha3).
//!
//! Rules of one kind are alternatives; rules of different kinds restrict each other, as in the specification's example:
//! a TCPRoute selects ports, an HTTPRouteGroup selects requests.

use std::collections::BTreeMap;

use heddle_model::{
    HttpMatch, MAX_POLICY_RULES, MAX_POLICY_SOURCES, Name, PathMatch, PolicyAction, PolicyRule,
    ServiceAccountName, Sources, WorkloadName,
};

use super::regex::{Pattern, translate};
use super::{Draft, DraftRule, PolicyContext, any_request, selector, source};
use crate::check;
use crate::compile::{Scope, did_you_mean, matcher};
use crate::manifest::node::FieldPath;
use crate::manifest::smi::{self, Subject, TargetRule, TrafficTargetSpec};
use crate::manifest::{Kind, Object};

/// Limits of rules of one TrafficTarget, and of matches, methods and headers in the objects that they name.
const MAX_RULES: usize = 64;
const MAX_CONDITIONS: usize = 64;

/// Compiles a TrafficTarget; `None` if its workloads cannot be determined.
pub(super) fn compile(
    context: &PolicyContext<'_>,
    spec: &TrafficTargetSpec,
    looks_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Option<Draft> {
    let selected = destination(context, &spec.destination, looks_left, scope);
    let sources = sources(context, &spec.sources, scope);
    let rules = rules(context, &spec.rules, &sources, scope);
    Some(Draft {
        action: PolicyAction::Allow,
        dry_run: false,
        rules,
        target: FieldPath::of("spec.destination"),
        selected: selected?,
    })
}

/// The service account that a subject names.
fn account(
    context: &PolicyContext<'_>,
    subject: &Subject,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<ServiceAccountName> {
    if subject.kind != "ServiceAccount" {
        let remedy = did_you_mean(
            &subject.kind,
            ["ServiceAccount"],
            "write kind: ServiceAccount",
        );
        let reason = format!("{:?} is no kind of identity", subject.kind);
        scope.error(&at.field("kind"), reason, remedy);
        return None;
    }
    let namespace = subject.namespace.as_deref();
    let namespace = source::namespace(context, namespace, &at.field("namespace"), scope);
    let name = source::name(&subject.name, &at.field("name"), scope);
    Some(ServiceAccountName {
        namespace: namespace?,
        name: name?,
    })
}

fn destination(
    context: &PolicyContext<'_>,
    written: &Subject,
    looks_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Option<Vec<WorkloadName>> {
    let at = FieldPath::of("spec.destination");
    let account = account(context, written, &at, scope)?;
    let own = &context.object.namespace;
    if account.namespace != *own {
        scope.error(
            &at.field("namespace"),
            format!("a TrafficTarget concerns workloads of its own namespace, which is {own}"),
            format!("move it to namespace {}", account.namespace),
        );
        return None;
    }
    let candidates = selector::candidates(context, &at, looks_left, scope)?;
    let selected: Vec<WorkloadName> = candidates
        .iter()
        .filter(|workload| workload.service_account == account)
        .map(|workload| workload.name.clone())
        .collect();
    if selected.is_empty() && !scope.is_any_refused(Kind::LocalWorkload, own) {
        let accounts = candidates
            .iter()
            .map(|workload| workload.service_account.name.as_str());
        let otherwise = "compare it with spec.serviceAccountName of the workloads";
        scope.warn(
            &at.field("name"),
            format!("no LocalWorkload runs as ServiceAccount {account}: it concerns no workload"),
            did_you_mean(account.name.as_str(), accounts, otherwise),
        );
    }
    Some(selected)
}

fn sources(context: &PolicyContext<'_>, written: &[Subject], scope: &mut Scope<'_>) -> Sources {
    let at = FieldPath::of("spec.sources");
    let mut sources = Sources::default();
    if written.is_empty() {
        scope.error(&at, "there is no source", "add one: the API wants it");
    }
    for (position, written) in scope
        .at_most(&at, written, MAX_POLICY_SOURCES)
        .iter()
        .enumerate()
    {
        let at = at.index(position);
        if let Some(account) = account(context, written, &at, scope) {
            source::add_account(context, account, &at.field("name"), &mut sources, scope);
        }
    }
    source::settle(&mut sources);
    sources
}

/// The parts of the referenced objects, before they are combined.
#[derive(Default)]
struct Parts {
    /// Whether there is a TCPRoute; whether one applies to all ports; and the ports of the others.
    has_tcp: bool,
    all_ports: bool,
    ports: BTreeMap<u16, FieldPath>,
    /// Each match, with the index of the rule that refers to it.
    requests: Vec<(u32, HttpMatch, FieldPath)>,
    /// A reference was not resolved: the collected parts are incomplete.
    is_broken: bool,
}

fn rules(
    context: &PolicyContext<'_>,
    written: &[TargetRule],
    sources: &Sources,
    scope: &mut Scope<'_>,
) -> Vec<DraftRule> {
    let at = FieldPath::of("spec.rules");
    if written.is_empty() {
        scope.error(&at, "there is no rule", "add one: the API wants it");
    }
    let mut parts = Parts::default();
    for (number, rule) in (0..).zip(scope.at_most(&at, written, MAX_RULES)) {
        let at = at.index(number as usize);
        match rule.kind.as_str() {
            "TCPRoute" => tcp(context, rule, &at, &mut parts, scope),
            "HTTPRouteGroup" => http(context, rule, number, &at, &mut parts, scope),
            "UDPRoute" => {
                let reason = "only TCP is carried: this rule allows nothing";
                scope.warn(&at.field("kind"), reason, "");
            }
            other => {
                let known = ["HTTPRouteGroup", "TCPRoute"];
                let remedy = did_you_mean(other, known, "use HTTPRouteGroup or TCPRoute");
                scope.error(
                    &at.field("kind"),
                    format!("{other:?} is no kind of rule"),
                    remedy,
                );
                parts.is_broken = true;
            }
        }
    }
    put_together(parts, sources, scope)
}

fn put_together(parts: Parts, sources: &Sources, scope: &mut Scope<'_>) -> Vec<DraftRule> {
    if parts.is_broken || (!parts.has_tcp && parts.requests.is_empty()) {
        return Vec::new();
    }
    let (ports, ports_at): (Vec<u16>, Vec<FieldPath>) = match parts.all_ports {
        true => Default::default(),
        false => parts.ports.into_iter().unzip(),
    };
    let rule = |number, http, http_at: FieldPath| DraftRule {
        rule: PolicyRule {
            number,
            sources: Some(sources.clone()),
            ports: ports.clone(),
            http,
        },
        ports_at: ports_at.clone(),
        http_at,
    };
    let at = FieldPath::of("spec.rules");
    if parts.requests.is_empty() {
        return vec![rule(0, None, at)];
    }
    if parts.requests.len() > MAX_POLICY_RULES {
        let reason = format!("the rules come to {} matches", parts.requests.len());
        scope.error(
            &at,
            reason,
            format!("at most {MAX_POLICY_RULES} are served"),
        );
        return Vec::new();
    }
    parts
        .requests
        .into_iter()
        .map(|(number, http, at)| rule(number, Some(http), at))
        .collect()
}

fn tcp(
    context: &PolicyContext<'_>,
    rule: &TargetRule,
    at: &FieldPath,
    parts: &mut Parts,
    scope: &mut Scope<'_>,
) {
    parts.has_tcp = true;
    if rule.matches.as_ref().is_some_and(|names| !names.is_empty()) {
        let reason = "a TCPRoute has no matches with names";
        scope.error(&at.field("matches"), reason, "remove them");
    }
    let routes = &context.index.tcp_routes;
    let Some((object, route)) = find(context, routes, (Kind::TcpRoute, rule), at, scope) else {
        parts.is_broken = true;
        return;
    };
    let before = scope.findings.report.errors();
    let ports = &route.spec.matches.ports;
    parts.all_ports |= ports.is_empty();
    // Faults of the route are reported at the rule: the route may be in another file.
    for number in scope.at_most(at, ports, MAX_CONDITIONS) {
        if let Some(port) = scope.check(&at.field("name"), check::port(*number)) {
            parts.ports.insert(port, at.field("name"));
        }
    }
    scope.blame_too(object, before);
}

fn http(
    context: &PolicyContext<'_>,
    rule: &TargetRule,
    number: u32,
    at: &FieldPath,
    parts: &mut Parts,
    scope: &mut Scope<'_>,
) {
    let groups = &context.index.http_groups;
    let Some((object, group)) = find(context, groups, (Kind::HttpRouteGroup, rule), at, scope)
    else {
        parts.is_broken = true;
        return;
    };
    let before = scope.findings.report.errors();
    requests(rule, group, number, at, parts, scope);
    scope.blame_too(object, before);
}

/// The requests of a group that a rule names.
fn requests(
    rule: &TargetRule,
    group: &smi::HttpRouteGroup,
    number: u32,
    at: &FieldPath,
    parts: &mut Parts,
    scope: &mut Scope<'_>,
) {
    let all = scope.at_most(at, &group.spec.matches, MAX_CONDITIONS);
    let mut add = |matched: &smi::HttpMatch, at: &FieldPath, scope: &mut Scope<'_>| match request(
        matched, at, scope,
    ) {
        Some(request) => parts.requests.push((number, request, at.clone())),
        None => parts.is_broken = true,
    };
    let Some(names) = rule.matches.as_deref() else {
        for matched in all {
            add(matched, &at.field("name"), scope);
        }
        return;
    };
    let at = at.field("matches");
    for (position, name) in scope.at_most(&at, names, MAX_CONDITIONS).iter().enumerate() {
        let at = at.index(position);
        let mut found = all
            .iter()
            .filter(|matched| matched.name == *name)
            .peekable();
        if found.peek().is_none() {
            let known = all.iter().map(|matched| matched.name.as_str());
            let remedy = did_you_mean(name, known, "add the match there");
            let reason = format!("HTTPRouteGroup {} has no match {name:?}", rule.name);
            scope.error(&at, reason, remedy);
        }
        for matched in found {
            add(matched, &at, scope);
        }
    }
}

/// The object to which a rule refers, in the TrafficTarget's own namespace.
fn find<'i, T>(
    context: &PolicyContext<'_>,
    known: &BTreeMap<(heddle_model::Namespace, Name), (&'i Object, &'i T)>,
    (kind, rule): (Kind, &TargetRule),
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<(&'i Object, &'i T)> {
    let at = at.field("name");
    let namespace = &context.object.namespace;
    let name = source::name(&rule.name, &at, scope)?;
    let found = known.get(&(namespace.clone(), name.clone())).copied();
    if found.is_none() && !scope.is_refused(kind, namespace, &name) {
        let names = known.keys().filter(|(other, _)| other == namespace);
        let names = names.map(|(_, name)| name.as_str());
        let kind = kind.as_str();
        let remedy = did_you_mean(&rule.name, names, &format!("add the {kind}"));
        scope.error(
            &at,
            format!("there is no {kind} {namespace}/{name}"),
            remedy,
        );
    }
    found
}

/// The conditions of a match. Its faults are reported at the rule that refers to it.
fn request(written: &smi::HttpMatch, at: &FieldPath, scope: &mut Scope<'_>) -> Option<HttpMatch> {
    let mut compiled = HttpMatch::default();
    let mut is_whole = true;
    let methods = written.methods.as_deref().unwrap_or_default();
    if !methods.iter().any(|method| method == "*") {
        for method in scope.at_most(at, methods, MAX_CONDITIONS) {
            let method = matcher::method(method, at, scope);
            is_whole &= method.is_some();
            compiled.methods.extend(method);
        }
    }
    if let Some(regex) = &written.path_regex {
        is_whole &= path(&written.name, regex, at, &mut compiled, scope).is_some();
    }
    for (name, regex) in written.headers.iter().take(MAX_CONDITIONS) {
        let value = match translate(regex) {
            Some(Pattern::Exact(value)) => value,
            _ => {
                refuse(&written.name, &format!("headers[{name}]"), regex, at, scope);
                is_whole = false;
                continue;
            }
        };
        scope.check(at, check::match_name(name, "header"));
        scope.check(at, check::policy_header(name));
        scope.check(at, check::match_value(&value, 4096));
        let name = name.to_ascii_lowercase();
        if compiled.headers.iter().any(|(known, _)| *known == name) {
            let reason = format!(
                "match {:?} has two conditions on header {name}",
                written.name
            );
            scope.error(at, reason, "remove one");
            continue;
        }
        compiled.headers.push((name, value));
    }
    let states_none = compiled == HttpMatch::default();
    let compiled = if states_none { any_request() } else { compiled };
    is_whole.then_some(compiled)
}

fn path(
    name: &str,
    regex: &str,
    at: &FieldPath,
    to: &mut HttpMatch,
    scope: &mut Scope<'_>,
) -> Option<()> {
    let Some(pattern) = translate(regex) else {
        refuse(name, "pathRegex", regex, at, scope);
        return None;
    };
    match pattern {
        Pattern::Any => {}
        Pattern::Start(start) if start == "/" => {}
        Pattern::Exact(path) => {
            let path = scope.check(at, check::exact_path(&path))?;
            to.paths.push(PathMatch::Exact(path));
        }
        Pattern::Prefix(path) => {
            let path = match path.as_str() {
                "" => String::new(),
                path => scope.check(at, check::path_prefix(path))?,
            };
            to.paths.push(PathMatch::Prefix(path));
        }
        Pattern::Start(start) => {
            let start = scope.check(at, check::exact_path(&start))?;
            to.path_starts.push(start);
        }
    }
    Some(())
}

fn refuse(name: &str, field: &str, regex: &str, at: &FieldPath, scope: &mut Scope<'_>) {
    scope.error(
        at,
        format!(
            "{field} of match {name:?} is a regular expression that is not supported: {regex:?}"
        ),
        "write plain text (a dot as \\.), for a path also with .* or (/.*)? at its end; \
         or write an AuthorizationPolicy",
    );
}

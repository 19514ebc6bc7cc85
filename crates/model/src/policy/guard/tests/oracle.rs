//! The decision against an oracle with strings and lists: it collects the result of every policy, and then chooses.

use proptest::prelude::*;

use super::*;
use crate::TrustDomain;

const CALLERS: [Option<&str>; 6] = [
    None,
    Some("spiffe://cluster.local/ns/a/sa/x"),
    Some("spiffe://cluster.local/ns/a/sa/y"),
    Some("spiffe://cluster.local/ns/b/sa/x"),
    Some("spiffe://other.example/ns/a/sa/x"),
    Some("spiffe://cluster.local/heddle/node/a"),
];
const METHODS: [&str; 3] = ["GET", "get", "POST"];
const PATHS: [&str; 8] = [
    "/", "/a", "/a/", "/a/b", "/ab", "/a;x", "/a;x/b", "/healthz",
];

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let sources = proptest::option::of((
        proptest::sample::subsequence(&CALLERS[1..5], 0..3),
        proptest::sample::subsequence(vec!["a", "b"], 0..2),
    ));
    let http = (
        proptest::sample::subsequence(vec!["GET", "POST"], 0..=2),
        proptest::sample::subsequence(
            vec![
                PathMatch::Exact("/a".into()),
                PathMatch::Prefix("/a".into()),
                PathMatch::Prefix("".into()),
            ],
            0..=2,
        ),
        proptest::option::of(prop_oneof![Just("1"), Just("1, 2")]),
    );
    let ports = proptest::sample::subsequence(vec![80_u16, 81], 0..=2);
    (sources, ports, proptest::option::of(http), 0..3_u32).prop_map(
        |(sources, ports, http, number)| PolicyRule {
            number,
            sources: sources.map(|(ids, namespaces)| {
                let mut identities: Vec<_> = ids
                    .iter()
                    .flatten()
                    .map(|id| SpiffeId::parse(id).unwrap())
                    .collect();
                identities.sort();
                let namespace = |name: &&str| crate::SourceNamespace {
                    trust_domain: TrustDomain::default(),
                    namespace: crate::Namespace::parse(name).unwrap(),
                };
                Sources {
                    identities,
                    namespaces: namespaces.iter().map(namespace).collect(),
                }
            }),
            ports,
            http: http.map(|(methods, paths, header)| HttpMatch {
                methods: methods.into_iter().map(str::to_owned).collect(),
                paths,
                path_starts: Vec::new(),
                headers: header.map(|v| ("x".into(), v.into())).into_iter().collect(),
            }),
        },
    )
}

fn any_guard() -> impl Strategy<Value = Guard> {
    let written = (
        prop_oneof![Just(PolicyAction::Allow), Just(PolicyAction::Deny)],
        prop_oneof![3 => Just(false), 1 => Just(true)],
        proptest::collection::vec(any_rule(), 0..3),
    );
    let mode = prop_oneof![Just(Mode::Permissive), Just(Mode::Strict)];
    (mode, proptest::collection::vec(written, 0..4)).prop_map(|(mode, policies)| {
        let mut built = guard(mode, Vec::new());
        built.policies = policies
            .into_iter()
            .enumerate()
            .map(|(n, (action, dry_run, rules))| {
                let mut policy = Arc::unwrap_or_clone(policy(&format!("p{n}"), action, rules));
                policy.dry_run = dry_run;
                Arc::new(policy)
            })
            .collect();
        built
    })
}

fn any_request() -> impl Strategy<Value = Option<Request>> {
    let fields = proptest::sample::select(vec![
        vec![],
        vec![("x", "1")],
        vec![("x", "2"), ("x", "1")],
        vec![("x", "1"), ("x", "2")],
        vec![("x", "1,3")],
        vec![("x", "\"1\""), ("X", "3; 2")],
        vec![("y", "1")],
    ]);
    let request = (
        proptest::sample::select(METHODS.to_vec()),
        proptest::sample::select(PATHS.to_vec()),
        proptest::sample::select(vec!["", "full=1"]),
        fields,
    );
    proptest::option::of(request.prop_map(|(method, path, query, fields)| Request {
        method,
        path,
        query,
        fields,
    }))
}

/// An independent implementation of a rule's conditions.
fn oracle_matches(
    rule: &PolicyRule,
    deny: bool,
    caller: Option<&SpiffeId>,
    port: u16,
    request: Option<&Request>,
) -> bool {
    if !rule.ports.is_empty() && !rule.ports.contains(&port) {
        return false;
    }
    if let Some(sources) = &rule.sources {
        let Some(caller) = caller.map(ToString::to_string) else {
            return false;
        };
        let named = sources.identities.iter().any(|id| id.to_string() == caller);
        let within = sources.namespaces.iter().any(|of| {
            caller.starts_with(&format!(
                "spiffe://{}/ns/{}/sa/",
                of.trust_domain, of.namespace
            ))
        });
        if !named && !within {
            return false;
        }
    }
    let (Some(http), Some(request)) = (&rule.http, request) else {
        return rule.http.is_none() || deny;
    };
    let without: Vec<&str> = request
        .path
        .split('/')
        .map(|segment| segment.split(';').next().unwrap())
        .collect();
    let mut paths = vec![request.path.to_owned()];
    let mut methods = vec![request.method.to_owned()];
    let lines: Vec<&str> = request
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x"))
        .map(|(_, value)| *value)
        .collect();
    let joined = lines.join(", ");
    if deny {
        paths.push(without.join("/"));
        methods.push(request.method.to_uppercase());
    }
    let pieces = |value: &str| -> Vec<String> {
        let pieces = value
            .split([',', ';'])
            .map(|piece| piece.trim().replace('"', ""));
        pieces.collect()
    };
    let has = |value: &str| match deny {
        true => pieces(value)
            .iter()
            .all(|piece| pieces(&joined).contains(piece)),
        false => joined == value,
    };
    (http.methods.is_empty() || methods.iter().any(|m| http.methods.contains(m)))
        && (http.paths.is_empty()
            || paths
                .iter()
                .any(|path| http.paths.iter().any(|wanted| wanted.matches(path))))
        && http
            .headers
            .iter()
            .all(|(_, value)| !lines.is_empty() && has(value))
}

fn oracle(
    guard: &Guard,
    with_dry_runs: bool,
    caller: Option<&SpiffeId>,
    port: u16,
    request: Option<&Request>,
) -> (bool, String) {
    if let Some(request) = request
        && caller.is_none()
        && (port, request.method, request.path, request.query) == (81, "GET", "/healthz", "full=1")
    {
        return (true, "a health check of the workload".into());
    }
    if guard.mode == Mode::Strict && caller.is_none() {
        return (false, "strict mode: the caller has no identity".into());
    }
    let counted: Vec<&Arc<Policy>> = guard
        .policies
        .iter()
        .filter(|policy| with_dry_runs || !policy.dry_run)
        .collect();
    let said: Vec<(bool, String)> = counted
        .iter()
        .flat_map(|policy| policy.rules.iter().map(move |rule| (policy, rule)))
        .filter(|(policy, rule)| {
            let deny = policy.action == PolicyAction::Deny;
            oracle_matches(rule, deny, caller, port, request)
        })
        .map(|(policy, rule)| {
            let name = format!("{} rules[{}]", policy.name, rule.number);
            (policy.action == PolicyAction::Allow, name)
        })
        .collect();
    if let Some(denied) = said.iter().find(|(allowed, _)| !allowed) {
        return denied.clone();
    }
    if let Some(allowed) = said.first() {
        return allowed.clone();
    }
    match counted
        .iter()
        .any(|policy| policy.action == PolicyAction::Allow)
    {
        true => (false, "no rule allows it".into()),
        false => (true, "no policy applies".into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn the_decision_is_the_oracles(
        guard in any_guard(),
        caller in proptest::sample::select(CALLERS.to_vec()),
        port in 80_u16..=82,
        request in any_request(),
    ) {
        let caller = caller.map(|caller| SpiffeId::parse(caller).unwrap());
        let (caller, request) = (caller.as_ref(), request.as_ref());
        let said = decide(&guard, caller, port, request);
        let expected = oracle(&guard, false, caller, port, request);
        prop_assert_eq!((said.allowed, said.by.to_string()), expected);
        let with = oracle(&guard, true, caller, port, request);
        match said.dry_run {
            Some(would) => prop_assert_eq!((would.allowed, would.by.to_string()), with),
            None => prop_assert!(guard.policies.iter().all(|policy| !policy.dry_run)),
        }
    }

    /// A connection is refused only if everything on it would be; bytes pass only if a byte stream is allowed; and a
    /// rule that refuses a caller entirely refuses the connection.
    #[test]
    fn a_connection_is_refused_only_when_nothing_is_allowed_on_it(
        guard in any_guard(),
        caller in proptest::sample::select(CALLERS.to_vec()),
        port in 80_u16..=82,
        request in any_request(),
    ) {
        let caller = caller.map(|caller| SpiffeId::parse(caller).unwrap());
        let said = decide(&guard, caller.as_ref(), port, request.as_ref());
        let connect = guard.may_connect(caller.as_ref(), port);
        prop_assert!(!said.allowed || connect == Connect::Open, "{:?}", connect);
        if connect == Connect::Bare {
            prop_assert!(caller.is_none() && port == 80);
        }
    }

    #[test]
    fn a_dry_run_changes_nothing(
        guard in any_guard(),
        caller in proptest::sample::select(CALLERS.to_vec()),
        port in 80_u16..=82,
        request in any_request(),
    ) {
        let caller = caller.map(|caller| SpiffeId::parse(caller).unwrap());
        let mut without = guard.clone();
        without.policies.retain(|policy| !policy.dry_run);
        let one = decide(&guard, caller.as_ref(), port, request.as_ref());
        let other = decide(&without, caller.as_ref(), port, request.as_ref());
        prop_assert_eq!((one.allowed, one.by), (other.allowed, other.by));
        prop_assert_eq!(
            guard.may_connect(caller.as_ref(), port),
            without.may_connect(caller.as_ref(), port)
        );
        prop_assert_eq!(guard.looks_at_requests(port), without.looks_at_requests(port));
    }
}

//! The decision, by tables where a reader wants to see it, and against an oracle that says the same
//! in another way: it lists what every policy says and then picks, with strings and lists.

use proptest::prelude::*;

use super::*;
use crate::policy::{HttpMatch, Sources};
use crate::{PathMatch, TrustDomain};

type Fields = Vec<(&'static str, &'static str)>;

#[derive(Debug, Clone)]
struct Request {
    method: &'static str,
    path: &'static str,
    query: &'static str,
    fields: Fields,
}

fn get(path: &'static str) -> Request {
    Request {
        method: "GET",
        path,
        query: "",
        fields: Vec::new(),
    }
}

fn id(account: &str) -> SpiffeId {
    SpiffeId::parse(&format!("spiffe://cluster.local/ns/{account}")).unwrap()
}

fn unmet(rule: &PolicyRule, request: &Request) -> Unmet {
    rule.unmet(&Access {
        caller: None,
        port: 80,
        http: Some(HttpAccess {
            method: request.method.as_bytes(),
            path: request.path.as_bytes(),
            query: b"",
            fields: |name: &[u8], line: &mut dyn FnMut(&[u8])| {
                let fields = request.fields.iter();
                for (_, value) in fields.filter(|(known, _)| known.as_bytes() == name) {
                    line(value.as_bytes());
                }
            },
        }),
    })
}

fn decide<'g>(
    guard: &'g Guard,
    caller: Option<&SpiffeId>,
    port: u16,
    request: Option<&Request>,
) -> Decision<'g> {
    let fields = |request: &Request| {
        let fields = request.fields.clone();
        move |name: &[u8], line: &mut dyn FnMut(&[u8])| {
            for (_, value) in fields.iter().filter(|(known, _)| known.as_bytes() == name) {
                line(value.as_bytes());
            }
        }
    };
    match request {
        None => guard.decide(&Access::flow(caller, port)),
        Some(request) => guard.decide(&Access {
            caller,
            port,
            http: Some(HttpAccess {
                method: request.method.as_bytes(),
                path: request.path.as_bytes(),
                query: request.query.as_bytes(),
                fields: fields(request),
            }),
        }),
    }
}

fn policy(name: &str, action: PolicyAction, rules: Vec<PolicyRule>) -> Arc<Policy> {
    Arc::new(Policy {
        name: PolicyName::parse(&format!("AuthorizationPolicy a/{name}")).unwrap(),
        action,
        dry_run: false,
        rules,
    })
}

fn rule() -> PolicyRule {
    PolicyRule {
        number: 0,
        sources: None,
        ports: Vec::new(),
        http: None,
    }
}

fn from(accounts: &[&str]) -> PolicyRule {
    let mut identities: Vec<_> = accounts.iter().map(|account| id(account)).collect();
    identities.sort();
    PolicyRule {
        sources: Some(Sources {
            identities,
            namespaces: Vec::new(),
        }),
        ..rule()
    }
}

fn about(http: HttpMatch) -> PolicyRule {
    PolicyRule {
        http: Some(http),
        ..rule()
    }
}

fn guard(mode: Mode, policies: Vec<Arc<Policy>>) -> Guard {
    Guard {
        mode,
        probes: vec![
            Probe {
                port: 80,
                path: None,
                query: String::new(),
            },
            Probe {
                port: 81,
                path: Some("/healthz".into()),
                query: "full=1".into(),
            },
        ],
        policies,
        is_complete: true,
    }
}

#[test]
fn without_policies_the_mode_decides() {
    let caller = id("a/sa/x");
    let open = guard(Mode::Permissive, vec![]);
    assert!(open.is_open());
    assert_eq!(decide(&open, None, 80, None).by, Decider::Default);
    let strict = guard(Mode::Strict, vec![]);
    assert!(!strict.is_open());
    let refused = decide(&strict, None, 80, Some(&get("/")));
    assert_eq!((refused.allowed, refused.by), (false, Decider::Anonymous));
    assert!(decide(&strict, Some(&caller), 80, None).allowed);
}

#[test]
fn a_health_check_stays_open_to_the_letter() {
    let nobody = policy("nobody", PolicyAction::Allow, vec![]);
    let guard = guard(Mode::Strict, vec![nobody]);
    let check = Request {
        query: "full=1",
        ..get("/healthz")
    };
    let said = decide(&guard, None, 81, Some(&check));
    assert_eq!((said.allowed, said.by), (true, Decider::Probe));
    for (port, request) in [
        (80, Some(check.clone())),
        (81, None),
        (81, Some(get("/healthz"))),
        (81, Some(get("/healthz/"))),
        (
            81,
            Some(Request {
                method: "POST",
                ..check.clone()
            }),
        ),
        (
            81,
            Some(Request {
                query: "full=1&x",
                ..check.clone()
            }),
        ),
        // A probe of a port is no permission to send anything.
        (80, None),
        (80, Some(get("/"))),
    ] {
        assert!(!decide(&guard, None, port, request.as_ref()).allowed);
    }
    // Whoever has an identity is judged by it.
    assert!(!decide(&guard, Some(&id("a/sa/x")), 81, Some(&check)).allowed);
    assert_eq!(guard.may_connect(None, 81), Connect::Open);
    assert_eq!(guard.may_connect(None, 80), Connect::Bare);
    assert_eq!(
        guard.may_connect(None, 82),
        Connect::Refused(Decider::Anonymous)
    );
    assert_eq!(
        guard.may_connect(Some(&id("a/sa/x")), 80),
        Connect::Refused(Decider::NoRuleMatched)
    );
}

#[test]
fn deny_goes_before_allow_and_says_which_rule() {
    let allow = policy(
        "allow",
        PolicyAction::Allow,
        vec![from(&["a/sa/x", "a/sa/y"])],
    );
    let deny = policy(
        "deny",
        PolicyAction::Deny,
        vec![
            from(&[]),
            PolicyRule {
                number: 1,
                ..from(&["a/sa/y"])
            },
        ],
    );
    let guard = guard(Mode::Permissive, vec![allow, deny.clone()]);
    assert!(decide(&guard, Some(&id("a/sa/x")), 80, None).allowed);
    let refused = decide(&guard, Some(&id("a/sa/y")), 80, None);
    let expected = Decider::Rule {
        policy: &deny.name,
        rule: 1,
    };
    assert_eq!((refused.allowed, refused.by), (false, expected));
    assert_eq!(
        refused.by.to_string(),
        "AuthorizationPolicy a/deny rules[1]"
    );
    let nobody = decide(&guard, Some(&id("a/sa/z")), 80, None);
    assert_eq!(nobody.by, Decider::NoRuleMatched);
}

/// What is allowed must match to the letter; what is denied, in any reading.
#[test]
fn conditions_on_requests() {
    let conditions = HttpMatch {
        methods: vec!["GET".into()],
        paths: vec![
            PathMatch::Prefix("/admin".into()),
            PathMatch::Exact("/one/two".into()),
        ],
        path_starts: vec!["/st".into()],
        headers: vec![("x".into(), "1".into())],
    };
    let allow = guard(
        Mode::Permissive,
        vec![policy(
            "p",
            PolicyAction::Allow,
            vec![about(conditions.clone())],
        )],
    );
    let deny = guard(
        Mode::Permissive,
        vec![policy("p", PolicyAction::Deny, vec![about(conditions)])],
    );
    let request = |method, path, fields: &[(&'static str, &'static str)]| Request {
        method,
        path,
        query: "",
        fields: fields.to_vec(),
    };
    for (request, allowed, denied) in [
        (request("GET", "/admin", &[("x", "1")]), true, true),
        (request("GET", "/admin/a", &[("x", "1")]), true, true),
        (request("GET", "/one/two", &[("x", "1")]), true, true),
        (request("GET", "/one/two/", &[("x", "1")]), false, false),
        (request("GET", "/adminx", &[("x", "1")]), false, false),
        (request("GET", "/admin;v=1", &[("x", "1")]), false, true),
        (request("GET", "/admin%3Bv/a", &[("x", "1")]), false, true),
        (request("GET", "/one;x/two;", &[("x", "1")]), false, true),
        (request("GET", "/start/x", &[("x", "1")]), true, true),
        (request("get", "/admin", &[("x", "1")]), false, true),
        (request("POST", "/admin", &[("x", "1")]), false, false),
        (request("GET", "/admin", &[]), false, false),
        (request("GET", "/admin", &[("x", "2")]), false, false),
        (
            request("GET", "/admin", &[("x", "2"), ("x", "1")]),
            false,
            true,
        ),
        (request("GET", "/admin", &[("x", "2 , 1")]), false, true),
        (request("GET", "/admin", &[("y", "1")]), false, false),
    ] {
        let said = decide(&allow, None, 80, Some(&request));
        assert_eq!(said.allowed, allowed, "allow {request:?}");
        let unmet = unmet(&allow.policies[0].rules[0], &request);
        assert_eq!(unmet.count() == 0, allowed, "{unmet:?} {request:?}");
        let said = decide(&deny, None, 80, Some(&request));
        assert_eq!(!said.allowed, denied, "deny {request:?}");
    }
    // What cannot be judged is refused.
    assert!(!decide(&allow, None, 80, None).allowed);
    assert!(!decide(&deny, None, 80, None).allowed);
    assert!(deny.looks_at_requests(80) && deny.looks_at_paths());
}

#[test]
fn a_value_with_commas_may_come_in_several_lines() {
    let conditions = HttpMatch {
        headers: vec![("x".into(), "1, 2".into())],
        ..HttpMatch::default()
    };
    let allow = policy("p", PolicyAction::Allow, vec![about(conditions)]);
    let guard = guard(Mode::Permissive, vec![allow]);
    for (fields, allowed) in [
        (vec![("x", "1"), ("x", "2")], true),
        (vec![("x", "1, 2")], true),
        (vec![("x", "1, 2"), ("x", "3")], false),
        (vec![("x", "1")], false),
    ] {
        let request = Request { fields, ..get("/") };
        assert_eq!(decide(&guard, None, 80, Some(&request)).allowed, allowed);
    }
}

#[test]
fn without_all_its_policies_a_workload_serves_nobody() {
    let mut mesh = crate::Mesh::default();
    let mut workload = crate::Workload {
        name: crate::WorkloadName::parse("a/w").unwrap(),
        labels: Default::default(),
        service_account: crate::ServiceAccountName::parse("a/default").unwrap(),
        address: [127, 0, 0, 1].into(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: vec![PolicyName::parse("TrafficTarget a/p").unwrap()],
        probes: vec![Probe {
            port: 80,
            path: None,
            query: String::new(),
        }],
        command: None,
    };
    let guard = Guard::new(&mesh, &workload);
    assert!(!guard.is_open());
    let said = decide(&guard, Some(&id("a/sa/x")), 80, None);
    assert_eq!((said.allowed, said.by), (false, Decider::PolicyMissing));
    assert_eq!(
        guard.may_connect(None, 80),
        Connect::Refused(Decider::PolicyMissing)
    );
    mesh.policies.push(Arc::new(Policy {
        name: workload.policies[0].clone(),
        action: PolicyAction::Allow,
        dry_run: true,
        rules: Vec::new(),
    }));
    let said = Guard::new(&mesh, &workload);
    let said = decide(&said, None, 80, None);
    assert!(said.allowed && said.would_differ());
    workload.policies.clear();
    assert!(Guard::new(&mesh, &workload).is_open());
}

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

/// What a rule says, in words.
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
        .filter(|(name, _)| *name == "x")
        .map(|(_, value)| *value)
        .collect();
    let mut values = match lines.is_empty() {
        true => vec![],
        false => vec![lines.join(", ")],
    };
    if deny {
        paths.push(without.join("/"));
        methods.push(request.method.to_uppercase());
        for line in lines {
            values.push(line.to_owned());
            values.extend(line.split(',').map(|element| element.trim().to_owned()));
        }
    }
    (http.methods.is_empty() || methods.iter().any(|m| http.methods.contains(m)))
        && (http.paths.is_empty()
            || paths
                .iter()
                .any(|path| http.paths.iter().any(|wanted| wanted.matches(path))))
        && http.headers.iter().all(|(_, value)| values.contains(value))
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

    /// A connection is refused only where everything on it would be; bytes pass only where a flow
    /// of them is allowed; and a rule that refuses a caller outright does so at once.
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

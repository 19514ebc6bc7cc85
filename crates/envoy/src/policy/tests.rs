//! The filters against the decision of a node's proxy.

mod evaluated;

use std::sync::Arc;

use heddle_model::{
    Access, Guard, HttpAccess, HttpMatch, Mesh, Mode, PathMatch, Policy, PolicyAction, PolicyName,
    PolicyRule, Proxy, Qos, ServiceAccountName, SourceNamespace, Sources, SpiffeId, TrustDomain,
    Workload, WorkloadName,
};
use heddle_wire::http1::path::{Canonical, canonicalise};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use evaluated::{Request, allows, is_accepted};

const PORTS: [u16; 2] = [80, 81];
const PATHS: [&str; 7] = ["/", "/a", "/a/b", "/ab", "/a;x/b", "/a%3Bx", "/a/"];
const LINES: [&str; 6] = ["v1", "V1", "v1, w", "\"v1\"; q=1", "w", ""];

fn id(account: &str) -> SpiffeId {
    let account = ServiceAccountName::parse(account).expect("a name");
    SpiffeId::workload(TrustDomain::default(), account)
}

fn ids() -> impl Strategy<Value = SpiffeId> {
    select(vec!["a/x", "a/y", "b/x", "ab/x"]).prop_map(id)
}

fn sources() -> impl Strategy<Value = Sources> {
    let namespace = select(vec!["a", "b"]).prop_map(|name| SourceNamespace {
        trust_domain: TrustDomain::default(),
        namespace: heddle_model::Namespace::parse(name).expect("a name"),
    });
    (vec(ids(), 0..3), vec(namespace, 0..2)).prop_map(|(mut identities, mut namespaces)| {
        identities.sort();
        identities.dedup();
        namespaces.sort();
        namespaces.dedup();
        Sources {
            identities,
            namespaces,
        }
    })
}

fn conditions() -> impl Strategy<Value = HttpMatch> {
    let path = select(vec!["/a", "/a/b"]);
    let path = (path, any::<bool>()).prop_map(|(path, is_exact)| match is_exact {
        true => PathMatch::Exact(path.to_owned()),
        false => PathMatch::Prefix(path.to_owned()),
    });
    let method = select(vec!["GET", "POST"]).prop_map(str::to_owned);
    let header = option::of(select(vec!["v1", "v1, w", "w"]));
    (vec(method, 0..2), vec(path, 0..2), any::<bool>(), header)
        .prop_map(|(methods, paths, has_start, header)| {
            let value = |value: &str| ("x-r".to_owned(), value.to_owned());
            HttpMatch {
                methods,
                paths,
                path_starts: has_start.then(|| "/a".to_owned()).into_iter().collect(),
                headers: header.map(value).into_iter().collect(),
            }
        })
        .prop_filter("at least one condition", |http| {
            *http != HttpMatch::default()
        })
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let ports = select(vec![vec![], vec![80], vec![80, 81]]);
    let rule = (option::of(sources()), ports, option::of(conditions()));
    let rule = rule.prop_map(|(sources, ports, http)| PolicyRule {
        number: 0,
        sources,
        ports,
        http,
    });
    let policy = (any::<bool>(), any::<bool>(), vec(rule, 1..3));
    vec(policy, 0..3).prop_map(|policies| {
        let policies = policies.into_iter().enumerate();
        let policy = |(number, (is_deny, dry_run, rules))| Policy {
            name: PolicyName::parse(&format!("AuthorizationPolicy a/p{number}")).expect("a name"),
            action: match is_deny {
                true => PolicyAction::Deny,
                false => PolicyAction::Allow,
            },
            dry_run: dry_run && number == 2,
            rules,
        };
        policies.map(policy).collect()
    })
}

fn guard(policies: Vec<Policy>, mode: Mode) -> Guard {
    let workload = Workload {
        name: WorkloadName::new("a", "w").expect("a name"),
        labels: Default::default(),
        service_account: ServiceAccountName::parse("a/w").expect("a name"),
        address: [10, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode,
        policies: policies.iter().map(|policy| policy.name.clone()).collect(),
        probes: vec![Probe {
            port: 80,
            path: Some("/healthy".to_owned()),
            query: "q".to_owned(),
        }],
        qos: Qos::default(),
        proxy: Proxy::Envoy { lazy: false },
        command: None,
    };
    let mesh = Mesh {
        policies: policies.into_iter().map(Arc::new).collect(),
        ..Mesh::default()
    };
    Guard::new(&mesh, &workload)
}

fn decision(guard: &Guard, request: &Request, port: u16) -> bool {
    let headers = &request.headers;
    let fields = |each: &mut dyn FnMut(&[u8], &[u8])| {
        for (name, value) in headers {
            each(name.as_bytes(), value.as_bytes());
        }
    };
    let access = Access {
        caller: request.caller.as_ref(),
        port,
        http: Some(HttpAccess {
            method: request.method.as_bytes(),
            path: request.path.as_bytes(),
            query: request.query.as_bytes(),
            is_bare: true,
            fields,
        }),
    };
    guard.decide(&access).allowed
}

fn requests() -> impl Strategy<Value = Request> {
    let method = select(vec!["GET", "get", "POST"]);
    let lines = vec(select(LINES.to_vec()), 0..2);
    (option::of(ids()), method, select(PATHS.to_vec()), lines).prop_map(
        |(caller, method, path, lines)| Request {
            caller,
            method: method.to_owned(),
            path: path.to_owned(),
            query: String::new(),
            headers: lines
                .into_iter()
                .map(|line| ("x-r".to_owned(), line.to_owned()))
                .collect(),
        },
    )
}

fn callers(request: &Request) -> Callers {
    match request.caller {
        Some(_) => Callers::Proven,
        None => Callers::Anonymous,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    #[test]
    fn an_envoy_judges_requests_as_a_node_does(
        policies in policies(), strict in any::<bool>(), request in requests(), port in select(PORTS.to_vec())
    ) {
        let guard = guard(policies, if strict { Mode::Strict } else { Mode::Permissive });
        let filters = http(&guard, port, callers(&request), &Roles::default());
        prop_assert_eq!(allows(&filters, &request), decision(&guard, &request, port));
    }

    #[test]
    fn an_envoy_accepts_the_callers_of_bytes_that_a_node_accepts(
        policies in policies(), caller in ids(), port in select(PORTS.to_vec())
    ) {
        let guard = guard(policies, Mode::Strict);
        let accepted = accepted::identities(&guard, port, &Roles::default());
        let decision = guard.decide(&Access::flow(Some(&caller), port));
        prop_assert_eq!(is_accepted(&accepted, &caller), decision.allowed);
    }
}

/// The path as an Envoy forwards it, where a rule is about paths; `None` if it refuses it.
fn forwarded_path(raw: &str) -> Option<String> {
    let upper = raw.to_ascii_uppercase();
    if upper.contains("%2F") || upper.contains("%5C") {
        return None;
    }
    let mut decoded = String::new();
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let byte = after
            .get(..2)
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        let plain = byte.map(char::from);
        let is_plain = |char: &char| char.is_ascii_alphanumeric() || "-._~".contains(*char);
        match plain.filter(is_plain) {
            Some(char) => {
                decoded.push(char);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    let decoded = decoded.replace('\\', "/");
    let mut segments: Vec<&str> = Vec::new();
    let mut all = decoded.split('/').skip(1).peekable();
    while let Some(segment) = all.next() {
        let is_last = all.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                segments.extend(is_last.then_some(""));
            }
            "" if !is_last => {}
            segment => segments.push(segment),
        }
    }
    Some(format!("/{}", segments.join("/")))
}

fn odd_paths() -> impl Strategy<Value = String> {
    let pieces = [
        "/", "a", "b", "..", ".", ";", "%2e", "%2E", "%3b", "%3B", "%61", "%5B", "%5b", "[",
        "%c3%BC", "%C3%BC", "%", "%0", "%00", "%7f", "\\", "%2f", "x", "//",
    ];
    vec(select(pieces.to_vec()), 0..8).prop_map(|pieces| format!("/{}", pieces.concat()))
}

fn path_rules() -> impl Strategy<Value = Vec<Policy>> {
    let path = select(vec!["/a", "/a/b", "/%5B", "/a/%C3%BC", "/x"]);
    let rule = (path, 0..3, any::<bool>()).prop_map(|(path, kind, is_deny)| {
        let mut http = HttpMatch::default();
        let path = path.to_owned();
        match kind {
            0 => http.paths.push(PathMatch::Exact(path)),
            1 => http.paths.push(PathMatch::Prefix(path)),
            _ => http.path_starts.push(path),
        }
        let rule = PolicyRule {
            number: 0,
            sources: None,
            ports: Vec::new(),
            http: Some(http),
        };
        (is_deny, rule)
    });
    vec(rule, 1..3).prop_map(|rules| {
        let policy = |(number, (is_deny, rule))| Policy {
            name: PolicyName::parse(&format!("AuthorizationPolicy a/p{number}")).expect("a name"),
            action: match is_deny {
                true => PolicyAction::Deny,
                false => PolicyAction::Allow,
            },
            dry_run: false,
            rules: vec![rule],
        };
        rules.into_iter().enumerate().map(policy).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    #[test]
    fn an_envoy_lets_no_path_through_that_a_node_refuses(policies in path_rules(), raw in odd_paths()) {
        let Some(path) = forwarded_path(&raw) else { return Ok(()) };
        let guard = guard(policies, Mode::Permissive);
        let mut request = Request {
            caller: Some(id("a/x")),
            method: "GET".to_owned(),
            path,
            query: String::new(),
            headers: Vec::new(),
        };
        let filters = http(&guard, 80, Callers::Proven, &Roles::default());
        if !allows(&filters, &request) {
            return Ok(());
        }
        // What the workload gets, in the form in which a node judges it.
        let mut canonical = Vec::new();
        let form = canonicalise(request.path.as_bytes(), &mut canonical, true);
        prop_assert!(form.is_ok(), "{} is let through", request.path);
        if form == Ok(Canonical::Rewritten) {
            request.path = String::from_utf8(canonical).expect("text");
        }
        prop_assert!(decision(&guard, &request, 80), "{} is let through", request.path);
    }
}

#[test]
fn paths_that_were_seen_to_evade_a_rule_are_refused() {
    let deny = |path: &str| {
        let http = HttpMatch {
            paths: vec![PathMatch::Prefix(path.to_owned())],
            ..HttpMatch::default()
        };
        let policy = Policy {
            name: PolicyName::parse("AuthorizationPolicy a/p").expect("a name"),
            action: PolicyAction::Deny,
            dry_run: false,
            rules: vec![PolicyRule {
                number: 0,
                sources: None,
                ports: Vec::new(),
                http: Some(http),
            }],
        };
        guard(vec![policy], Mode::Permissive)
    };
    let is_allowed = |denied: &str, path: &str| {
        let mut request = asserting(Some("a/x"), "a/x");
        request.headers.clear();
        request.path = path.to_owned();
        let filters = http(&deny(denied), 80, Callers::Proven, &Roles::default());
        allows(&filters, &request)
    };
    for (denied, path) in [
        ("/admin", "/..;/admin"),
        ("/admin", "/.;/admin"),
        ("/admin", "/;x/admin"),
        ("/admin", "/%3bx/admin"),
        ("/admin", "/admin%00"),
        ("/admin", "/x%"),
        ("/caf%C3%A9", "/caf%c3%a9"),
        ("/a%5Bb", "/a[b"),
    ] {
        assert!(
            !is_allowed(denied, path),
            "{path} evades a rule for {denied}"
        );
    }
    for path in [
        "/a;x/b",
        "/a/;x",
        "/.well-known/x",
        "/a..b/c",
        "/...;x/y",
        "/100%25",
        "/",
    ] {
        assert!(is_allowed("/admin", path), "{path} is refused");
    }
}

fn roles() -> Roles {
    Roles {
        gateways: [ServiceAccountName::parse("mesh/gateway").expect("a name")].into(),
        lazy: [ServiceAccountName::parse("a/x").expect("a name")].into(),
        ..Roles::default()
    }
}

fn allow(account: &str) -> Guard {
    let rule = PolicyRule {
        number: 0,
        sources: Some(Sources {
            identities: vec![id(account)],
            namespaces: Vec::new(),
        }),
        ports: Vec::new(),
        http: None,
    };
    let policy = Policy {
        name: PolicyName::parse("AuthorizationPolicy a/p").expect("a name"),
        action: PolicyAction::Allow,
        dry_run: false,
        rules: vec![rule],
    };
    guard(vec![policy], Mode::Permissive)
}

fn asserting(caller: Option<&str>, asserted: &str) -> Request {
    Request {
        caller: caller.map(id),
        method: "GET".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: vec![("x-heddle-caller".to_owned(), id(asserted).to_string())],
    }
}

#[test]
fn only_a_gateway_asserts_callers_and_only_lazy_ones() {
    for (policy, caller, asserted, expected) in [
        // A lazy caller through the gateway.
        ("a/x", Some("mesh/gateway"), "a/x", true),
        // The policy is about another one.
        ("a/y", Some("mesh/gateway"), "a/x", false),
        // One that is not lazy.
        ("a/y", Some("mesh/gateway"), "a/y", false),
        ("mesh/gateway", Some("mesh/gateway"), "a/y", false),
        // The gateway is allowed itself, not those that it forwards.
        ("mesh/gateway", Some("mesh/gateway"), "a/x", false),
        // Pods that claim to be a gateway, or another account.
        ("a/x", Some("a/y"), "a/x", false),
        ("a/y", Some("a/y"), "a/x", false),
        ("a/x", Some("a/x"), "a/x", false),
        ("a/x", None, "a/x", false),
    ] {
        let request = asserting(caller, asserted);
        let filters = http(&allow(policy), 80, callers(&request), &roles());
        let shown = format!("{policy} allowed, {caller:?} asserts {asserted}");
        assert_eq!(allows(&filters, &request), expected, "{shown}");
    }
    // Where there are no gateways, no assertion is believed.
    let filters = http(&allow("a/x"), 80, Callers::Proven, &Roles::default());
    assert!(!allows(&filters, &asserting(Some("a/x"), "a/x")));
    // Without an assertion each is what it has proven.
    for (caller, expected) in [("a/x", true), ("mesh/gateway", false)] {
        let mut request = asserting(Some(caller), "a/x");
        request.headers.clear();
        let filters = http(&allow("a/x"), 80, Callers::Proven, &roles());
        assert_eq!(allows(&filters, &request), expected, "{caller}");
    }
}

#[test]
fn a_gateway_may_send_the_bytes_of_lazy_callers_that_may_send_them() {
    for (policy, expected) in [("a/x", true), ("a/y", false)] {
        let accepted = accepted::identities(&allow(policy), 80, &roles());
        assert_eq!(is_accepted(&accepted, &id("mesh/gateway")), expected);
    }
}

#[test]
fn a_health_check_needs_no_identity() {
    let guard = allow("a/x");
    let mut request = asserting(None, "a/x");
    request.headers.clear();
    request.path = "/healthy".to_owned();
    request.query = "q".to_owned();
    let judged = |request: &Request| {
        let filters = http(&guard, 80, Callers::Anonymous, &roles());
        allows(&filters, request)
    };
    assert!(judged(&request));
    for (name, value) in [("content-length", "3"), ("upgrade", "websocket")] {
        let mut with_body = request.clone();
        with_body.headers = vec![(name.to_owned(), value.to_owned())];
        assert!(!judged(&with_body), "{name}");
    }
    request.query = "other".to_owned();
    assert!(!judged(&request));
}

#[test]
fn an_expression_for_anything_else_matches_all_but_the_text() {
    for text in ["v1", "a.b", "^$", "", "-]"] {
        let other = ::regex::Regex::new(&format!("^(?:{})$", regex::anything_but(text)));
        let other = other.expect("an expression");
        assert!(!other.is_match(text), "{text}");
        for other_text in ["v", "v2", "v1 ", "axb", "x", "-", "a.b.c"] {
            assert_eq!(
                other.is_match(other_text),
                other_text != text,
                "{text} {other_text}"
            );
        }
    }
}

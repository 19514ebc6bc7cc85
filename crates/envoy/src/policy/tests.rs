//! The filters against the decision of a node's proxy.

mod evaluated;

use std::sync::Arc;

use heddle_model::{
    Access, Guard, HttpAccess, HttpMatch, Mesh, Mode, PathMatch, Policy, PolicyAction, PolicyName,
    PolicyRule, Proxy, Qos, ServiceAccountName, SourceNamespace, Sources, SpiffeId, TrustDomain,
    Workload, WorkloadName,
};
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
fn a_gateway_asserts_lazy_callers_and_no_others_and_no_one_else_does() {
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
        // Pods that claim to be a gateway, or somebody else.
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
    for (name, value) in [("content-length", "3"), ("transfer-encoding", "chunked")] {
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

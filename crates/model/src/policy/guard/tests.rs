//! The decision, tested by tables for readers, and in [`oracle`] against another implementation of the same rules.

use super::*;
use crate::PathMatch;
use crate::policy::{HttpMatch, Sources};

mod oracle;

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
            is_bare: true,
            fields: |line: &mut dyn FnMut(&[u8], &[u8])| {
                for (name, value) in &request.fields {
                    line(name.as_bytes(), value.as_bytes());
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
        move |line: &mut dyn FnMut(&[u8], &[u8])| {
            for (name, value) in &fields {
                line(name.as_bytes(), value.as_bytes());
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
                is_bare: true,
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
    let empty = policy("empty", PolicyAction::Allow, vec![]);
    let guard = guard(Mode::Strict, vec![empty]);
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
        // A TCP health check does not allow sending anything.
        (80, None),
        (80, Some(get("/"))),
    ] {
        assert!(!decide(&guard, None, port, request.as_ref()).allowed);
    }
    // A caller with an identity gets no exception for health checks.
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
    let unmatched = decide(&guard, Some(&id("a/sa/z")), 80, None);
    assert_eq!(unmatched.by, Decider::NoRuleMatched);
}

/// `Allow` conditions match exactly, `Deny` conditions in any interpretation.
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
    // Traffic that cannot be evaluated is refused.
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

/// Variants that servers read as `x-role: admin` are denied; only the exact header is allowed.
#[test]
fn spellings_of_a_header_are_denied_and_not_allowed() {
    let conditions = HttpMatch {
        headers: vec![("x-role".into(), "admin".into())],
        ..HttpMatch::default()
    };
    let with = |action| {
        let rules = vec![about(conditions.clone())];
        guard(Mode::Permissive, vec![policy("p", action, rules)])
    };
    let (allow, deny) = (with(PolicyAction::Allow), with(PolicyAction::Deny));
    for (fields, allowed, denied) in [
        (vec![("x-role", "admin")], true, true),
        (vec![("X-ROLE", "admin")], true, true),
        (vec![("x_role", "admin")], false, true),
        (vec![("X.Role", "admin")], false, true),
        (vec![("x~role", "admin")], false, true),
        (vec![("x-role", "Admin")], false, true),
        (vec![("x-role", "\"admin\"")], false, true),
        (vec![("x-role", "\"ad\\min\"")], false, true),
        (vec![("x-role", "admin;level=1")], false, true),
        (vec![("x-role", "\"admin\" ; q=0.5")], false, true),
        (vec![("x-role", "user, admin")], false, true),
        (vec![("x-role", "user,\t\"ADMIN\";v=1,guest")], false, true),
        (vec![("x-role", "user"), ("x-role", "admin")], false, true),
        (vec![("x-role", "user"), ("X_Role", "admin")], false, true),
        (vec![("x-role", "admin"), ("X_Role", "user")], false, true),
        (vec![("x-role", "administrator")], false, false),
        (vec![("x-role", "user")], false, false),
        (vec![("xrole", "admin")], false, false),
        (vec![("x-role", "")], false, false),
        (vec![], false, false),
    ] {
        let request = Request { fields, ..get("/") };
        let said = decide(&allow, None, 80, Some(&request));
        assert_eq!(said.allowed, allowed, "allow {request:?}");
        let said = decide(&deny, None, 80, Some(&request));
        assert_eq!(!said.allowed, denied, "deny {request:?}");
    }
    // Cookies and parameters, which parsers treat as equal with and without quotes.
    let cookie = HttpMatch {
        headers: vec![("cookie".into(), "role=admin".into())],
        ..HttpMatch::default()
    };
    let rules = vec![about(cookie)];
    let cookies = guard(
        Mode::Permissive,
        vec![policy("p", PolicyAction::Deny, rules)],
    );
    for (value, denied) in [
        ("role=admin", true),
        ("role=\"admin\"", true),
        ("role= admin", true),
        ("a=b; role=\"admin\"", true),
        ("role=administrator", false),
        ("a=role=admin", false),
    ] {
        let fields = vec![("Cookie", value)];
        let request = Request { fields, ..get("/") };
        let said = decide(&cookies, None, 80, Some(&request));
        assert_eq!(!said.allowed, denied, "deny {request:?}");
    }
    for (name, looks) in [("X_Role", true), ("x.role", true), ("x-rule", false)] {
        assert_eq!(deny.looks_at_header(name.as_bytes()), looks, "{name}");
    }
}

/// A value that is a list is denied if all of its elements are present, in any order.
#[test]
fn a_list_is_denied_by_its_elements() {
    let conditions = HttpMatch {
        headers: vec![("x".into(), "a, \"B\"".into())],
        ..HttpMatch::default()
    };
    let deny = policy("p", PolicyAction::Deny, vec![about(conditions)]);
    let guard = guard(Mode::Permissive, vec![deny]);
    for (fields, denied) in [
        (vec![("x", "a, \"B\"")], true),
        (vec![("x", "b;q=1,A")], true),
        (vec![("x", "b"), ("X", "c"), ("x", "a")], true),
        (vec![("x", "a")], false),
        (vec![("y", "a, b")], false),
    ] {
        let request = Request { fields, ..get("/") };
        let said = decide(&guard, None, 80, Some(&request));
        assert_eq!(!said.allowed, denied, "{request:?}");
    }
}

#[test]
fn without_all_its_policies_a_workload_serves_no_caller() {
    let mut mesh = crate::Mesh::default();
    let mut workload = crate::Workload {
        qos: Default::default(),
        name: crate::WorkloadName::parse("a/w").unwrap(),
        labels: Default::default(),
        service_account: crate::ServiceAccountName::parse("a/default").unwrap(),
        address: [127, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
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
        proxy: crate::Proxy::Node,
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

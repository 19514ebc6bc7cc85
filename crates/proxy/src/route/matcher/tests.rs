use super::*;

fn rule() -> RouteMatch {
    RouteMatch {
        path: PathMatch::Prefix(String::new()),
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    }
}

type Lines = &'static [(&'static str, &'static str)];

fn matches(rule: &RouteMatch, method: &str, path: &str, query: &str, lines: Lines) -> bool {
    Matcher::new(rule).matches(&Request {
        method: method.as_bytes(),
        path: path.as_bytes(),
        query: query.as_bytes(),
        fields: |name: &[u8], each: &mut dyn FnMut(&[u8])| {
            for (_, value) in lines
                .iter()
                .filter(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name))
            {
                each(value.as_bytes());
            }
        },
    })
}

#[test]
fn paths_match_as_the_model_says() {
    let paths = ["/", "/a", "/a/", "/a/b", "/ab", "/b"];
    let rules = [
        PathMatch::Prefix(String::new()),
        PathMatch::Prefix("/a".into()),
        PathMatch::Exact("/a".into()),
        PathMatch::Exact("/a/".into()),
        PathMatch::Exact("/".into()),
    ];
    for path in rules {
        let rule = RouteMatch {
            path: path.clone(),
            ..rule()
        };
        for request in paths {
            assert_eq!(
                matches(&rule, "GET", request, "", &[]),
                path.matches(request),
                "{path:?} on {request}"
            );
        }
    }
}

#[test]
fn methods_are_compared_by_case() {
    let rule = RouteMatch {
        method: Some("GET".into()),
        ..rule()
    };
    assert!(matches(&rule, "GET", "/", "", &[]));
    assert!(!matches(&rule, "get", "/", "", &[]));
    assert!(!matches(&rule, "POST", "/", "", &[]));
}

#[test]
fn header_names_are_compared_without_case_and_values_by_byte() {
    let rule = RouteMatch {
        headers: vec![("x-user".into(), "ann".into())],
        ..rule()
    };
    assert!(matches(&rule, "GET", "/", "", &[("X-User", "ann")]));
    assert!(!matches(&rule, "GET", "/", "", &[("X-User", "Ann")]));
    assert!(!matches(&rule, "GET", "/", "", &[("X-User", "annie")]));
    assert!(!matches(&rule, "GET", "/", "", &[]));
}

#[test]
fn a_repeated_header_is_its_lines_joined() {
    let rule = RouteMatch {
        headers: vec![("x-user".into(), "ann, bob".into())],
        ..rule()
    };
    assert!(matches(
        &rule,
        "GET",
        "/",
        "",
        &[("x-user", "ann"), ("x-user", "bob")]
    ));
    assert!(matches(&rule, "GET", "/", "", &[("x-user", "ann, bob")]));
    assert!(!matches(&rule, "GET", "/", "", &[("x-user", "ann")]));
    assert!(!matches(
        &rule,
        "GET",
        "/",
        "",
        &[("x-user", "bob"), ("x-user", "ann")]
    ));
}

#[test]
fn the_first_query_parameter_of_a_name_counts() {
    let rule = RouteMatch {
        query: vec![("v".into(), "2 b".into())],
        ..rule()
    };
    assert!(matches(&rule, "GET", "/", "v=2%20b", &[]));
    assert!(matches(&rule, "GET", "/", "a=1&v=2+b&v=3", &[]));
    assert!(matches(&rule, "GET", "/", "%76=2%20b", &[]));
    for query in [
        "",
        "v",
        "v=",
        "v=2",
        "v=3&v=2%20b",
        "w=2%20b",
        "v=2%2",
        "vv=2%20b",
    ] {
        assert!(!matches(&rule, "GET", "/", query, &[]), "{query}");
    }
}

#[test]
fn a_condition_on_host_is_canonical_like_the_host_itself() {
    for written in ["Admin.Internal", "admin.internal.", "admin.internal:80"] {
        let rule = RouteMatch {
            headers: vec![("host".into(), written.into())],
            ..rule()
        };
        let host: Lines = &[("host", "admin.internal")];
        assert!(matches(&rule, "GET", "/", "", host), "{written}");
    }
}

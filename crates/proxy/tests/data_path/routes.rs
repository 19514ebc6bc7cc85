//! Effects of routes, observed at the client and at the endpoint.

use std::sync::Arc;

use crate::support::{
    Bed, Client, GET, PREFACE, Upstream, echo_entry, field, forward, get, mesh, mirror, open,
    plain, prefix, rule, serve, service, speaking, to, to_echo,
};
use heddle_model::{
    AppProtocol, Backend, BackendTarget, Filters, HeaderEdits, Mesh, Outcome, PathRewrite,
    Redirect, Rewrite, RouteRule, WorkloadName,
};
use heddle_proxy::Settings;

/// A redirect that changes nothing.
const NOWHERE: Redirect = Redirect {
    scheme: None,
    hostname: None,
    path: None,
    port: None,
    status: 302,
};

fn bed(rules: Vec<RouteRule>) -> Bed {
    Bed::of(&mesh(&[mirror()], Some(rules)))
}

fn seen(client: &mut Client, target: &str) -> String {
    let response = client.ask(get(target));
    assert_eq!(response.status(), 200, "{}", response.head);
    response.text()
}

#[test]
fn a_request_that_no_rule_matches_is_a_404() {
    let bed = bed(vec![to_echo("/a", Filters::default())]);
    let mut client = bed.client();
    assert!(seen(&mut client, "/a/b").starts_with("GET /a/b "));
    assert_eq!(client.ask(get("/b")).status(), 404);
    bed.expect(
        "heddle_http_requests_total",
        &["test/route", "status=\"2"],
        1.0,
    );
}

#[test]
fn a_share_without_a_backend_is_a_500() {
    let lost = Backend {
        weight: 1,
        target: BackendTarget::Unresolved {
            reason: "gone".into(),
        },
        filters: Filters::default(),
    };
    let bed = bed(vec![
        plain("/lost", forward(vec![lost])),
        plain("/none", forward(vec![])),
        plain("/zero", forward(vec![to("test/echo", 0)])),
    ]);
    let mut client = bed.client();
    for path in ["/lost", "/none", "/zero"] {
        assert_eq!(client.ask(get(path)).status(), 500, "{path}");
    }
}

#[test]
fn requests_are_split_by_weight() {
    let one = service("test/one", &[serve(|_| "one".into())]);
    let nine = service("test/nine", &[serve(|_| "nine".into())]);
    let rules = vec![plain(
        "",
        forward(vec![to("test/one", 1), to("test/nine", 9)]),
    )];
    let mut mesh = mesh(&[], Some(rules));
    mesh.services.extend([nine.into(), one.into()]);
    let bed = Bed::of(&mesh);
    let mut client = bed.client();
    let ones = (0..2000)
        .filter(|_| client.ask(get("/")).body == b"one")
        .count();
    // Ten standard deviations around the mean of 200.
    assert!((66..334).contains(&ones), "{ones} of 2000");
}

#[test]
fn a_redirect_says_where() {
    let redirect = Redirect {
        scheme: Some("https".into()),
        hostname: Some("books.example".into()),
        path: Some(PathRewrite::ReplacePrefix("/new".into())),
        ..NOWHERE
    };
    let bed = bed(vec![plain("/old", Outcome::Redirect(redirect))]);
    let mut client = bed.client();
    for _ in 0..2 {
        let response = client.ask(get("/old/page?x=1"));
        assert_eq!(response.status(), 302);
        assert_eq!(
            response.field("location"),
            Some("https://books.example/new/page?x=1")
        );
    }
}

#[test]
fn a_redirect_is_counted_once() {
    let redirect = Redirect {
        hostname: Some("books.example".into()),
        ..NOWHERE
    };
    let bed = bed(vec![
        plain("/old", Outcome::Redirect(redirect)),
        to_echo("", Filters::default()),
    ]);
    let mut client = bed.client();
    for _ in 0..3 {
        assert_eq!(client.ask(get("/old")).status(), 302);
    }
    // Once a later request is counted, the earlier ones are, too.
    assert_eq!(client.ask(get("/new")).status(), 200);
    bed.expect("heddle_http_requests_total", &["status=\"2"], 1.0);
    assert_eq!(
        bed.metric("heddle_http_requests_total", &["status=\"3"]),
        3.0
    );
    assert_eq!(bed.metric("heddle_requests_active", &[]), 0.0);
}

#[test]
fn a_redirect_names_the_service_to_a_client_that_names_none() {
    let redirect = Redirect {
        path: Some(PathRewrite::ReplaceFull("/new".into())),
        ..NOWHERE
    };
    let bed = bed(vec![plain("", Outcome::Redirect(redirect))]);
    let response = bed.ask("GET /old HTTP/1.0\r\n\r\n");
    assert_eq!(response.field("location"), Some("http://echo.test/new"));
}

/// A rule that matches a header leads to one response, all other requests to another.
fn on_field(name: &str, value: &str, settings: Settings) -> Bed {
    let mut with = plain("", forward(vec![to("test/match", 1)]));
    with.matcher.headers = vec![(name.into(), value.into())];
    let without = to_echo("", Filters::default());
    let mut mesh = mesh(
        &[serve(|head| format!("other {head}"))],
        Some(vec![with, without]),
    );
    mesh.services
        .push(service("test/match", &[serve(|head| format!("match {head}"))]).into());
    mesh.services
        .sort_by(|one, other| one.name.cmp(&other.name));
    Bed::with(settings, &mesh)
}

/// Whether a request matched the rule, and the head that reached its endpoint.
fn meets(bed: &Bed, request: &str) -> (bool, String) {
    let response = bed.ask(request);
    assert_eq!(response.status(), 200, "{request:?}: {}", response.head);
    let body = response.text();
    let (which, head) = body.split_once(' ').unwrap();
    (which == "match", head.to_owned())
}

#[test]
fn a_rule_on_host_sees_the_host_that_is_forwarded() {
    let bed = on_field("Host", "admin.internal", Settings::default());
    for (request, host) in [
        (
            "GET / HTTP/1.1\r\nHost: admin.internal\r\n\r\n",
            "admin.internal",
        ),
        (
            "GET / HTTP/1.1\r\nHost: ADMIN.internal\r\n\r\n",
            "admin.internal",
        ),
        (
            "GET / HTTP/1.1\r\nHost: admin.internal.\r\n\r\n",
            "admin.internal",
        ),
        (
            "GET / HTTP/1.1\r\nHost: admin.internal:80\r\n\r\n",
            "admin.internal",
        ),
        (
            "GET http://admin.internal/ HTTP/1.1\r\nHost: other\r\n\r\n",
            "admin.internal",
        ),
        (
            "GET http://admin.internal/ HTTP/1.0\r\n\r\n",
            "admin.internal",
        ),
        (
            "GET http://other/ HTTP/1.1\r\nHost: admin.internal\r\n\r\n",
            "other",
        ),
        (
            "GET / HTTP/1.1\r\nHost: admin.internal:81\r\n\r\n",
            "admin.internal:81",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "echo.test"),
    ] {
        let (met, head) = meets(&bed, request);
        assert_eq!(field(&head, "host"), Some(host), "{request:?}");
        assert_eq!(met, host == "admin.internal", "{request:?}");
    }
}

#[test]
fn a_rule_does_not_see_what_the_endpoint_does_not_get() {
    let trusting = Settings {
        trusted_sources: vec!["127.0.0.0/8".parse().unwrap()],
        ..Settings::default()
    };
    for (name, settings, line, met) in [
        ("X-Real-IP", Settings::default(), "X-Real-IP: yes", false),
        ("X_Real_IP", Settings::default(), "X_Real_IP: yes", false),
        ("X-Real-IP", trusting, "X-Real-IP: yes", true),
        ("Keep-Alive", Settings::default(), "Keep-Alive: yes", false),
        (
            "Proxy-Authorization",
            Settings::default(),
            "Proxy-Authorization: yes",
            false,
        ),
        (
            "X-Hop",
            Settings::default(),
            "X-Hop: yes\r\nConnection: close, x-hop",
            false,
        ),
        (
            "X-Hop",
            Settings::default(),
            "X-Hop: yes\r\nConnection: close",
            true,
        ),
        ("Upgrade", Settings::default(), "Upgrade: yes", false),
        (
            "Upgrade",
            Settings::default(),
            "Upgrade: yes\r\nConnection: upgrade",
            true,
        ),
    ] {
        let bed = on_field(name, "yes", settings);
        let request = format!("GET / HTTP/1.1\r\nHost: echo\r\n{line}\r\n\r\n");
        let (was, head) = meets(&bed, &request);
        assert_eq!(was, met, "{line:?}");
        assert_eq!(field(&head, name).is_some(), met, "{line:?}: {head}");
    }
}

#[test]
fn paths_hosts_and_fields_are_rewritten() {
    let filters = Filters {
        request: HeaderEdits {
            set: vec![("X-Set".into(), "new".into())],
            add: vec![("X-Add".into(), "more".into())],
            remove: vec!["x-remove".into()],
        },
        response: HeaderEdits {
            set: vec![("Content-Type".into(), "text/odd".into())],
            ..HeaderEdits::default()
        },
        rewrite: Some(Rewrite {
            hostname: Some("inside".into()),
            path: Some(PathRewrite::ReplacePrefix("/b".into())),
        }),
    };
    let bed = bed(vec![to_echo("/a", filters)]);
    let response = bed.ask(
        "GET /a/c?q=%20 HTTP/1.1\r\nHost: echo\r\nX-Set: old\r\nx-set: older\r\nX-Add: some\r\n\
         X-Remove: gone\r\n\r\n",
    );
    assert_eq!(response.field("content-type"), Some("text/odd"));
    let seen = response.text();
    assert!(seen.starts_with("GET /b/c?q=%20 HTTP/1.1\r\n"), "{seen}");
    assert_eq!(field(&seen, "host"), Some("inside"));
    assert_eq!(field(&seen, "x-forwarded-host"), Some("echo"));
    assert_eq!(seen.matches("X-Set: new").count(), 1);
    assert!(!seen.contains("old"), "{seen}");
    assert!(seen.contains("X-Add: some") && seen.contains("X-Add: more"));
    assert!(!seen.contains("gone"));
}

#[test]
fn a_backends_changes_come_after_those_of_its_rule() {
    let edits = |set: &str, add: &str, remove: &[&str]| HeaderEdits {
        set: vec![("X-Set".into(), set.into())],
        add: vec![("X-Add".into(), add.into())],
        remove: remove.iter().map(|&name| name.into()).collect(),
    };
    let mut backend = to("test/echo", 1);
    backend.filters.request = edits("backend", "backend", &["X-Gone"]);
    let mut filters = Filters {
        request: edits("rule", "rule", &[]),
        ..Filters::default()
    };
    filters.request.add.push(("X-Gone".into(), "rule".into()));
    let bed = bed(vec![rule(prefix(""), forward(vec![backend]), filters)]);
    let seen = seen(&mut bed.client(), "/");
    assert_eq!(seen.matches("X-Set:").count(), 1, "{seen}");
    assert_eq!(field(&seen, "x-set"), Some("backend"));
    assert_eq!(seen.matches("X-Add:").count(), 2);
    assert!(!seen.contains("X-Gone"), "{seen}");
}

#[test]
fn a_path_rule_sees_what_the_endpoint_sees() {
    let bed = bed(vec![
        plain("/admin", forward(vec![])),
        to_echo("", Filters::default()),
    ]);
    for path in [
        "/admin",
        "/%61dmin",
        "//admin",
        "/x/..%2fadmin",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/..;a/admin",
        "/;x/admin",
        "/%3Bx/admin",
        "/x/..%3b/admin",
        "/x/%2e%2e%3Bx/admin",
    ] {
        let status = bed.ask(get(path)).status();
        assert!(
            status == 500 || status == 400,
            "{path} got past the rule: {status}"
        );
    }
}

#[test]
fn without_a_path_rule_encoded_slashes_pass() {
    let bed = Bed::mirrored();
    assert!(seen(&mut bed.client(), "/@scope%2Fname").starts_with("GET /@scope%2Fname "));
}

#[test]
fn a_change_of_configuration_touches_no_connection() {
    let (one, two) = (Upstream::new(), Upstream::new());
    let bed = Bed::new(&[one.address]);
    let mut client = bed.sending(get("/1"));
    let mut first = one.asked();
    // The endpoint of the first request is removed while the request is pending.
    bed.proxy.apply(&Mesh {
        generation: 2,
        ..mesh(&[two.address], None)
    });
    first.answer("one");
    assert_eq!(client.response().body, b"one");
    bed.expect("heddle_worker_config_generation", &[], 2.0);
    client.send(get("/2"));
    let _second = two.answering("two");
    assert_eq!(client.response().body, b"two");
}

#[test]
fn a_route_of_the_callers_namespace_takes_the_place_of_the_services_own() {
    let consumer = service("test/consumer", &[serve(|_| "consumer".into())]);
    let mut mesh = mesh(&[serve(|_| "producer".into())], None);
    mesh.services[0].ports[0].consumer_routes.insert(
        heddle_model::Namespace::parse("shop").unwrap(),
        vec![plain("", forward(vec![to("test/consumer", 1)]))],
    );
    mesh.services.insert(0, consumer.into());
    let bed = Bed::of(&mesh);
    for (id, caller, asked) in [(2, "shop/web", "consumer"), (3, "other/web", "producer")] {
        let caller = WorkloadName::parse(caller).unwrap();
        let address = open(&bed.proxy, id, echo_entry(Some(caller)));
        assert_eq!(Client::connect(address).ask(GET).text(), asked);
    }
    bed.expect(
        "heddle_http_requests_total",
        &["shop/web", "test/echo"],
        1.0,
    );
}

#[test]
fn a_forward_proxy_finds_services_by_name() {
    let bed = Bed::mirrored();
    let mut client = Client::connect(bed.forward_proxy());
    for host in [
        "echo",
        "ECHO",
        "echo.test",
        "echo.test.svc.cluster.local",
        "echo:80",
        "echo.",
    ] {
        let request = format!("GET http://{host}/x HTTP/1.1\r\nHost: elsewhere\r\n\r\n");
        let seen = client.ask(request).text();
        assert!(seen.starts_with("GET /x HTTP/1.1\r\n"), "{seen}");
        assert!(
            !seen.contains("elsewhere"),
            "the target replaces Host: {seen}"
        );
    }
    for (target, reason) in [
        ("http://nowhere/", "unknown_host"),
        ("http://example.com/", "unknown_host"),
        ("http://echo:81/", "unknown_port"),
    ] {
        assert_eq!(client.ask(get(target)).verdict(), (502, reason));
    }
}

#[test]
fn a_forward_proxy_says_that_a_port_carries_bytes_and_where_to_go() {
    for (protocol, reason) in [
        (AppProtocol::Tcp, "port_carries_bytes"),
        (AppProtocol::Tls, "port_carries_bytes"),
        (AppProtocol::Grpc, "protocol_not_supported"),
    ] {
        let bed = Bed::of(&speaking(protocol, &[]));
        let response = Client::connect(bed.forward_proxy()).ask(get("http://echo/"));
        assert_eq!(response.verdict(), (501, reason));
        let text = response.text();
        let says = text.contains("dial its address");
        assert_eq!(says, reason == "port_carries_bytes", "{text}");
        assert!(text.ends_with(&format!("({reason})\n")), "{text}");
    }
}

/// First bytes of clients that try TLS or HTTP/2 through a forward proxy.
#[test]
fn a_forward_proxy_opens_no_tunnel_and_speaks_no_tls_and_no_http2() {
    for (first, verdict) in [
        (
            "CONNECT echo:80 HTTP/1.1\r\nHost: echo:80\r\n\r\n",
            (501, "connect_not_supported"),
        ),
        (&get("https://echo/"), (400, "target_scheme")),
        (PREFACE, (505, "http2_preface")),
    ] {
        for protocol in [AppProtocol::Tls, AppProtocol::Grpc] {
            let upstream = Upstream::new();
            let bed = Bed::of(&speaking(protocol, &[upstream.address]));
            let mut client = Client::connect(bed.forward_proxy());
            assert_eq!(client.ask(first).verdict(), verdict, "{first:?}");
            assert!(upstream.is_quiet(), "{first:?}");
        }
    }
}

#[test]
fn a_routes_time_limit_is_a_504() {
    let upstream = Upstream::new();
    let mut slow = to_echo("", Filters::default());
    let action = Arc::get_mut(&mut slow.action).unwrap();
    action.request_timeout_ms = Some(50);
    let bed = Bed::of(&mesh(&[upstream.address], Some(vec![slow])));
    let mut client = bed.sending(GET);
    let _server = upstream.accept();
    assert_eq!(client.response().verdict(), (504, "request_timeout"));
}

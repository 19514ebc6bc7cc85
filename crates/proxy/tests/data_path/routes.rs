//! What a route does to a request, seen from both ends.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crate::support::{Bed, Client, Upstream, field, mesh, serve, service};
use heddle_model::{
    AppProtocol, Backend, BackendTarget, Filters, HeaderEdits, Mesh, Outcome, PathMatch,
    PathRewrite, Redirect, Rewrite, RouteAction, RouteMatch, RouteRule, ServiceName, WorkloadName,
};
use heddle_proxy::{Entry, Settings};

pub(crate) fn to(service: &str, weight: u32) -> Backend {
    Backend {
        weight,
        target: BackendTarget::Service {
            service: ServiceName::parse(service).unwrap(),
            port: 80,
        },
        filters: Filters::default(),
    }
}

pub(crate) fn rule(path: PathMatch, outcome: Outcome, filters: Filters) -> RouteRule {
    RouteRule {
        name: "test/route".into(),
        rule: 0,
        matcher: RouteMatch {
            path,
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action: Arc::new(RouteAction {
            filters,
            outcome,
            request_timeout_ms: None,
            backend_timeout_ms: None,
        }),
    }
}

pub(crate) fn prefix(prefix: &str) -> PathMatch {
    PathMatch::Prefix(prefix.into())
}

pub(crate) fn forward(backends: Vec<Backend>) -> Outcome {
    Outcome::Forward(backends)
}

fn bed(rules: Vec<RouteRule>) -> Bed {
    Bed::with(
        Settings::default(),
        &mesh(&[serve(|head| head.to_owned())], Some(rules)),
    )
}

fn get(client: &mut Client, target: &str) -> crate::support::Response {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: echo\r\n\r\n"));
    client.response()
}

fn seen(client: &mut Client, target: &str) -> String {
    let response = get(client, target);
    assert_eq!(response.status(), 200, "{}", response.head);
    String::from_utf8(response.body).unwrap()
}

#[test]
fn a_request_that_no_rule_matches_is_a_404() {
    let bed = bed(vec![rule(
        prefix("/a"),
        forward(vec![to("test/echo", 1)]),
        Filters::default(),
    )]);
    let mut client = bed.client();
    assert!(seen(&mut client, "/a/b").starts_with("GET /a/b "));
    assert_eq!(get(&mut client, "/b").status(), 404);
    bed.expect_metric("heddle_http_requests_total", &["test/route", "2xx"], 1.0);
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
        rule(prefix("/lost"), forward(vec![lost]), Filters::default()),
        rule(prefix("/none"), forward(vec![]), Filters::default()),
        rule(
            prefix("/zero"),
            forward(vec![to("test/echo", 0)]),
            Filters::default(),
        ),
    ]);
    let mut client = bed.client();
    for path in ["/lost", "/none", "/zero"] {
        assert_eq!(get(&mut client, path).status(), 500, "{path}");
    }
}

#[test]
fn requests_are_split_by_weight() {
    let one = service("test/one", &[serve(|_| "one".into())]);
    let nine = service("test/nine", &[serve(|_| "nine".into())]);
    let rules = vec![rule(
        prefix(""),
        forward(vec![to("test/one", 1), to("test/nine", 9)]),
        Filters::default(),
    )];
    let mut mesh = mesh(&[], Some(rules));
    mesh.services.extend([nine, one]);
    let bed = Bed::with(Settings::default(), &mesh);
    let mut client = bed.client();
    let ones = (0..2000)
        .filter(|_| get(&mut client, "/").body == b"one")
        .count();
    // Ten standard deviations around 200.
    assert!((66..334).contains(&ones), "{ones} of 2000");
}

#[test]
fn a_redirect_says_where() {
    let redirect = Redirect {
        scheme: Some("https".into()),
        hostname: Some("books.example".into()),
        path: Some(PathRewrite::ReplacePrefix("/new".into())),
        port: None,
        status: 302,
    };
    let bed = bed(vec![rule(
        prefix("/old"),
        Outcome::Redirect(redirect),
        Filters::default(),
    )]);
    let mut client = bed.client();
    for _ in 0..2 {
        let response = get(&mut client, "/old/page?x=1");
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
        scheme: None,
        hostname: Some("books.example".into()),
        path: None,
        port: None,
        status: 302,
    };
    let bed = bed(vec![
        rule(
            prefix("/old"),
            Outcome::Redirect(redirect),
            Filters::default(),
        ),
        rule(
            prefix(""),
            forward(vec![to("test/echo", 1)]),
            Filters::default(),
        ),
    ]);
    let mut client = bed.client();
    for _ in 0..3 {
        assert_eq!(get(&mut client, "/old").status(), 302);
    }
    // What comes after has been counted only when they have.
    assert_eq!(get(&mut client, "/new").status(), 200);
    bed.expect_metric("heddle_http_requests_total", &["2xx"], 1.0);
    assert_eq!(bed.metric("heddle_http_requests_total", &["3xx"]), 3.0);
    assert_eq!(bed.metric("heddle_requests_active", &[]), 0.0);
}

#[test]
fn a_redirect_names_the_service_to_a_client_that_names_none() {
    let redirect = Redirect {
        scheme: None,
        hostname: None,
        path: Some(PathRewrite::ReplaceFull("/new".into())),
        port: None,
        status: 302,
    };
    let bed = bed(vec![rule(
        prefix(""),
        Outcome::Redirect(redirect),
        Filters::default(),
    )]);
    let mut client = bed.client();
    client.send("GET /old HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.field("location"), Some("http://echo.test/new"));
}

/// A rule with a condition on a field leads to one answer, everything else to another.
fn on_field(name: &str, value: &str, settings: Settings) -> Bed {
    let mut with = rule(
        prefix(""),
        forward(vec![to("test/match", 1)]),
        Filters::default(),
    );
    with.matcher.headers = vec![(name.into(), value.into())];
    let without = rule(
        prefix(""),
        forward(vec![to("test/echo", 1)]),
        Filters::default(),
    );
    let mut mesh = mesh(
        &[serve(|head| format!("other {head}"))],
        Some(vec![with, without]),
    );
    mesh.services.push(service(
        "test/match",
        &[serve(|head| format!("match {head}"))],
    ));
    mesh.services
        .sort_by(|one, other| one.name.cmp(&other.name));
    Bed::with(settings, &mesh)
}

/// Whether a request met the condition, and the head that its endpoint saw.
fn meets(bed: &Bed, request: &str) -> (bool, String) {
    let mut client = bed.client();
    client.send(request);
    let response = client.response();
    assert_eq!(response.status(), 200, "{request:?}: {}", response.head);
    let body = String::from_utf8(response.body).unwrap();
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
    let bed = bed(vec![rule(
        prefix("/a"),
        forward(vec![to("test/echo", 1)]),
        filters,
    )]);
    let mut client = bed.client();
    client.send(
        "GET /a/c?q=%20 HTTP/1.1\r\nHost: echo\r\nX-Set: old\r\nx-set: older\r\nX-Add: some\r\n\
         X-Remove: gone\r\n\r\n",
    );
    let response = client.response();
    assert_eq!(response.field("content-type"), Some("text/odd"));
    let seen = String::from_utf8(response.body).unwrap();
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
        rule(prefix("/admin"), forward(vec![]), Filters::default()),
        rule(
            prefix(""),
            forward(vec![to("test/echo", 1)]),
            Filters::default(),
        ),
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
        let mut client = bed.client();
        let status = get(&mut client, path).status();
        assert!(
            status == 500 || status == 400,
            "{path} got past the rule: {status}"
        );
    }
}

#[test]
fn without_a_path_rule_encoded_slashes_pass() {
    let bed = Bed::new(&[serve(|head| head.to_owned())]);
    let mut client = bed.client();
    assert!(seen(&mut client, "/@scope%2Fname").starts_with("GET /@scope%2Fname "));
}

#[test]
fn a_change_of_configuration_touches_no_connection() {
    let (one, two) = (Upstream::new(), Upstream::new());
    let bed = Bed::new(&[one.address]);
    let mut client = bed.client();
    client.send("GET /1 HTTP/1.1\r\nHost: echo\r\n\r\n");
    let mut first = one.accept();
    first.head();
    // While the first request is under way its endpoint leaves the configuration.
    bed.proxy.apply(&Mesh {
        generation: 2,
        ..mesh(&[two.address], None)
    });
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none");
    assert_eq!(client.response().body, b"one");
    while bed.metric("heddle_worker_config_generation", &[]) < 2.0 {
        std::thread::yield_now();
    }
    client.send("GET /2 HTTP/1.1\r\nHost: echo\r\n\r\n");
    let mut second = two.accept();
    second.head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo");
    assert_eq!(client.response().body, b"two");
}

#[test]
fn a_route_of_the_callers_namespace_takes_the_place_of_the_services_own() {
    let consumer = service("test/consumer", &[serve(|_| "consumer".into())]);
    let mut mesh = mesh(&[serve(|_| "producer".into())], None);
    mesh.services[0].ports[0].consumer_routes.insert(
        heddle_model::Namespace::parse("shop").unwrap(),
        vec![rule(
            prefix(""),
            forward(vec![to("test/consumer", 1)]),
            Filters::default(),
        )],
    );
    mesh.services.insert(0, consumer);
    let bed = Bed::with(Settings::default(), &mesh);
    let listen = |id, caller: &str| -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let entry = Entry::Service {
            caller: Some(WorkloadName::parse(caller).unwrap()),
            service: ServiceName::parse("test/echo").unwrap(),
            port: 80,
        };
        bed.proxy.listen(id, socket, entry);
        address
    };
    assert_eq!(
        get(&mut Client::connect(listen(2, "shop/web")), "/").body,
        b"consumer"
    );
    assert_eq!(
        get(&mut Client::connect(listen(3, "other/web")), "/").body,
        b"producer"
    );
    bed.expect_metric(
        "heddle_http_requests_total",
        &["shop/web", "test/echo"],
        1.0,
    );
}

#[test]
fn a_forward_proxy_finds_services_by_name() {
    let bed = Bed::new(&[serve(|head| head.to_owned())]);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let caller = WorkloadName::parse("test/web").unwrap();
    bed.proxy.listen(2, socket, Entry::ForwardProxy { caller });
    let mut client = Client::connect(address);
    for host in [
        "echo",
        "ECHO",
        "echo.test",
        "echo.test.svc.cluster.local",
        "echo:80",
        "echo.",
    ] {
        client.send(format!(
            "GET http://{host}/x HTTP/1.1\r\nHost: elsewhere\r\n\r\n"
        ));
        let seen = String::from_utf8(client.response().body).unwrap();
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
        client.send(format!("GET {target} HTTP/1.1\r\nHost: echo\r\n\r\n"));
        let response = client.response();
        assert_eq!(
            (response.status(), response.field("heddle-reason")),
            (502, Some(reason))
        );
    }
}

#[test]
fn a_forward_proxy_says_that_a_port_carries_bytes_and_where_to_go() {
    for (protocol, reason) in [
        (AppProtocol::Tcp, "port_carries_bytes"),
        (AppProtocol::Tls, "port_carries_bytes"),
        (AppProtocol::Grpc, "protocol_not_supported"),
    ] {
        let mut mesh = mesh(&[], None);
        mesh.services[0].ports[0].protocol = protocol;
        let bed = Bed::with(Settings::default(), &mesh);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let caller = WorkloadName::parse("test/web").unwrap();
        bed.proxy.listen(2, socket, Entry::ForwardProxy { caller });
        let mut client = Client::connect(address);
        client.send("GET http://echo/ HTTP/1.1\r\nHost: echo\r\n\r\n");
        let response = client.response();
        assert_eq!(
            (response.status(), response.field("heddle-reason")),
            (501, Some(reason))
        );
        let text = String::from_utf8(response.body).unwrap();
        let says = text.contains("dial its address");
        assert_eq!(says, reason == "port_carries_bytes", "{text}");
        assert!(text.ends_with(&format!("({reason})\n")), "{text}");
    }
}

#[test]
fn a_routes_time_limit_is_a_504() {
    let upstream = Upstream::new();
    let mut slow = rule(
        prefix(""),
        forward(vec![to("test/echo", 1)]),
        Filters::default(),
    );
    let action = Arc::get_mut(&mut slow.action).unwrap();
    action.request_timeout_ms = Some(50);
    let bed = Bed::with(
        Settings::default(),
        &mesh(&[upstream.address], Some(vec![slow])),
    );
    let mut client = bed.client();
    client.send("GET / HTTP/1.1\r\nHost: echo\r\n\r\n");
    let _server = upstream.accept();
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("heddle-reason")),
        (504, Some("request_timeout"))
    );
}

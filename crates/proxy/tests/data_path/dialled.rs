//! Clients that send no Host: `ab`, health checks and other HTTP/1.0 clients.

use heddle_model::{AppProtocol, PathMatch, PolicyAction};
use heddle_proxy::{Entry, Protocol};

use crate::nodes::pair::Pair;
use crate::policy::{Guarded, asking_for, guarded, policy, with};
use crate::support::{Bed, Client, field, mesh, mirror, open, over, serve};

/// HTTP/1.0 requests without a host, in every form.
pub(crate) const WITHOUT_HOST: [&str; 4] = [
    "GET /a HTTP/1.0\r\n\r\n",
    "GET /a HTTP/1.0\r\nHost:\r\n\r\n",
    "GET /a HTTP/1.0\r\nAccept: x\r\nHost: \t\r\nX: y\r\n\r\n",
    "OPTIONS / HTTP/1.0\r\n\r\n",
];

/// The only Host that reached the endpoint, which sends back each request head.
pub(crate) fn host_seen(mut client: Client, request: &str) -> String {
    let response = client.ask(request);
    assert_eq!(response.status(), 200, "{request:?}: {}", response.head);
    let seen = response.text();
    let line = seen.lines().next().unwrap_or_default();
    assert!(line.ends_with(" HTTP/1.1"), "{seen}");
    let fields = seen.to_ascii_lowercase();
    assert_eq!(fields.matches("\r\nhost:").count(), 1, "{seen}");
    field(&seen, "host").unwrap().to_owned()
}

#[test]
fn a_request_without_host_gets_the_name_of_the_service_that_was_dialled() {
    let bed = Bed::mirrored();
    for request in WITHOUT_HOST {
        assert_eq!(host_seen(bed.client(), request), "echo.test", "{request:?}");
    }
    // The port is added if it is not 80.
    let mut mesh = mesh(&[mirror()], None);
    mesh.services[0].ports[0].port = 8080;
    let bed = Bed::of(&mesh);
    let entry = Entry::Service {
        caller: None,
        service: mesh.services[0].name.clone(),
        port: 8080,
    };
    let address = open(&bed.proxy, 2, entry);
    for request in WITHOUT_HOST {
        let host = host_seen(Client::connect(address), request);
        assert_eq!(host, "echo.test:8080", "{request:?}");
    }
}

#[test]
fn with_http_11_a_request_without_host_stays_refused() {
    let bed = Bed::new(&[serve(|_| "ok".into())]);
    for (request, reason) in [
        ("GET / HTTP/1.1\r\n\r\n", "missing_host"),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", "empty_host"),
        (
            "GET / HTTP/1.0\r\nHost:\r\nHost: a\r\n\r\n",
            "duplicate_host",
        ),
    ] {
        assert_eq!(bed.ask(request).verdict(), (400, reason), "{request:?}");
    }
}

#[test]
fn a_policy_on_paths_judges_a_request_without_host() {
    let rule = asking_for(PathMatch::Prefix("/a".into()));
    let mesh = guarded(mirror(), AppProtocol::Http);
    let policies = vec![policy("paths", PolicyAction::Allow, vec![rule])];
    let bed = Guarded::new(&with(mesh, policies));
    assert_eq!(host_seen(bed.client("shop"), WITHOUT_HOST[0]), "echo.test");
    let other = "GET /b HTTP/1.0\r\n\r\n";
    assert_eq!(bed.client("shop").ask(other).status(), 403);
}

#[test]
fn between_nodes_a_request_without_host_gets_the_same() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let pair = Pair::with(&over(between_nodes), mirror(), AppProtocol::Http);
        for request in WITHOUT_HOST {
            let host = host_seen(pair.client("shop"), request);
            assert_eq!(host, "echo.test", "{request:?} over {between_nodes:?}");
        }
    }
}

#[test]
fn a_forward_proxy_takes_the_host_from_the_url() {
    let bed = Bed::mirrored();
    let address = bed.forward_proxy();
    for host in ["", "Host:\r\n"] {
        let request = format!("GET http://Echo/x HTTP/1.0\r\n{host}\r\n");
        assert_eq!(host_seen(Client::connect(address), &request), "echo");
        // Without an absolute URL the destination is unknown.
        let request = format!("GET /x HTTP/1.0\r\n{host}\r\n");
        let response = Client::connect(address).ask(&request);
        assert_eq!(response.verdict(), (400, "absolute_form_expected"));
    }
}

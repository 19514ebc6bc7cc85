//! Names and values that some servers treat as equal: policies and routes apply to all of these spellings.

use heddle_model::{
    AppProtocol, Filters, HeaderEdits, HttpMatch, Policy, PolicyAction, PolicyRule,
};
use heddle_proxy::Protocol;

use crate::nodes::pair::Pair;
use crate::policy::{Guarded, guarded, policy, with};
use crate::support::{Bed, Client, GET, Upstream, field, mesh, over, serve, to_echo};

fn about_role(action: PolicyAction) -> Vec<Policy> {
    let rule = PolicyRule {
        number: 0,
        sources: None,
        ports: Vec::new(),
        http: Some(HttpMatch {
            headers: vec![("x-role".into(), "admin".into())],
            ..HttpMatch::default()
        }),
    };
    vec![policy("roles", action, vec![rule])]
}

/// Checks the status of requests with these fields under a policy about a role.
fn judges(action: PolicyAction, cases: &[(&str, u16)]) {
    let mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
    let bed = Guarded::new(&with(mesh, about_role(action)));
    for (fields, status) in cases {
        let said = bed.status("shop", "GET /", fields);
        assert_eq!(said, *status, "{fields:?}");
    }
}

#[test]
fn what_a_policy_denies_it_denies_in_every_spelling() {
    let cases = [
        ("", 200),
        ("X-Role: user\r\n", 200),
        ("X-Role: administrator\r\n", 200),
        ("X-Role: admin\r\n", 403),
        ("x_role: admin\r\n", 403),
        ("X.Role: admin\r\n", 403),
        ("X-Role: \"admin\"\r\n", 403),
        ("X-Role: Admin\r\n", 403),
        ("X-Role: admin;level=1\r\n", 403),
        ("X-Role: user, admin\r\n", 403),
        ("X-Role: user\r\nx_role: \"user\", \"ADMIN\" ; q=1\r\n", 403),
    ];
    judges(PolicyAction::Deny, &cases);
}

#[test]
fn what_a_policy_allows_it_allows_to_the_letter() {
    let cases = [
        ("X-Role: admin\r\n", 200),
        ("x-role: admin\r\n", 200),
        ("", 403),
        ("x_role: admin\r\n", 403),
        ("X.Role: admin\r\n", 403),
        ("X-Role: \"admin\"\r\n", 403),
        ("X-Role: Admin\r\n", 403),
        ("X-Role: admin;level=1\r\n", 403),
        ("X-Role: user, admin\r\n", 403),
        // A server may read the second field as the first one.
        ("X-Role: admin\r\nX_Role: user\r\n", 403),
    ];
    judges(PolicyAction::Allow, &cases);
}

/// Sends a request with these trailers; returns those that reach the endpoint.
fn trailers(client: &mut Client, upstream: &Upstream, announced: &str, lines: &str) -> String {
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: echo.test\r\nTransfer-Encoding: chunked\r\n{announced}\r\n\
         1\r\nx\r\n0\r\n{lines}\r\n"
    ));
    let mut server = upstream.asked();
    let seen = trailer_section(&mut server);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().status(), 200, "{lines:?}");
    seen
}

/// The trailers after a chunked body of one byte.
fn trailer_section(reader: &mut Client) -> String {
    assert_eq!(reader.exact(9), b"1\r\nx\r\n0\r\n");
    let mut section = reader.exact(2);
    while section != b"\r\n" && !section.ends_with(b"\r\n\r\n") {
        section.extend(reader.exact(1));
    }
    section.truncate(section.len() - 2);
    String::from_utf8(section).unwrap()
}

const ALLOWED: &str = "X-Sum: 1\r\nContent-Digest: sha-256=:x:\r\nx_check:\t2\r\n";
const FORBIDDEN: [&str; 20] = [
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Transfer_Encoding: chunked",
    "Host: evil",
    "Connection: close",
    "Authorization: Basic eA==",
    "Proxy-Authorization: Basic eA==",
    "Cookie: a=b",
    "Set-Cookie: a=b",
    "Expect: 100-continue",
    "Range: bytes=0-1",
    "If-Match: x",
    "Cache-Control: no-store",
    "Content-Type: text/html",
    "Content.Encoding: gzip",
    "Trailer: X",
    "X-Forwarded-For: 1.2.3.4",
    "X.Forwarded.For: 1.2.3.4",
    "X_Real_IP: 1.2.3.4",
    "Heddle-Reason: draining",
];

#[test]
fn trailers_that_decide_about_a_message_are_dropped_and_others_arrive() {
    let (upstream, bed) = Bed::scripted();
    let all = FORBIDDEN.join("\r\n");
    for announced in ["", "Trailer: X-Sum, Authorization, X-Role\r\n"] {
        for lines in [
            format!("{ALLOWED}{all}\r\n"),
            format!("{all}\r\n{ALLOWED}"),
            ALLOWED.to_owned(),
        ] {
            let seen = trailers(&mut bed.client(), &upstream, announced, &lines);
            assert_eq!(seen, ALLOWED, "{lines:?}");
        }
        for line in FORBIDDEN {
            let lines = format!("{line}\r\n");
            let seen = trailers(&mut bed.client(), &upstream, announced, &lines);
            assert_eq!(seen, "", "{line}");
        }
    }
}

#[test]
fn trailers_of_answers_are_dropped_alike() {
    let (upstream, bed) = Bed::scripted();
    let all = FORBIDDEN.join("\r\n");
    let mut client = bed.sending(GET);
    let mut server = upstream.replying(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{all}\r\n{ALLOWED}\r\n"
    ));
    client.head();
    assert_eq!(trailer_section(&mut client), ALLOWED);
    client.send("GET /next HTTP/1.1\r\nHost: echo\r\n\r\n");
    assert!(server.head().starts_with("GET /next "));
}

#[test]
fn a_trailer_that_connection_names_goes_no_further() {
    let (upstream, bed) = Bed::scripted();
    let lines = "X-Hop: 1\r\nX-Sum: 1\r\nx_hop: 2\r\n";
    // Several Connection fields may name trailers, beside other options.
    for connection in [
        "Connection: X-Hop\r\n",
        "Connection: TE, keep-alive\r\nTE: trailers\r\nConnection: Other, x-hop\r\n",
    ] {
        let seen = trailers(&mut bed.client(), &upstream, connection, lines);
        assert_eq!(seen, "X-Sum: 1\r\n", "{connection:?}");
        let mut client = bed.sending(GET);
        let mut server = upstream.replying(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{connection}\r\n1\r\nx\r\n0\r\n{lines}\r\n"
        ));
        client.head();
        assert_eq!(trailer_section(&mut client), "X-Sum: 1\r\n");
        // The list applies to one message only: the next message on the connection has its own.
        client.send(GET);
        server.head();
        server.send(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{lines}\r\n"
        ));
        client.head();
        assert_eq!(trailer_section(&mut client), lines);
    }
}

#[test]
fn a_header_that_a_policy_judges_does_not_come_as_a_trailer() {
    for action in [PolicyAction::Deny, PolicyAction::Allow] {
        let upstream = Upstream::new();
        let mesh = guarded(upstream.address, AppProtocol::Http);
        let bed = Guarded::new(&with(mesh, about_role(action)));
        // The head has the allowed header, and the trailer another value.
        let head = match action {
            PolicyAction::Deny => "",
            PolicyAction::Allow => "X-Role: admin\r\n",
        };
        for name in ["x-role", "X_Role", "x.role"] {
            let lines = format!("{name}: admin\r\nX-Sum: 1\r\n");
            let seen = trailers(&mut bed.client("shop"), &upstream, head, &lines);
            assert_eq!(seen, "X-Sum: 1\r\n", "{name}, {action:?}");
        }
    }
}

#[test]
fn between_nodes_a_header_that_a_policy_judges_does_not_come_as_a_trailer() {
    for between_nodes in [Protocol::Link, Protocol::Http1] {
        let (upstream, mut pair) = Pair::scripted_with(&over(between_nodes), AppProtocol::Http);
        pair.guard(about_role(PolicyAction::Deny));
        let lines = "X_Role: admin\r\nX-Sum: 1\r\nAuthorization: x\r\n";
        let seen = trailers(&mut pair.client("shop"), &upstream, "", lines);
        assert_eq!(seen, "X-Sum: 1\r\n", "{between_nodes:?}");
    }
}

/// A route that removes one header and sets another, in requests and responses.
fn editing() -> Filters {
    let edits = HeaderEdits {
        set: vec![("x-user".into(), "known".into())],
        add: Vec::new(),
        remove: vec!["x-secret".into()],
    };
    Filters {
        request: edits.clone(),
        response: edits,
        rewrite: None,
    }
}

#[test]
fn what_a_route_takes_out_is_gone_in_every_spelling() {
    let upstream = Upstream::new();
    let rules = vec![to_echo("", editing())];
    let bed = Bed::of(&mesh(&[upstream.address], Some(rules)));
    let mut client = bed.client();
    let spelt = "x-secret: 1\r\nX_Secret: 2\r\nX.SECRET: 3\r\nx_user: forged\r\nX-User: forged\r\n";
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: echo\r\nX-Secrets: kept\r\n{spelt}Transfer-Encoding: chunked\r\n\r\n\
         1\r\nx\r\n0\r\n{spelt}X-Sum: 1\r\n\r\n"
    ));
    let mut server = upstream.accept();
    let head = server.head();
    let lower = head.to_ascii_lowercase();
    assert_eq!(field(&head, "x-secrets"), Some("kept"), "{head}");
    assert_eq!(field(&head, "x-user"), Some("known"), "{head}");
    for gone in ["secret:", "forged", "x_user"] {
        assert!(!lower.contains(gone), "{head}");
    }
    assert_eq!(trailer_section(&mut server), "X-Sum: 1\r\n");
    server.send(format!(
        "HTTP/1.1 200 OK\r\n{spelt}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{spelt}X-Sum: 1\r\n\r\n"
    ));
    let head = client.head();
    assert_eq!(field(&head, "x-user"), Some("known"), "{head}");
    for gone in ["secret", "forged", "x_user"] {
        assert!(!head.to_ascii_lowercase().contains(gone), "{head}");
    }
    assert_eq!(trailer_section(&mut client), "X-Sum: 1\r\n");
}

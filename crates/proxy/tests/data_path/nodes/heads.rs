//! Heads of the maximum size: the next node accepts every head that the first accepts, even with the fields added on
//! the way.

use heddle_model::{
    AppProtocol, Filters, HeaderEdits, HttpMatch, Mesh, PathRewrite, PolicyAction, PolicyRule,
    Rewrite,
};
use heddle_proxy::{Bounds, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, Protocol, Settings};

use super::pair::Pair;
use crate::policy::{CALLERS, Guarded, from, guarded, policy, with};
use crate::support::{Client, GET, Response, Upstream, forward, mirror, over, prefix, rule, to};

const PROTOCOLS: [Protocol; 3] = [Protocol::Link, Protocol::Http1, Protocol::Http2];

/// Settings of a node with these limits of fields and bytes in a head.
fn settings(between_nodes: Protocol, (head_fields, head_bytes): (usize, usize)) -> Settings {
    Settings {
        between_nodes,
        bounds: Bounds {
            head_fields,
            head_bytes,
            ..Bounds::default()
        },
        ..Settings::default()
    }
}

/// A request with `fields` fields, as short as possible, extended to `bytes` bytes if it is shorter.
fn request(fields: usize, bytes: usize) -> String {
    let short: String = (0..fields - 2).map(|_| "a:b\r\n").collect();
    let head = |fill: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{short}fill:{fill}\r\n\r\n");
    let fill = bytes.saturating_sub(head("").len());
    head(&"f".repeat(fill))
}

/// The response to a request, and the number of fields that reached its endpoint, if it did.
fn ask(mut client: Client, request: &str) -> (Response, Option<usize>) {
    let response = client.ask(request);
    let got = (response.status() == 200).then(|| String::from_utf8(response.body.clone()).unwrap());
    let got = got.map(|head| head.lines().count() - 2);
    (response, got)
}

/// The echo Service with a route that adds `fields` fields of `bytes` bytes each.
fn adding(mut mesh: Mesh, fields: usize, bytes: usize) -> Mesh {
    let added = |number| (format!("x-added-{number}"), "v".repeat(bytes));
    let edits = HeaderEdits {
        add: (0..fields).map(added).collect(),
        ..HeaderEdits::default()
    };
    let filters = Filters {
        request: edits,
        ..Filters::default()
    };
    let to_echo = forward(vec![to("test/echo", 1)]);
    mesh.services[0].ports[0].routes = Some(vec![rule(prefix(""), to_echo, filters)]);
    mesh
}

/// Fields of a request or a response whose size together approaches the limit of a head.
fn fields(count: usize) -> String {
    (0..count)
        .map(|number| format!("x-field-{number}: {}\r\n", "v".repeat(300)))
        .collect()
}

#[test]
fn what_one_node_lets_in_the_next_does_not_refuse() {
    for between_nodes in PROTOCOLS {
        let settings = over(between_nodes);
        let upstream = Upstream::new();
        // The policy looks at every field of the request.
        let allow = policy("all", PolicyAction::Allow, vec![from(CALLERS[0])]);
        let mesh = with(guarded(upstream.address, AppProtocol::Http), vec![allow]);
        let pair = Pair::of(&settings, mesh);
        let mut client: Client = pair.client(CALLERS[0]);
        // With Host, or in the response with Content-Length, these are 100 fields.
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(99)));
        let mut server = upstream.accept();
        let head = server.head();
        assert_eq!(head.matches("x-field-").count(), 99, "{between_nodes:?}");
        server.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n",
            fields(99)
        ));
        let response = client.response();
        assert_eq!(
            response.status(),
            200,
            "{between_nodes:?} {}",
            response.head
        );
        assert_eq!(response.head.matches("x-field-").count(), 99);
        // One field more is refused by the first node.
        let response = client.ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(100)));
        assert_eq!(
            response.status(),
            431,
            "{between_nodes:?} {}",
            response.head
        );
    }
}

#[test]
fn a_head_is_refused_by_the_first_node_or_by_none() {
    let echo = mirror();
    let default = (100, 32 * 1024);
    let most = (MAX_HEAD_FIELDS, MAX_HEAD_BYTES);
    for between_nodes in PROTOCOLS {
        // The called node's own limits do not apply to heads that another node has accepted.
        for (first, second) in [(default, default), (most, most), (most, (8, 1024))] {
            let both = [first, second].map(|bounds| settings(between_nodes, bounds));
            let mesh = guarded(echo, AppProtocol::Http);
            let pair = Pair::unlike([&both[0], &both[1]], mesh, None, |called| called);
            let (fields, bytes) = first;
            for (fields, bytes, status) in [
                (fields - 2, 0, 200),
                (fields - 1, bytes - 1, 200),
                (fields, bytes, 200),
                (fields + 1, 0, 431),
                (fields, bytes + 1, 431),
            ] {
                let case = format!("{between_nodes:?} {first:?} {second:?}: {fields} {bytes}");
                let (response, got) = ask(pair.client(CALLERS[0]), &request(fields, bytes));
                assert_eq!(response.status(), status, "{case} {}", response.head);
                // Plus three forwarding fields added by the nodes.
                assert_eq!(got, (status == 200).then_some(fields + 3), "{case}");
            }
        }
    }
}

#[test]
fn the_largest_answer_that_a_node_takes_of_an_endpoint_the_next_takes_of_it() {
    let (fields, bytes) = (MAX_HEAD_FIELDS, MAX_HEAD_BYTES);
    for between_nodes in PROTOCOLS {
        // The calling node's own limits do not apply to heads that another node has accepted.
        let both = [(8, 1024), (fields, bytes)].map(|bounds| settings(between_nodes, bounds));
        let upstream = Upstream::new();
        let mesh = guarded(upstream.address, AppProtocol::Http);
        let pair = Pair::unlike([&both[0], &both[1]], mesh, None, |called| called);
        // With a Content-Length; and delimited by the end of the connection, which adds a field on the way.
        for first in ["Content-Length:0", "x:y"] {
            let mut client = pair.sending(CALLERS[0], GET);
            let mut server = upstream.asked();
            let short: String = (0..fields - 2).map(|_| "a:b\r\n").collect();
            let head =
                |fill: &str| format!("HTTP/1.1 431 \r\n{first}\r\n{short}fill:{fill}\r\n\r\n");
            server.send(head(&"f".repeat(bytes - head("").len())));
            drop(server);
            let answer = client.head();
            let case = format!("{between_nodes:?} {first} {}", answer.len());
            assert!(answer.starts_with("HTTP/1.1 431 "), "{case}");
            assert_eq!(answer.matches("\r\na:").count(), fields - 2, "{case}");
        }
    }
}

#[test]
fn what_a_route_makes_too_large_for_the_next_node_the_first_refuses() {
    let echo = mirror();
    for between_nodes in PROTOCOLS {
        let settings = settings(between_nodes, (100, 32 * 1024));
        for (fields, added, bytes, status) in [
            (91, 64, 0, 200),
            (92, 64, 0, 431),
            (100, 64, 0, 431),
            (3, 15, 4096, 200),
            (3, 16, 4096, 431),
        ] {
            let mesh = adding(guarded(echo, AppProtocol::Http), added, bytes);
            let pair = Pair::of(&settings, mesh);
            let (response, got) = ask(pair.client(CALLERS[0]), &request(fields, 0));
            let case = format!("{between_nodes:?} {fields} + {added} of {bytes} bytes");
            assert_eq!(response.status(), status, "{case} {}", response.head);
            assert_eq!(got, (status == 200).then_some(fields + 3 + added), "{case}");
            let reason = (status == 431).then_some("head_grew_too_large");
            assert_eq!(response.field("heddle-reason"), reason, "{case}");
        }
    }
}

/// Allows the first caller only requests for this path.
fn allowed(mesh: Mesh, path: &str) -> Mesh {
    let looks_at_paths = PolicyRule {
        http: Some(HttpMatch {
            path_starts: vec![path.into()],
            ..HttpMatch::default()
        }),
        ..from(CALLERS[0])
    };
    let allow = policy("paths", PolicyAction::Allow, vec![looks_at_paths]);
    with(mesh, vec![allow])
}

#[test]
fn a_head_that_is_too_large_to_be_judged_is_not_said_to_be_denied() {
    let mesh = guarded(mirror(), AppProtocol::Http);
    let bed = Guarded::new(&allowed(adding(mesh, 64, 0), "/"));
    // With the three forwarding fields and the route's 64: exactly the parser's limit, and more.
    for (fields, status) in [(93, 200), (94, 431), (100, 431)] {
        let (response, got) = ask(bed.client(CALLERS[0]), &request(fields, 0));
        assert_eq!(
            response.status(),
            status,
            "{fields} fields {}",
            response.head
        );
        assert_eq!(got, (status == 200).then_some(fields + 3 + 64));
        let reason = (status == 431).then_some("head_grew_too_large");
        assert_eq!(response.field("heddle-reason"), reason);
    }
    let (response, _) = ask(bed.client(CALLERS[1]), &request(93, 0));
    assert_eq!(response.field("heddle-reason"), Some("policy_denied"));
}

#[test]
fn a_path_that_a_route_makes_longer_than_a_clients_may_be_is_judged_like_any() {
    let longer = format!("/{}", "longer".repeat(100));
    let mut mesh = guarded(mirror(), AppProtocol::Http);
    let filters = Filters {
        rewrite: Some(Rewrite {
            hostname: None,
            path: Some(PathRewrite::ReplacePrefix(longer.as_str().into())),
        }),
        ..Filters::default()
    };
    let to_echo = forward(vec![to("test/echo", 1)]);
    mesh.services[0].ports[0].routes = Some(vec![rule(prefix("/a"), to_echo, filters)]);
    let mesh = allowed(mesh, &longer);
    let path = format!("/a/{}", "p".repeat(8 * 1024 - 3));
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nx: y\r\n\r\n");
    let (response, got) = ask(Guarded::new(&mesh).client(CALLERS[0]), &request);
    assert_eq!(got, Some(5), "{}", response.head);
    for between_nodes in PROTOCOLS {
        let settings = settings(between_nodes, (100, 32 * 1024));
        let pair = Pair::of(&settings, mesh.clone());
        let (response, got) = ask(pair.client(CALLERS[0]), &request);
        assert_eq!(got, Some(5), "{between_nodes:?} {}", response.head);
    }
}

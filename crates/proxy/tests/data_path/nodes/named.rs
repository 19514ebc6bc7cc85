//! Blame for a 502: the endpoint, or the other node and the connection to it.

use heddle_model::AppProtocol;
use heddle_proxy::Protocol;

use super::pair::Pair;
use crate::policy::guarded;
use crate::support::{Client, Log, Upstream, over, post};

/// The log's description of a 502: the code, the blamed side, and the sentence.
struct Said {
    code: String,
    blame: String,
    sentence: String,
}

fn said(client: &mut Client, log: &Log) -> Said {
    let response = client.response();
    assert_eq!(response.status(), 502, "{}", response.head);
    let line = log.line();
    let blame = line.split("\"blame\":\"").nth(1);
    let blame = blame.and_then(|rest| rest.split('"').next());
    Said {
        code: response
            .field("heddle-reason")
            .unwrap_or_default()
            .to_owned(),
        blame: blame.unwrap_or_default().to_owned(),
        sentence: response.text(),
    }
}

/// Sends a request that reaches the endpoint; returns the endpoint's side.
fn ask(client: &mut Client, upstream: &Upstream) -> Client {
    client.send(post(0));
    upstream.asked()
}

#[test]
fn a_502_names_the_endpoint_or_the_other_node() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let settings = over(between_nodes);
        let upstream = Upstream::new();
        let mesh = guarded(upstream.address, AppProtocol::Http);
        let (writes, log) = Log::open();
        let (mut pair, relay) = Pair::relayed(&settings, mesh, Some(writes));
        let mut client = pair.client("shop");

        // The endpoint resets its connection: both nodes blame the endpoint.
        let server = ask(&mut client, &upstream);
        server.reset();
        let said_of_reset = said(&mut client, &log);
        assert_eq!(said_of_reset.code, "upstream_reset");
        assert_eq!(said_of_reset.blame, "upstream", "{between_nodes:?}");
        assert!(said_of_reset.sentence.contains("the endpoint closed"));

        // The endpoint's response is malformed.
        let mut server = ask(&mut client, &upstream);
        server.send("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n");
        let said_of_answer = said(&mut client, &log);
        assert_eq!(said_of_answer.blame, "upstream", "{between_nodes:?}");
        assert!(
            said_of_answer.sentence.contains("the endpoint's answer: "),
            "{}",
            said_of_answer.sentence
        );
        drop(server);

        // The endpoint works, but the other node or the connection to it fails.
        let server = ask(&mut client, &upstream);
        match between_nodes {
            // A cut link would be resumed, so its node restarts. The goodbye of a node that ends in order must not
            // arrive.
            Protocol::Link => {
                relay.is_dead(true);
                pair.called_begins_anew();
                relay.cut();
                relay.is_dead(false);
            }
            _ => relay.cut(),
        }
        let said_of_node = said(&mut client, &log);
        let code = said_of_node.code.as_str();
        assert!(["node_reset", "link_lost"].contains(&code), "{code}");
        assert_eq!(said_of_node.blame, "node", "{between_nodes:?}");
        assert!(
            said_of_node.sentence.contains("the other node"),
            "{}",
            said_of_node.sentence
        );
        let counted = |reason| {
            let name = "heddle_requests_rejected_total";
            pair.calling.metric(name, &[reason])
        };
        assert_eq!(counted(code), 1.0);
        // The calling node counts what the other node said of the endpoint.
        assert_eq!(counted("upstream_reset"), 1.0);
        assert_eq!(counted("upstream_malformed"), 1.0);
        let there = ["reporter=\"destination\"", "upstream_reset"];
        let there = pair.called.metric("heddle_requests_rejected_total", &there);
        let is_same_node = matches!(between_nodes, Protocol::Http1 | Protocol::Http2);
        assert!(there == 1.0 || !is_same_node, "{there}");
        drop(server);
    }
}

/// The node is lost in the middle of an answer; or the endpoint is, and its node works.
#[test]
fn an_answer_that_ends_too_early_names_the_endpoint_or_the_other_node() {
    let upstream = Upstream::new();
    let mesh = guarded(upstream.address, AppProtocol::Http);
    let (writes, log) = Log::open();
    let (mut pair, relay) = Pair::relayed(&over(Protocol::Link), mesh, Some(writes));
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
    for (is_nodes, expected) in [
        (
            false,
            [
                "\"reason\":\"upstream_truncated\"",
                "\"blame\":\"upstream\"",
            ],
        ),
        (true, ["\"reason\":\"link_lost\"", "\"blame\":\"node\""]),
    ] {
        let mut client = pair.client("shop");
        let mut server = ask(&mut client, &upstream);
        server.send(half);
        assert!(client.head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.exact(5), b"hello");
        match is_nodes {
            false => server.reset(),
            true => {
                relay.is_dead(true);
                pair.called_begins_anew();
                relay.cut();
                relay.is_dead(false);
            }
        }
        log.expect(&expected);
    }
}

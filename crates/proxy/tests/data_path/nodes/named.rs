//! Who is named when a request gets a 502: the endpoint, or the other node and the way to it.

use heddle_model::AppProtocol;
use heddle_proxy::Protocol;

use super::pair::Pair;
use crate::policy::guarded;
use crate::support::{Client, Log, Upstream, over, post};

/// What is said of a 502: the code, whose fault the log shows it to be, and the sentence.
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

/// A request that the endpoint has: its side of it.
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

        // The endpoint resets its connection: its own node says so, and so does this one.
        let server = ask(&mut client, &upstream);
        server.reset();
        let said_of_reset = said(&mut client, &log);
        assert_eq!(said_of_reset.code, "upstream_reset");
        assert_eq!(said_of_reset.blame, "upstream", "{between_nodes:?}");
        assert!(said_of_reset.sentence.contains("the endpoint closed"));

        // It answers what cannot be understood.
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

        // The endpoint is well, and the other node or the way to it is not.
        let server = ask(&mut client, &upstream);
        match between_nodes {
            // A link would come back. What a node says that ends in an orderly way is not to arrive.
            Protocol::Link => {
                relay.is_dead(true);
                pair.called_begins_anew();
                relay.cut();
                relay.is_dead(false);
            }
            Protocol::Http1 | Protocol::Http2 => relay.cut(),
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
        assert_eq!(counted("upstream_reset"), 0.0);
        drop(server);
    }
}

//! Heads that are as large as may be: what one node lets in the next does not refuse for what was added on the way.

use heddle_model::AppProtocol;
use heddle_proxy::{Protocol, Settings};

use super::pair::Pair;
use crate::policy::{CALLERS, from, guarded, policy, with};
use crate::support::{Client, Upstream};

/// Fields of a request or an answer, as many as may be, of a size that comes near to what a head may have.
fn fields(count: usize) -> String {
    (0..count)
        .map(|number| format!("x-field-{number}: {}\r\n", "v".repeat(300)))
        .collect()
}

#[test]
fn what_one_node_lets_in_the_next_does_not_refuse() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let settings = Settings {
            between_nodes,
            ..Settings::default()
        };
        let upstream = Upstream::new();
        // A policy looks at every field of what is sent.
        let allow = policy(
            "all",
            heddle_model::PolicyAction::Allow,
            vec![from(CALLERS[0])],
        );
        let mesh = with(guarded(upstream.address, AppProtocol::Http), vec![allow]);
        let pair = Pair::of(&settings, mesh);
        let mut client: Client = pair.client(CALLERS[0]);
        // A hundred fields with Host, and with the length of the answer.
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
        // One more is too many, and it is the first node that says so.
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(100)));
        let response = client.response();
        assert_eq!(
            response.status(),
            431,
            "{between_nodes:?} {}",
            response.head
        );
    }
}

//! Each caller has connections to endpoints of its own: what one brings an endpoint to say is said to no other.

use heddle_model::AppProtocol;
use heddle_proxy::{Bounds, Settings};

use crate::policy::{CALLERS, Guarded, guarded};
use crate::support::{Client, Upstream, serve};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn ask(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
}

/// Takes a request that the proxy has sent, and answers it. Returns its first line.
fn answer(server: &mut Client, answer: &str) -> String {
    let head = server.head();
    server.send(answer);
    head.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_connection_that_one_caller_has_used_carries_no_request_of_another() {
    let upstream = Upstream::new();
    let bed = Guarded::new(&guarded(upstream.address, AppProtocol::Http));
    let mut servers = Vec::new();
    for caller in CALLERS {
        let mut client = bed.client(caller);
        ask(&mut client, "/");
        let mut server = upstream.accept();
        answer(&mut server, OK);
        assert_eq!(client.response().body, b"ok", "{caller}");
        servers.push(server);
    }
    bed.bed
        .expect_metric("heddle_upstream_connections_idle", &[], 2.0);
    // Another connection of the same caller goes by the one that is there.
    for (caller, server) in CALLERS.iter().zip(&mut servers) {
        let mut client = bed.client(caller);
        ask(&mut client, &format!("/{caller}"));
        assert!(answer(server, OK).contains(caller), "{caller}");
        assert_eq!(client.response().body, b"ok", "{caller}");
    }
    assert!(upstream.is_quiet());
}

#[test]
fn callers_whose_connections_are_idle_make_way_where_an_endpoint_has_all_it_may_have() {
    let endpoint = serve(|_| "ok".into());
    let bounds = Bounds {
        connections_per_endpoint: 1,
        ..Bounds::default()
    };
    let settings = Settings {
        bounds,
        ..Settings::default()
    };
    let bed = Guarded::with(settings, &guarded(endpoint, AppProtocol::Http));
    let mut clients = CALLERS.map(|caller| bed.client(caller));
    for round in 0..10 {
        for client in &mut clients {
            ask(client, "/");
            assert_eq!(client.response().status(), 200, "{round}");
        }
    }
    // A request right behind another finds room, too.
    clients[0].send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5));
    for _ in 0..5 {
        assert_eq!(clients[0].response().status(), 200);
    }
}

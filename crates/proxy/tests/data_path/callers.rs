//! Each caller has its own upstream connections, so a response that one caller provokes cannot reach another.

use heddle_model::AppProtocol;

use crate::policy::{CALLERS, Guarded, guarded};
use crate::support::{GET, Upstream, bounded, get, serve};

#[test]
fn a_connection_that_one_caller_has_used_carries_no_request_of_another() {
    let upstream = Upstream::new();
    let bed = Guarded::new(&guarded(upstream.address, AppProtocol::Http));
    let mut servers = Vec::new();
    for caller in CALLERS {
        let mut client = bed.sending(caller, GET);
        let server = upstream.answering("ok");
        assert_eq!(client.response().body, b"ok", "{caller}");
        servers.push(server);
    }
    bed.bed.expect("heddle_upstream_connections_idle", &[], 2.0);
    // A second client of the same caller reuses the caller's connection.
    for (caller, server) in CALLERS.iter().zip(&mut servers) {
        let mut client = bed.sending(caller, get(&format!("/{caller}")));
        let head = server.head();
        assert!(head.starts_with(&format!("GET /{caller} ")), "{head}");
        server.answer("ok");
        assert_eq!(client.response().body, b"ok", "{caller}");
    }
    assert!(upstream.is_quiet());
}

#[test]
fn callers_whose_connections_are_idle_make_way_where_an_endpoint_has_all_it_may_have() {
    let endpoint = serve(|_| "ok".into());
    let settings = bounded(|bounds| bounds.connections_per_endpoint = 1);
    let bed = Guarded::with(settings, &guarded(endpoint, AppProtocol::Http));
    let mut clients = CALLERS.map(|caller| bed.client(caller));
    for round in 0..10 {
        for client in &mut clients {
            assert_eq!(client.ask(GET).status(), 200, "{round}");
        }
    }
    // Pipelined requests find room, too.
    clients[0].send(GET.repeat(5));
    for _ in 0..5 {
        assert_eq!(clients[0].response().status(), 200);
    }
}

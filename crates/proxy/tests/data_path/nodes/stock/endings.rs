//! Each way in which an exchange with an Envoy ends, and what the next request sees.

use std::net::Shutdown;
use std::time::Duration;

use heddle_model::AppProtocol;
use heddle_transport::Denied;
use heddle_transport::fixture::{DAY, NOW};
use rustix::net::sockopt::set_socket_linger;

use super::{Called, accept, pair_with_envoy};
use crate::nodes::pair::Pair;
use crate::support::{GET, post};

/// How the Envoy treats its connection after, or instead of, a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Kept,
    Notified,
    Closed,
    Reset,
    AskedToClose,
    HalfResponse,
    HalfHead,
    Silent,
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";

/// Ends the exchange. Returns the connection if it is still open.
fn end(mut envoy: Called, how: End) -> Option<Called> {
    envoy.head();
    match how {
        End::Kept | End::Notified | End::Closed | End::Reset => envoy.send(WHOLE),
        End::AskedToClose => envoy.send(LAST),
        End::HalfResponse => envoy.send(HALF),
        End::HalfHead => envoy.send("HTTP/1.1 200 O"),
        End::Silent => {}
    }
    match how {
        End::Kept | End::Reset => return Some(envoy),
        End::Notified => {
            envoy.stream.conn.send_close_notify();
            let _sent = envoy.stream.conn.write_tls(&mut envoy.stream.sock);
        }
        _ => {
            let _gone = envoy.stream.sock.shutdown(Shutdown::Write);
        }
    }
    None
}

#[test]
fn the_next_request_never_meets_the_end_of_the_one_before() {
    for how in [
        End::Kept,
        End::Notified,
        End::Closed,
        End::Reset,
        End::AskedToClose,
        End::HalfResponse,
        End::HalfHead,
        End::Silent,
    ] {
        let (upstream, pair) = pair_with_envoy(AppProtocol::Http);
        let mut first = pair.sending("shop", GET);
        let kept = end(accept(&pair, &upstream), how);
        match how {
            End::HalfResponse => {
                let said = first.rest();
                assert!(said.starts_with(b"HTTP/1.1 200 "), "{how:?}");
            }
            End::HalfHead | End::Silent => assert_eq!(first.response().status(), 502, "{how:?}"),
            _ => assert_eq!(first.response().text(), "ok", "{how:?}"),
        }
        drop(first);
        let kept = kept.filter(|envoy| {
            // Only now: a reset discards what was not read yet.
            let socket = &envoy.stream.sock;
            let reset = how == End::Reset;
            set_socket_linger(socket, reset.then_some(Duration::ZERO)).unwrap();
            !reset
        });
        let mut next = pair.sending("shop", GET);
        let mut envoy = kept.unwrap_or_else(|| accept(&pair, &upstream));
        envoy.head();
        envoy.answer("next");
        assert_eq!(next.response().text(), "next", "{how:?}");
        assert!(upstream.is_quiet(), "{how:?}");
    }
}

/// The connections of a removed root, or of a denied peer, carry no further request.
#[test]
fn a_pooled_connection_does_not_outlive_its_trust() {
    let (upstream, pair) = pair_with_envoy(AppProtocol::Http);
    let mut first = pair.sending("shop", GET);
    let mut envoy = end(accept(&pair, &upstream), End::Kept).unwrap();
    assert_eq!(first.response().text(), "ok");
    let serial = super::own(&pair, "other");
    let denied = Denied {
        serials: [serial.serial().into()].into(),
        ..Denied::default()
    };
    // A change that is about another peer leaves it open.
    trusts(&pair, denied);
    let mut next = pair.sending("shop", GET);
    envoy.head();
    envoy.answer("still");
    assert_eq!(next.response().text(), "still");
    trusts(
        &pair,
        crate::nodes::trust::denied(&crate::nodes::pair::id("echo")),
    );
    assert_eq!(envoy.rest(), b"");
    let mut refused = pair.sending("shop", GET);
    let mut other = accept(&pair, &upstream);
    let read = std::io::Read::read(&mut other.stream, &mut [0; 1]);
    assert!(matches!(read, Err(_) | Ok(0)));
    assert_eq!(refused.response().verdict(), (503, "peer_refused"));
}

fn trusts(pair: &Pair, denied: Denied) {
    let trust = pair.trust(&[&pair.authority], denied);
    let identities = pair.identities(&pair.calling, &pair.authority, &trust, NOW + DAY);
    pair.give(&pair.calling, identities);
}

/// An Envoy may close an idle connection just when a request is sent on it.
#[test]
fn a_request_that_a_kept_connection_leaves_unanswered_is_sent_again() {
    let (upstream, pair) = pair_with_envoy(AppProtocol::Http);
    let mut client = pair.sending("shop", GET);
    let envoy = end(accept(&pair, &upstream), End::Kept).unwrap();
    assert_eq!(client.response().text(), "ok");
    client.send(GET);
    assert!(end(envoy, End::Silent).is_none());
    let mut again = accept(&pair, &upstream);
    again.head();
    again.answer("again");
    assert_eq!(client.response().text(), "again");
    // A request that must not be sent twice is answered.
    client.send(post(0));
    assert!(end(again, End::Silent).is_none());
    assert_eq!(client.response().status(), 502);
    assert!(upstream.is_quiet());
}

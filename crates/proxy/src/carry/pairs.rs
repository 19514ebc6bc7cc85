//! Messages through all nine pairs of node protocols: HTTP/1.1, streams of links, HTTP/2.
//!
//! ```text
//!   client ─ HTTP/1.1 ─▶ calling ═ one of three ═▶ between ═ one of three ═▶ called ─ HTTP/1.1 ─▶ endpoint
//! ```
//!
//! A node normally does not forward connections of another node: `between` does it for these tests, by [`relayed`]. A
//! reader of HTTP/1.1 that shares no code with the proxy compares what each end received with what the other end sent.

mod case;
mod chain;
mod peers;
mod reader;

use std::sync::Arc;

use heddle_model::{ServiceName, WorkloadName};
use heddle_transport::Protocol;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::*;
use case::{Body, Case, Cut, Framing};
use chain::{Chain, RELAY};

/// Redirects the door of a connection to the relay to the endpoint; returns any other door unchanged.
pub(super) fn relayed(door: Arc<Door>) -> Arc<Door> {
    let name = |name: &str| ServiceName::new("test", name).expect("a name");
    let is_relayed = door
        .inbound()
        .is_some_and(|inbound| inbound.service == name(RELAY));
    match is_relayed {
        false => door,
        true => door.leading(Entry::Service {
            caller: WorkloadName::new("test", RELAY).ok(),
            service: name("echo"),
            port: 80,
        }),
    }
}

/// Number of random messages for each pair.
const CASES: u32 = 48;
/// The same in the long test.
const MANY_CASES: u32 = 1500;

fn through(first: Protocol, second: Protocol, cases: u32) {
    let chain = Chain::new(first, second);
    for case in shapes() {
        if let Err(wrong) = chain.carry(&case) {
            panic!("{first:?}, {second:?}: {wrong}\n{case:#?}");
        }
    }
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let carried = TestRunner::new(config).run(&case::cases(), |case| {
        chain.carry(&case).map_err(TestCaseError::fail)
    });
    match carried {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => panic!("{first:?}, {second:?}: {why}\n{case:#?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Exchanges as in gRPC, and others that once failed.
fn shapes() -> Vec<Case> {
    let data = |pieces: &[usize]| {
        pieces
            .iter()
            .map(|&length| vec![b'm'; length])
            .collect::<Vec<_>>()
    };
    let trailers = || {
        vec![
            ("grpc-status".to_owned(), "0".to_owned()),
            ("grpc-message".to_owned(), "all %20 well".to_owned()),
        ]
    };
    let chunked = |pieces: &[usize], trailers| Body {
        framing: Framing::Chunked,
        pieces: data(pieces),
        trailers,
    };
    let grpc = |request: Body, response: Body, streams: bool| Case {
        method: "POST",
        request,
        interim: Vec::new(),
        status: 200,
        response,
        streams,
        cut: Cut::Nothing,
    };
    let none = || Vec::new();
    vec![
        // Unary, server streaming, client streaming, both directions, trailers only.
        grpc(chunked(&[69], none()), chunked(&[69], trailers()), false),
        grpc(
            chunked(&[69], none()),
            chunked(&[5, 5000, 70_000, 1], trailers()),
            false,
        ),
        grpc(
            chunked(&[5, 5000, 70_000, 1], none()),
            chunked(&[69], trailers()),
            false,
        ),
        grpc(
            chunked(&[5, 6, 7, 800, 9], none()),
            chunked(&[1, 2, 3000, 4, 5], trailers()),
            true,
        ),
        grpc(chunked(&[69], none()), chunked(&[], trailers()), false),
        grpc(chunked(&[], trailers()), chunked(&[], none()), false),
        // A response without a body, which gRPC calls trailers-only: the status is in the head.
        Case {
            response: Body::none(),
            ..grpc(chunked(&[69], none()), Body::none(), false)
        },
        Case {
            interim: vec![103, 103],
            ..grpc(chunked(&[69], none()), chunked(&[69], trailers()), false)
        },
    ]
}

macro_rules! pairs {
    ($($name:ident = $first:ident $second:ident;)*) => {
        $(#[test]
        fn $name() {
            through(Protocol::$first, Protocol::$second, CASES);
        })*

        #[test]
        #[ignore = "for long: make soak"]
        fn through_all_pairs_for_long() {
            $(through(Protocol::$first, Protocol::$second, MANY_CASES);)*
        }
    };
}

pairs! {
    from_http1_to_http1 = Http1 Http1;
    from_http1_to_links = Http1 Link;
    from_http1_to_http2 = Http1 Http2;
    from_links_to_http1 = Link Http1;
    from_links_to_links = Link Link;
    from_links_to_http2 = Link Http2;
    from_http2_to_http1 = Http2 Http1;
    from_http2_to_links = Http2 Link;
    from_http2_to_http2 = Http2 Http2;
}

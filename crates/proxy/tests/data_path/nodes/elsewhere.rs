//! Endpoints of another node that this node cannot reach: it reports that, and requests go to other endpoints.

use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_transport::Protocol;

use super::pair::Pair;
use crate::policy::guarded;
use crate::support::{PATIENCE, over, serve, serve_at, unused_address};

#[test]
fn a_request_goes_elsewhere_when_its_endpoints_node_cannot_connect_it() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let settings = over(between_nodes);
        // Given two endpoints on another node, of which one refuses connections …
        let absent = unused_address();
        let mut mesh = guarded(serve(|_| "one".into()), AppProtocol::Http);
        let endpoints = &mut mesh.services[0].ports[0].endpoints;
        let mut other = endpoints[0].clone();
        other.address = absent;
        endpoints.push(other);
        endpoints.sort_by_key(|endpoint| endpoint.address);
        let pair = Pair::of(&settings, mesh);
        // … then no request fails …
        for _ in 0..30 {
            assert_eq!(pair.get("shop").status(), 200, "{between_nodes:?}");
        }
        let tried = |name: &str| pair.calling.metric(name, &[]);
        assert!(tried("heddle_upstream_retries_total") > 0.0);
        // … the refusing one is passed over, so that it is not tried by each request …
        let tries = tried("heddle_upstream_connect_failures_total");
        assert!((1.0..15.0).contains(&tries), "{tries} of {between_nodes:?}");
        // … and when it listens, it gets its share.
        let _there = serve_at(&absent.to_string(), |_| "two".into());
        let patience = Instant::now() + PATIENCE;
        while pair.get("shop").text() != "two" {
            assert!(Instant::now() < patience, "{between_nodes:?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let mut answers = (0..10).map(|_| pair.get("shop").text());
        assert!(answers.any(|body| body == "two"), "{between_nodes:?}");
    }
}

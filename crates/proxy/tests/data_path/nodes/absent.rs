//! An unreachable node: requests for its endpoints go to other endpoints.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Settings;

use super::links::relayed;
use super::pair::Pair;
use super::traffic::bytes;
use crate::policy::guarded;
use crate::support::{Client, get, post, serve};

/// Longer than the longest body that is kept for a retry.
const LARGE: usize = 600_000;
/// Longer than the first attempt to resume a link, which takes two seconds, and shorter than requests wait for a node
/// that is the only one.
const LONG: Duration = Duration::from_secs(6);

/// Gives the Service a second endpoint, which is reached without the other node.
fn add_a_near_one(pair: &Pair) {
    let mut mesh = pair.mesh.clone();
    let endpoints = &mut mesh.services[0].ports[0].endpoints;
    let mut near = endpoints[0].clone();
    near.address = serve(|_| "near".into());
    (near.node, near.workload, near.account) = (None, None, None);
    endpoints.push(near);
    endpoints.sort_by_key(|endpoint| endpoint.address);
    pair.apply(&mesh);
}

fn posting(pair: &Pair) -> Client {
    pair.sending("shop", post(LARGE)).sending(bytes(LARGE))
}

fn far() -> SocketAddr {
    serve(|head| match head.starts_with("GET /silent") {
        true => {
            thread::park_timeout(Duration::from_secs(60));
            String::new()
        }
        false => "far".into(),
    })
}

#[test]
fn a_large_body_goes_elsewhere_when_a_node_cannot_be_reached() {
    // Given a node that accepts no connections …
    let mesh = guarded(far(), AppProtocol::Http);
    let nowhere = ([127, 0, 0, 1], 1).into();
    let pair = Pair::by(&Settings::default(), mesh, |_| nowhere);
    add_a_near_one(&pair);
    // … when requests come whose bodies are too long for a retry …
    for _ in 0..6 {
        let response = posting(&pair).response();
        // … then each is served with its whole body.
        assert_eq!((response.status(), &response.body[..]), (200, &b"near"[..]));
    }
}

#[test]
fn requests_go_elsewhere_while_a_link_cannot_come_back() {
    let (pair, relay) = relayed(&Settings::default(), far(), AppProtocol::Http);
    add_a_near_one(&pair);
    // Given a link with open requests …
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(pair.sending("shop", get("/silent")));
    }
    let answers: Vec<Vec<u8>> = (0..8).map(|_| posting(&pair).response().body).collect();
    assert!(answers.contains(&b"far".to_vec()), "{answers:?}");
    // … when it is cut and its node is unreachable …
    relay.is_dead(true);
    relay.cut();
    // … then requests that cannot be retried are not sent to the other node before the link is back …
    let begun = Instant::now();
    let large: Vec<Client> = (0..4).map(|_| posting(&pair)).collect();
    for mut client in large {
        assert_eq!(client.response().body, b"near");
    }
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    // … and later requests do not wait for the link.
    let begun = Instant::now();
    for _ in 0..8 {
        assert_eq!(pair.get("shop").text(), "near");
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    // After the node is reachable again it is used again.
    relay.is_dead(false);
    let patience = Instant::now() + 2 * LONG;
    while pair.get("shop").text() != "far" {
        assert!(Instant::now() < patience, "it is not used again");
        thread::park_timeout(Duration::from_millis(50));
    }
}

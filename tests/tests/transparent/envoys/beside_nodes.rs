//! Envoys and the proxies of nodes call each other.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{PORTS, is_good};
use crate::programs::Serving;
use crate::stage::{Scene, Stage};

/// Lets only the account `friend` call `vault` and `safe`.
const ONLY_FRIENDS: &str = "apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: only-friends, namespace: shop}
spec:
  targetRefs: [{kind: Pod, selector: {matchExpressions: [{key: app, operator: In, values: [vault, safe]}]}}]
  action: ALLOW
  rules:
    - sources: [{type: ServiceAccount, serviceAccount: {name: friend}}]
";

/// Callers with an Envoy, with a proxy of the same node, and with the proxy of another node.
const CALLERS: [&str; 3] = ["own", "near", "far"];

/// `api` and `vault` have an Envoy, `cart` and `safe` have not; all are on node `one`.
struct Shop {
    stage: Stage,
    _servers: Vec<Serving>,
}

/// The shop, which all tests here share, and which is there while one of them needs it.
fn shop() -> Option<Arc<Shop>> {
    static SHOP: Mutex<Weak<Shop>> = Mutex::new(Weak::new());
    let mut shared = SHOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shop) = shared.upgrade() {
        return Some(shop);
    }
    let mut scene = Scene::default()
        .pod("near", "one")
        .pod("far", "two")
        .account("own")
        .with_envoy("own", "two", "own", "")
        .account("friend")
        .pod_of("friend-near", "one", "friend")
        .with_envoy("friend-own", "two", "friend", "")
        .outsider("stranger", "one")
        .pod("cart", "one")
        .pod("safe", "one")
        .manifest("only-friends", ONLY_FRIENDS);
    for name in ["api", "vault"] {
        scene = scene.account(name).with_envoy(name, "one", name, "");
    }
    let servers = ["api", "cart", "vault", "safe"];
    for name in servers {
        scene = scene.service(name, PORTS);
    }
    let stage = scene.up()?;
    let _servers = servers
        .iter()
        .flat_map(|pod| stage.serve_all(pod))
        .collect();
    let shop = Arc::new(Shop { stage, _servers });
    *shared = Arc::downgrade(&shop);
    Some(shop)
}

#[test]
fn http_and_bytes_pass_between_envoys_and_nodes_and_nothing_in_the_clear() {
    let Some(shop) = shop() else { return };
    let stage = &shop.stage;
    let underlay = stage.hear_underlay();
    for (from, to) in CALLERS
        .iter()
        .flat_map(|from| [(*from, "api"), (*from, "cart")])
    {
        assert_eq!(
            stage.status(from, &format!("http://{to}/"), &[]),
            "200",
            "{from} to {to}"
        );
        let (echo, heard) = (stage.echo(from, to), stage.hear(from, to));
        assert!(
            is_good(&echo, &heard),
            "{from} to {to}: {echo:?}, {heard:?}"
        );
    }
    let heard = underlay.stop();
    assert!(heard.all().payload > 0);
    for text in ["echo of a line", "seen as", "HTTP/1.1"] {
        assert!(
            !heard.holds(text.as_bytes()),
            "{text:?} was sent in the clear"
        );
    }
}

#[test]
fn a_policy_means_the_same_for_a_workload_with_an_envoy() {
    let Some(shop) = shop() else { return };
    let stage = &shop.stage;
    for to in ["vault", "safe"] {
        let url = format!("http://{to}/");
        for from in ["friend-near", "friend-own"] {
            assert_eq!(stage.status(from, &url, &[]), "200", "{from} to {to}");
            let (echo, heard) = (stage.echo(from, to), stage.hear(from, to));
            assert!(
                is_good(&echo, &heard),
                "{from} to {to}: {echo:?}, {heard:?}"
            );
        }
        for from in CALLERS {
            assert_eq!(stage.status(from, &url, &[]), "403", "{from} to {to}");
            let (echo, heard) = (stage.echo(from, to), stage.hear(from, to));
            assert!(!is_good(&echo, "10.0.0.1"), "{from} to {to}: {echo:?}");
            assert!(
                !is_good("echo of a line", &heard),
                "{from} to {to}: {heard:?}"
            );
        }
        // A client that is not in the mesh comes in plaintext, without a name.
        let direct = format!("http://{}/", stage.at(to, 80));
        let said = stage.status("stranger", &direct, &[]);
        assert!(["403", "000"].contains(&&*said), "{to}: {said}");
    }
}

/// The name by which gateways tell destinations of callers.
const CALLER: &str = "x-heddle-caller: spiffe://cluster.local/ns/shop/sa/friend";

#[test]
fn a_pod_that_claims_to_be_a_gateway_is_refused() {
    let Some(shop) = shop() else { return };
    let stage = &shop.stage;
    for from in CALLERS.into_iter().chain(["stranger"]) {
        let url = match from {
            "stranger" => format!("http://{}/", stage.at("vault", 80)),
            _ => "http://vault/".to_owned(),
        };
        let said = stage.status(from, &url, &[CALLER]);
        assert!(["403", "000"].contains(&&*said), "{from}: {said}");
    }
    for from in CALLERS {
        assert_eq!(
            stage.status(from, "http://safe/", &[CALLER]),
            "403",
            "{from}"
        );
    }
}

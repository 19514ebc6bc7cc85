//! Authorization between pods by identity: within a node the identity is that of the pod, between nodes that of the
//! certificate.

use crate::stage::{Scene, until};

const POLICY: &str = "apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: vault, namespace: shop}
spec:
  targetRefs: [{kind: Pod, selector: {matchLabels: {app: vault}}}]
  action: ALLOW
  rules:
    - sources: [{type: ServiceAccount, serviceAccount: {name: friend}}]
";

#[test]
fn service_accounts_are_let_in_or_kept_out_on_the_same_node_and_between_nodes() {
    let scene = Scene::default()
        .pod("vault", "one")
        .service("vault", "{port: 80, appProtocol: http}")
        .pod("friend", "one")
        .pod_of("friend-far", "two", "friend")
        .pod("foe", "one")
        .pod_of("foe-far", "two", "foe")
        .outsider("stranger", "one")
        .manifest("policy", POLICY);
    let Some(stage) = scene.up() else { return };
    // Given a server that one service account may call, over HTTP and on a port without any Service …
    let _web = stage.answer("vault", 80);
    let _bytes = stage.answer("vault", 7777);
    let by_name = "http://vault/";
    let (web, bytes) = (stage.at("vault", 80), stage.at("vault", 7777));
    // … when pods of that account call it, then it answers.
    for pod in ["friend", "friend-far"] {
        let said = stage.says(pod, &["curl", "-sSf", by_name]);
        assert!(said.starts_with("seen as "), "{said}");
        assert!(stage.dial(pod, &web).is_good());
    }
    assert!(stage.dial("friend", &bytes).is_good());
    // When others call it, then they get an HTTP error where that is possible, and a reset where it is not.
    for pod in ["foe", "foe-far"] {
        let argv = [
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            by_name,
        ];
        assert_eq!(stage.says(pod, &argv), "403", "{pod}");
        assert_eq!(stage.dial(pod, &web).what, "403", "{pod}");
    }
    let outcome = stage.dial("foe", &bytes);
    assert!(!outcome.is_good(), "{outcome:?}");
    // A client in plaintext is anonymous, on any node.
    let outcome = stage.dial("stranger", &web);
    assert_eq!(outcome.what, "403", "{outcome:?}");
    let outcome = stage.dial("stranger", &bytes);
    assert!(!outcome.is_good(), "{outcome:?}");
    until("refusals are counted", || {
        stage
            .counters("one")
            .sum("heddle_requests_rejected_total", "denied")
            >= 3
    });
}

use heddle_node::status::{ClockStatus, ControlConnectionStatus, TrustStatus};

use super::*;

const NOW: u64 = 1_800_000_000;

fn status() -> IdentityStatus {
    let held = |id: &str, not_after, renew_at| HeldStatus {
        spiffe_id: format!("spiffe://cluster.local/{id}"),
        not_after,
        renew_at,
        root_sha256: not_after.map(|_| "0123456789abcdef".repeat(4)),
        ..HeldStatus::default()
    };
    IdentityStatus {
        node: "edge-1".to_owned(),
        trust_domain: Some("cluster.local".to_owned()),
        mesh_address: Some("192.0.2.7:15008".parse().unwrap()),
        control: ControlConnectionStatus {
            address: "192.0.2.1:15012".to_owned(),
            connected: true,
            for_s: 61,
            problem: None,
        },
        clock: ClockStatus {
            now: NOW,
            floor: NOW - 60,
            degraded: false,
        },
        trust: Some(TrustStatus {
            bundle_generation: 2,
            roots: 2,
            deny_generation: 3,
            denied: 1,
        }),
        identities: vec![
            held("heddle/node/edge-1", Some(NOW + 86_400), Some(NOW + 40_000)),
            held("ns/shop/sa/cart", None, None),
        ],
        serves_until: Some(NOW + 86_400),
        ..IdentityStatus::default()
    }
}

/// Without colours, as where there is no terminal.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn a_node_that_is_well_says_who_it_is_and_for_how_long() {
    assert_eq!(
        plain(&text(&status(), None)),
        "node edge-1 of cluster.local: all is well, 1 of 2 identities, other nodes connect at \
         192.0.2.7:15008\n\
         control plane 192.0.2.1:15012: connected for 1 min 1 s\n\
         trust: bundle 2 with 2 roots, deny-list 3 with 1 entry in force\n\
         clock: 2027-01-15T08:00:00Z\n\
         service lasts until 2027-01-16T08:00:00Z, for 1 d 0 h, if nothing is renewed\n\
         \n\
         IDENTITY                                   ROOT              EXPIRES               IN                  RENEWS AT\n\
         spiffe://cluster.local/heddle/node/edge-1  0123456789abcdef  2027-01-16T08:00:00Z  1 d 0 h             2027-01-15T19:06:40Z\n\
         spiffe://cluster.local/ns/shop/sa/cart     -                 -                     no certificate yet  now\n"
    );
}

#[test]
fn a_node_that_is_not_says_what_to_look_at() {
    let mut status = status();
    status.problems = vec!["look here\u{1b}".to_owned()];
    status.control.connected = false;
    status.control.problem = Some("connection refused".to_owned());
    status.clock.degraded = true;
    status.serves_until = Some(NOW - 1);
    status.identities[0].not_after = Some(NOW - 1);
    status.identities[0].renew_at = Some(NOW - 40_000);
    status.identities[0].failures = 7;
    let mut refused = status.identities[0].clone();
    refused.not_after = Some(NOW + 60);
    refused.refused = Some("it is on the deny-list".to_owned());
    status.identities.push(refused);
    let text = text(&status, None);
    assert!(
        text.contains("\u{1b}[31mDEGRADED, 1 problem\u{1b}[0m"),
        "{text}"
    );
    let text = plain(&text);
    for expected in [
        ": DEGRADED, 1 problem, 0 of 3 identities, ",
        "\n  look here\\u{1b}\n",
        "NOT REACHED for 1 min 1 s: connection refused\n",
        "clock: BEHIND what is certain; 2027-01-15T08:00:00Z counts\n",
        "service has been incomplete since 2027-01-15T07:59:59Z\n",
        "EXPIRED             now        7 attempts failed\n",
        "1 min 0 s           now        NOT BELIEVED, 7 attempts failed\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
}

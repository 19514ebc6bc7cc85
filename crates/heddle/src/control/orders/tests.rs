use serde_json::{Value, json};

use super::*;
use crate::control::fixture::{Fixture, HOUR, NOW, at, node_id};

fn order(fixture: &Fixture, order: &Value) -> (u16, String) {
    let order = parse(order.clone()).expect("an order");
    let orders = Orders {
        authority: &fixture.authority,
        nodes: &fixture.nodes,
        board: &fixture.board,
        envoys: &Envoys::default(),
        listen: ([10, 0, 0, 1], 9443).into(),
        now: at(fixture.clock.now()),
    };
    let answer = execute(&orders, order);
    (answer.status, answer.body)
}

fn done(fixture: &Fixture, wanted: &Value) -> Value {
    let (status, body) = order(fixture, wanted);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

#[test]
fn what_is_no_order_is_told_so() {
    for right in [json!("token-list"), json!({"token-revoke": {"id": "x"}})] {
        assert!(parse(right).is_ok());
    }
    for wrong in [
        json!({"token-revoke": {"id": "x", "and": 1}}),
        json!("token-lists"),
        json!(null),
    ] {
        let refused = parse(wrong).expect_err("no order");
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.starts_with("no order: "), "{}", refused.body);
    }
}

#[test]
fn what_is_refused_says_why_and_what_to_do() {
    let fixture = Fixture::new();
    let deny = |what: &str| json!({"deny-add": {"what": what, "reason": "x", "until": null}});
    let token = |node: &str, life: u64| json!({"token-create": {"node": node, "ttl_s": life}});
    done(&fixture, &deny(&node_id("denied").to_string()));
    for (wanted, reason, remedy) in [
        (token("Edge_1", 60), "Edge_1", "use a-z"),
        (token("n1", 0), "lives for 1 s to 7 days", "choose"),
        (token("n1", 7 * 86_400 + 1), "7 days", "choose"),
        (token("denied", 60), "deny-list", "heddle deny remove"),
        (
            json!({"token-revoke": {"id": "AAAAAAAAAAAA"}}),
            "no token AAAAAAAAAAAA",
            "heddle token list",
        ),
        (
            json!({"token-revoke": {"id": "heddle-a.b.c"}}),
            "no token's id",
            "first dot",
        ),
        (json!("root-cancel"), "no rotation", ""),
        (deny("x"), "neither a SPIFFE id", "write spiffe://"),
        (deny("0"), "neither a SPIFFE id", "1 to 40 hexadecimal"),
        (deny(&"a".repeat(41)), "neither a SPIFFE id", "1 to 40"),
        // Certificates of other authorities may have more than the 16 bytes of a deny-list entry.
        (
            deny(&"a".repeat(33)),
            "longer than the 16",
            "deny the identity",
        ),
        (
            deny(&"a".repeat(40)),
            "longer than the 16",
            "deny the identity",
        ),
        (
            deny("spiffe://cluster.local/heddle/control"),
            "cannot be denied",
            "deny its certificate",
        ),
        (
            deny("spiffe://other.test/heddle/node/n1"),
            "another trust domain",
            "cluster.local",
        ),
        (
            json!({"deny-add": {"what": node_id("n1").to_string(), "reason": "x", "until": NOW}}),
            "expired already",
            "choose",
        ),
        (
            json!({"deny-remove": {"what": node_id("n1").to_string()}}),
            "not on the deny-list",
            "heddle deny list",
        ),
        (
            json!({"site-sign": {"request": "x", "ttl_s": 86_400}}),
            "no PKCS #10",
            "heddle site request",
        ),
    ] {
        let (status, said) = order(&fixture, &wanted);
        assert_eq!(status, 409, "{wanted}: {said}");
        assert!(
            said.contains(reason) && said.contains(remedy),
            "{wanted}: {said}"
        );
    }
    // A secret that was pasted by mistake is not echoed.
    let (_, said) = order(
        &fixture,
        &json!({"token-revoke": {"id": "heddle-a.SECRET.c"}}),
    );
    assert!(!said.contains("SECRET"), "{said}");
}

#[test]
fn tokens_come_and_go() {
    let fixture = Fixture::new();
    let made = done(
        &fixture,
        &json!({"token-create": {"node": "n1", "ttl_s": 60}}),
    );
    assert_eq!(made["expires"], NOW + 60);
    let text = made["token"].as_str().expect("a token");
    assert!(heddle_transport::secrets::JoinToken::parse(text).is_some());
    let listed = done(&fixture, &json!("token-list"));
    assert_eq!(listed[0]["id"], made["id"]);
    assert!(!listed.to_string().contains(text));
    let revoked = done(&fixture, &json!({"token-revoke": {"id": made["id"]}}));
    assert_eq!(revoked["changed"], true);
    assert_eq!(done(&fixture, &json!("token-list")), json!([]));
}

#[test]
fn the_deny_list_has_an_end_where_the_operator_names_none() {
    let fixture = Fixture::new();
    let serial = "0b".repeat(16);
    let with_colons = ["0B"; 16].join(":");
    let added = done(
        &fixture,
        &json!({"deny-add": {"what": with_colons, "reason": "x", "until": null}}),
    );
    assert_eq!(added["what"], serial.as_str());
    assert_eq!(added["until"], NOW + 90 * 86_400);
    let until = NOW + HOUR;
    done(
        &fixture,
        &json!({"deny-add": {"what": node_id("n1").to_string(), "reason": "y", "until": until}}),
    );
    fixture.set_time(until);
    let listed = done(&fixture, &json!("deny-list"));
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    done(&fixture, &json!({"deny-remove": {"what": serial}}));
    assert_eq!(done(&fixture, &json!("deny-list")), json!([]));
}

/// Leading zeros and colons do not change a serial number.
#[test]
fn a_serial_number_may_be_short() {
    let fixture = Fixture::new();
    let whole = "ab".repeat(16);
    for (written, shown) in [
        ("7", format!("{:0>32}", "7")),
        ("01:F4", format!("{:0>32}", "1f4")),
        (&format!("{:0>40}", "1f4"), format!("{:0>32}", "1f4")),
        (&whole, whole.clone()),
    ] {
        let added = done(
            &fixture,
            &json!({"deny-add": {"what": written, "reason": "x", "until": null}}),
        );
        assert_eq!(added["what"], shown.as_str(), "{written}");
        done(&fixture, &json!({"deny-remove": {"what": written}}));
    }
}

#[test]
fn a_rotation_is_one_order_and_force_goes_a_step_further() {
    let fixture = Fixture::new();
    let rotate = |force: bool| json!({"root-rotate": {"force": force}});
    let before = done(&fixture, &json!("root-status"));
    assert_eq!(before["stage"], "steady");
    fixture.leaf(&node_id("n1"));
    // No rotation waits for the node, which has not connected yet.
    let steady = done(&fixture, &json!("root-status"));
    assert_eq!(
        (&steady["waits_for"], &steady["unheard"]),
        (&json!([]), &json!(["n1"]))
    );
    let begun = done(&fixture, &rotate(false));
    assert_eq!(begun["unheard"], json!(null));
    assert_eq!(
        (&begun["stage"], &begun["waits_for"], &begun["sha256"]),
        (&json!("begun"), &json!(["n1"]), &before["sha256"])
    );
    // A second order joins the same rotation, which can be cancelled.
    assert_eq!(
        done(&fixture, &rotate(false))["generation"],
        begun["generation"]
    );
    assert_eq!(done(&fixture, &json!("root-cancel"))["stage"], "steady");

    let switched = done(&fixture, &rotate(true));
    assert_eq!(switched["stage"], "switched");
    assert_ne!(switched["sha256"], before["sha256"]);
    assert_eq!(switched["old_until"], NOW + 24 * HOUR);
    assert_eq!(switched["finish_from"], NOW + 25 * HOUR);
    assert_eq!(done(&fixture, &rotate(false))["stage"], "switched");
    let (status, said) = order(&fixture, &json!("root-cancel"));
    assert!(status == 409 && said.contains("no way back"), "{said}");
    let finished = done(&fixture, &rotate(true));
    assert_eq!(finished["stage"], "steady");
    assert_eq!(finished["sha256"], switched["sha256"]);
}

#[test]
fn a_root_that_is_supplied_is_read_by_the_control_plane() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let rotate = |certificate: &str, key: &str| {
        let folder = other.state();
        let supplied = json!({"certificate": folder.join(certificate), "key": folder.join(key)});
        json!({"root-rotate": {"force": false, "supplied": supplied}})
    };
    for (certificate, key, reason) in [
        ("none.pem", "root.key", "cannot read"),
        ("root.key", "root.pem", "the new root"),
        ("root.pem", "state.json", "the new root"),
    ] {
        let (status, said) = order(&fixture, &rotate(certificate, key));
        assert!(status == 409 && said.contains(reason), "{said}");
    }
    let begun = done(&fixture, &rotate("root.pem", "root.key"));
    assert_eq!(begun["stage"], "begun");
    let (status, said) = order(&fixture, &rotate("root.pem", "root.key"));
    assert!(
        status == 409 && said.contains("under way already"),
        "{said}"
    );
    done(&fixture, &json!({"root-rotate": {"force": true}}));
    assert_eq!(
        fixture.authority.root_sha256(),
        other.authority.root_sha256()
    );
}

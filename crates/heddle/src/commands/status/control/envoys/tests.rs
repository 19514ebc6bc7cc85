use super::*;

fn envoy(workload: &str, connected_s: Option<u64>, lazy: bool) -> EnvoyStatus {
    EnvoyStatus {
        workload: workload.to_owned(),
        connected_s,
        certificate_until: connected_s.map(|_| 1_800_000_000),
        lazy,
    }
}

fn gateway(workload: &str, node: Option<&str>, connected: bool) -> GatewayStatus {
    GatewayStatus {
        workload: workload.to_owned(),
        node: node.map(str::to_owned),
        connected,
    }
}

fn shown(envoys: &[EnvoyStatus], gateways: &[GatewayStatus]) -> (String, String) {
    let text = text(envoys, gateways, Detail::Normal);
    let text = anstream::adapter::strip_str(&text).to_string();
    (text, table(envoys, gateways))
}

#[test]
fn a_gateway_that_is_away_is_named() {
    let envoys = vec![
        envoy("mesh/gate", None, false),
        envoy("shop/web", Some(61), true),
    ];
    let away = gateway("mesh/gate", None, false);
    let (text, table) = shown(
        &envoys,
        &[away.clone(), gateway("mesh/two", Some("n2"), true)],
    );
    assert_eq!(
        text,
        "1 of 2 Envoys connected, 1 of 2 gateways\nnot connected as a gateway: the Envoy of mesh/gate\n"
    );
    let rows: Vec<&str> = table.lines().collect();
    assert!(
        rows[1].contains("away") && rows[1].contains("all, as a gateway"),
        "{table}"
    );
    assert!(
        rows[2].contains("what it uses") && rows[2].contains("2027-01-15"),
        "{table}"
    );
    let (text, _) = shown(&envoys, &[away, gateway("mesh/two", Some("n2"), false)]);
    assert_eq!(
        text,
        "1 of 2 Envoys connected, none of 2 gateways: lazy Envoys reach only what they know\n\
         not connected as a gateway: the Envoy of mesh/gate, node n2 by mesh/two\n"
    );
}

#[test]
fn nothing_is_said_without_envoys() {
    assert_eq!(shown(&[], &[]).0, "");
}

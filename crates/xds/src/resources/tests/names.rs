use super::*;

/// The content of some resource of that type, without its name.
fn content(kind: Type) -> Vec<u8> {
    let balancing = proto::Balancing::from(&heddle_model::Balancing::default());
    match kind {
        Type::MeshSettings => proto::MeshSettings {
            trust_domain: "cluster.local".to_owned(),
            single_node: true,
            address_ranges: Vec::new(),
            ..proto::MeshSettings::default()
        }
        .encode_to_vec(),
        Type::Node => proto::Node {
            address: Some(proto::SocketAddress {
                ip: vec![10, 0, 0, 1],
                port: 1,
            }),
        }
        .encode_to_vec(),
        Type::Address => proto::Address {
            holders: vec![proto::AddressHolder {
                workload: "a/w".to_owned(),
                ..Default::default()
            }],
        }
        .encode_to_vec(),
        Type::Policy => proto::Policy {
            action: proto::PolicyAction::Allow.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        Type::Workload => proto::Workload {
            service_account: "a/default".to_owned(),
            address: vec![10, 0, 0, 1],
            weight: 1,
            mode: proto::Mode::Strict.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        Type::Service => proto::Service {
            balancing: Some(balancing),
            ..Default::default()
        }
        .encode_to_vec(),
        Type::Endpoint => proto::Endpoint {
            weight: 1,
            ..Default::default()
        }
        .encode_to_vec(),
    }
}

#[test]
fn a_name_has_one_spelling() {
    let names: [(Type, &[&str], &[&str]); 7] = [
        (Type::MeshSettings, &["mesh"], &["", "Mesh", "mesh/"]),
        (Type::Node, &["n", "a.b"], &["", "N", "a/b", "n."]),
        (
            Type::Address,
            &["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1"],
            &[
                "",
                "10.0.0.01",
                "10.0.0.1 ",
                "2001:DB8::1",
                "2001:db8:0::1",
                "::ffff:a00:1",
                "[::1]",
                "fe80::1%1",
                "0.0.0.0",
                "224.0.0.1",
                "10.0.0.1:80",
            ],
        ),
        (
            Type::Policy,
            &["AuthorizationPolicy/a/p", "TrafficTarget/a/p.q"],
            &[
                "",
                "a/p",
                "AuthorizationPolicy a/p",
                "Other/a/p",
                "AuthorizationPolicy/a/p/q",
                "AuthorizationPolicy//p",
            ],
        ),
        (
            Type::Workload,
            &["a/w"],
            &["", "w", "a/", "/w", "a/w/x", "a/W"],
        ),
        (
            Type::Service,
            &["a/s"],
            &["", "s", "a/", "/s", "a/s/80", "a.b/s"],
        ),
        (
            Type::Endpoint,
            &["a/s/80/10.0.0.1:1", "a/s/65535/[2001:db8::1]:65535"],
            &[
                "",
                "a/s/80",
                "a/s/80/",
                "a/s/0/10.0.0.1:1",
                "a/s/080/10.0.0.1:1",
                "a/s/+80/10.0.0.1:1",
                "a/s/65536/10.0.0.1:1",
                "a/s/80/10.0.0.1:0",
                "a/s/80/10.0.0.1:01",
                "a/s/80/10.0.0.1",
                "a/s/80/10.0.0.1:1/",
                "a/s/80/0.0.0.0:1",
                "a/s/80/[2001:DB8::1]:1",
                "a/s/80/2001:db8::1:1",
                "a/s/80/[fe80::1%1]:1",
                "a/s/80/[fe80::1%0]:1",
            ],
        ),
    ];
    for (kind, good, bad) in names {
        let content = content(kind);
        for name in good {
            let resource = Resource::decode(kind, name, &content).expect(name);
            assert_eq!(resource.name(), *name);
        }
        for name in bad {
            let refused = Resource::decode(kind, name, &content);
            assert!(refused.is_err(), "{kind:?} {name:?} passes");
        }
    }
}

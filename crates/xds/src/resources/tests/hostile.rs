//! Content that a control plane of another version, or none, has sent.

use heddle_model::{MAX_GATEWAY_ACCOUNTS, MAX_LAZY_ACCOUNTS, MAX_ROOM, Shared};
use proptest::collection::vec;
use proptest::sample::{Index, select};

use super::*;
use crate::Invalid;

/// Tells what was sent as if it were a resource: nothing panics, and what is accepted holds its invariants.
fn receive(kind: Type, name: &str, content: &[u8]) {
    if let Ok(resource) = Resource::decode(kind, name, content) {
        assert_eq!(check(&resource), Ok(()));
        assert_eq!(resource.name(), name);
        arrived(&resource);
    }
}

#[derive(Debug, Clone)]
enum Damage {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Repeat(Index, Index),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    // The bytes of small numbers, lengths and tags are those that make another message.
    let byte = || prop_oneof![0..48_u8, any::<u8>()];
    prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        any::<Index>().prop_map(Damage::Remove),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        any::<Index>().prop_map(Damage::Cut),
    ]
}

fn damaged(mut content: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if content.is_empty() {
            break;
        }
        let length = content.len();
        match damage {
            Damage::Replace(at, byte) => content[at.index(length)] = *byte,
            Damage::Insert(at, byte) => content.insert(at.index(length), *byte),
            Damage::Remove(at) => {
                content.remove(at.index(length));
            }
            Damage::Repeat(from, to) => {
                let part = content[from.index(length)..].to_vec();
                let at = to.index(length);
                content.splice(at..at, part);
            }
            Damage::Cut(at) => content.truncate(at.index(length)),
        }
    }
    content
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_bytes_do_no_harm(
        kind in select(Type::ALL.to_vec()),
        resource in generate::resource(),
        bytes in vec(any::<u8>(), 0..64),
    ) {
        receive(resource.kind(), &resource.name(), &bytes);
        receive(kind, &resource.name(), &resource.encode());
    }

    #[test]
    fn damaged_content_does_no_harm(
        resource in generate::resource(),
        damages in vec(damage(), 1..4),
    ) {
        let content = damaged(resource.encode().to_vec(), &damages);
        receive(resource.kind(), &resource.name(), &content);
    }

    #[test]
    fn a_name_of_any_text_does_no_harm(kind in select(Type::ALL.to_vec()), name in ".{0,12}") {
        receive(kind, &name, &[]);
    }

    #[test]
    fn unknown_fields_are_ignored(resource in generate::resource()) {
        let mut content = resource.encode().to_vec();
        // Field 2047 as a number, field 2046 as bytes.
        content.extend(b"\xf8\x7f\x05\xf2\x7f\x02ab");
        let decoded = Resource::decode(resource.kind(), &resource.name(), &content);
        prop_assert_eq!(decoded, Ok(resource));
    }
}

#[test]
fn unknown_fields_of_inner_messages_are_ignored() {
    // Node { address { ip, port, 2046: "ab" } }
    let content = b"\x0a\x0b\x0a\x04\x0a\x00\x00\x01\x10\x01\xf2\x7f\x02ab";
    let mut longer = content.to_vec();
    longer[1] = u8::try_from(content.len() - 2).unwrap();
    let Ok(Resource::Node(node)) = Resource::decode(Type::Node, "n", &longer) else {
        panic!("it is refused");
    };
    assert_eq!(node.address, "10.0.0.1:1".parse().unwrap());
}

fn refused(kind: Type, name: &str, message: &impl Message) -> InvalidResource {
    Resource::decode(kind, name, &message.encode_to_vec()).expect_err(name)
}

#[test]
fn unknown_values_are_refused_by_field() {
    let service = |change: fn(&mut proto::Service)| {
        let mut message = proto::Service {
            balancing: Some((&heddle_model::Balancing::default()).into()),
            ports: vec![proto::ServicePort {
                port: 80,
                ..Default::default()
            }],
            ..Default::default()
        };
        change(&mut message);
        refused(Type::Service, "a/s", &message)
    };
    let workload = |change: fn(&mut proto::Workload)| {
        let mut message = proto::Workload {
            service_account: "a/default".to_owned(),
            address: vec![10, 0, 0, 1],
            weight: 1,
            mode: proto::Mode::Strict.into(),
            ..Default::default()
        };
        change(&mut message);
        refused(Type::Workload, "a/w", &message)
    };
    let policy = |action| {
        let message = proto::Policy {
            action,
            ..Default::default()
        };
        refused(Type::Policy, "AuthorizationPolicy/a/p", &message)
    };
    let ejection = |service: &mut proto::Service| {
        service.balancing.as_mut().unwrap().ejection = Some(proto::Ejection {
            after: 1,
            on: 2,
            base_ms: 1,
            max_percent: 1,
        });
    };
    let action = |service: &mut proto::Service| {
        service.actions = vec![proto::RouteAction::default()];
    };
    let rule = |service: &mut proto::Service| {
        let rule = proto::RouteRule {
            route: "a/r".to_owned(),
            ..Default::default()
        };
        service.ports[0].routes = Some(proto::RouteRules { rules: vec![rule] });
    };
    let found = [
        (service(|service| service.balancer = 4), "service.balancer"),
        (
            service(|service| service.balancing = None),
            "service.balancing",
        ),
        (
            service(|service| service.ports[0].protocol = 6),
            "service.ports.protocol",
        ),
        (
            service(|service| service.ports[0].port = 0),
            "service.ports.port",
        ),
        (
            service(|service| service.ports[0].port = 65_536),
            "service.ports.port",
        ),
        (
            service(|service| service.addresses = vec![vec![1; 5]]),
            "service.addresses",
        ),
        (service(ejection), "service.balancing.ejection.on"),
        (service(action), "service.actions.outcome"),
        (service(rule), "service.ports.routes.action"),
        (workload(|workload| workload.mode = 0), "workload.mode"),
        (workload(|workload| workload.mode = 3), "workload.mode"),
        (
            workload(|workload| workload.address = Vec::new()),
            "workload.address",
        ),
        (
            workload(|workload| {
                workload.qos = Some(proto::Qos {
                    class: 2,
                    ..Default::default()
                });
            }),
            "workload.qos.class",
        ),
        (
            workload(|workload| {
                workload.qos = Some(proto::Qos {
                    cgroup: "/a".to_owned(),
                    ..Default::default()
                });
            }),
            "workload.qos.cgroup",
        ),
        (
            workload(|workload| workload.policies = vec!["AuthorizationPolicy a/p".to_owned()]),
            "workload.policies",
        ),
        (policy(0), "policy.action"),
        (policy(3), "policy.action"),
        (policy(-1), "policy.action"),
    ];
    for (error, field) in found {
        assert_eq!(error, InvalidResource::Field(Invalid(field)));
    }
}

#[test]
fn broken_invariants_are_refused() {
    let endpoint = proto::Endpoint {
        weight: 1,
        max_requests: MAX_ROOM + 1,
        ..Default::default()
    };
    let no_account = proto::Endpoint {
        weight: 1,
        workload: "a/w".to_owned(),
        ..Default::default()
    };
    for message in [endpoint, no_account, proto::Endpoint::default()] {
        let error = refused(Type::Endpoint, "a/s/80/10.0.0.1:1", &message);
        assert!(matches!(error, InvalidResource::Invariant(_)), "{error}");
    }
    for ip in [[0, 0, 0, 0], [224, 0, 0, 1]] {
        let address = proto::SocketAddress {
            ip: ip.to_vec(),
            port: 1,
        };
        let node = proto::Node {
            address: Some(address),
        };
        let error = refused(Type::Node, "n", &node);
        assert!(matches!(error, InvalidResource::Invariant(_)), "{error}");
    }
    let holder = |workload: &str, first: &[u8]| proto::AddressHolder {
        workload: workload.to_owned(),
        first: first.to_vec(),
        ..Default::default()
    };
    for holders in [
        vec![],
        vec![holder("a/w", &[]), holder("a/w", &[])],
        vec![holder("a/w", &[]), holder("a/v", &[])],
        vec![holder("a/w", &[10, 0, 0, 1])],
        vec![holder("a/w", &[0, 0, 0, 0])],
        vec![holder("w", &[])],
    ] {
        refused(Type::Address, "10.0.0.1", &proto::Address { holders });
    }
}

#[test]
fn address_ranges_are_checked() {
    let range = |network: &[u8], prefix| proto::AddressRange {
        network: network.to_vec(),
        prefix,
    };
    let settings = |address_ranges| proto::MeshSettings {
        trust_domain: "cluster.local".to_owned(),
        single_node: false,
        address_ranges,
        ..proto::MeshSettings::default()
    };
    for ranges in [
        vec![range(&[10, 0, 0, 1], 8)],
        vec![range(&[10, 0, 0, 0], 33)],
        vec![range(&[10, 0, 0, 0], 256 + 8)],
        vec![range(&[10, 0, 0], 8)],
        vec![range(&[0; 16], 129)],
        vec![range(&[10, 0, 0, 0], 8), range(&[10, 0, 0, 0], 8)],
        vec![range(&[11, 0, 0, 0], 8), range(&[10, 0, 0, 0], 8)],
        (0..65).map(|last| range(&[10, 0, 0, last], 32)).collect(),
    ] {
        refused(Type::MeshSettings, "mesh", &settings(ranges));
    }
    let most = settings((0..64).map(|last| range(&[10, 0, 0, last], 32)).collect());
    let read = Resource::decode(Type::MeshSettings, "mesh", &most.encode_to_vec());
    assert!(matches!(read, Ok(Resource::MeshSettings(read)) if read.address_ranges.len() == 64));
}

#[test]
fn who_forwards_in_whose_name_is_checked() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let settings = |gateways, lazy_accounts| proto::MeshSettings {
        trust_domain: "cluster.local".to_owned(),
        gateways,
        lazy_accounts,
        ..proto::MeshSettings::default()
    };
    for wrong in [
        &["a"][..],
        &["a/b/c"],
        &["a/B"],
        &["a/c", "a/b"],
        &["a/b", "a/b"],
        &[""],
    ] {
        refused(
            Type::MeshSettings,
            "mesh",
            &settings(names(wrong), Vec::new()),
        );
        refused(
            Type::MeshSettings,
            "mesh",
            &settings(Vec::new(), names(wrong)),
        );
    }
    let many: Vec<String> = (0..=MAX_LAZY_ACCOUNTS)
        .map(|at| format!("a/b{at:05}"))
        .collect();
    refused(
        Type::MeshSettings,
        "mesh",
        &settings(Vec::new(), many.clone()),
    );
    refused(
        Type::MeshSettings,
        "mesh",
        &settings(many[..=MAX_GATEWAY_ACCOUNTS].to_vec(), Vec::new()),
    );
    let most = settings(many[1..=MAX_GATEWAY_ACCOUNTS].to_vec(), many[1..].to_vec());
    let read = Resource::decode(Type::MeshSettings, "mesh", &most.encode_to_vec());
    let Ok(Resource::MeshSettings(read)) = read else {
        panic!("{read:?}");
    };
    assert_eq!(read.forwarding.gateways.len(), MAX_GATEWAY_ACCOUNTS);
    assert_eq!(read.forwarding.lazy.len(), MAX_LAZY_ACCOUNTS);
}

#[test]
fn a_resource_has_a_limit() {
    let settings = Resource::MeshSettings(Settings {
        trust_domain: TrustDomain::default(),
        single_node: false,
        address_ranges: Vec::new(),
        forwarding: Shared::default(),
    });
    // An unknown field of that many bytes.
    let padded = |bytes: usize| {
        let mut content = settings.encode().to_vec();
        content.extend(b"\xf2\x7f");
        let length = bytes - content.len() - 3;
        prost::encoding::encode_varint(length.try_into().unwrap(), &mut content);
        content.resize(bytes, 0);
        Resource::decode(Type::MeshSettings, "mesh", &content)
    };
    assert_eq!(padded(MAX_RESOURCE_BYTES), Ok(settings.clone()));
    let more = MAX_RESOURCE_BYTES + 1;
    assert_eq!(padded(more), Err(InvalidResource::TooLarge(more)));
}

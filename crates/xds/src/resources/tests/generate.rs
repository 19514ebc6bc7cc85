//! Random objects that hold their invariants, with values at the bounds.

mod policies;
mod routes;
mod whole;
mod workloads;

use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{
    Cidr, Endpoint, Forwarding, MAX_ROOM, Name, Namespace, Node, NodeName, PathMatch,
    ServiceAccountName, ServiceName, Shared, TrustDomain, WorkloadName, is_one_place,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use crate::resources::{AddressOf, EndpointOf, Holder, Resource, Settings};

use policies::policy;
pub(super) use routes::service;
pub(super) use whole::{NODES, mesh};
use workloads::workload;

/// A resource of any type.
pub(super) fn resource() -> BoxedStrategy<Resource> {
    prop_oneof![
        settings().prop_map(Resource::MeshSettings),
        node().prop_map(Resource::Node),
        address().prop_map(Resource::Address),
        policy().prop_map(|policy| Resource::Policy(Arc::new(policy))),
        workload().prop_map(|one| Resource::Workload(one.into())),
        service().prop_map(Resource::Service),
        endpoint().prop_map(Resource::Endpoint),
    ]
    .boxed()
}

fn label() -> BoxedStrategy<String> {
    prop_oneof![
        8 => "[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?",
        1 => Just("a".repeat(63)),
    ]
    .boxed()
}

fn text_name() -> BoxedStrategy<String> {
    let longest = [63, 63, 63, 61].map(|length| "z".repeat(length)).join(".");
    prop_oneof![
        8 => label(),
        4 => vec("[a-z0-9]{1,5}", 1..4).prop_map(|labels| labels.join(".")),
        1 => Just(longest),
    ]
    .boxed()
}

fn namespace() -> BoxedStrategy<Namespace> {
    label()
        .prop_map(|text| Namespace::parse(&text).unwrap())
        .boxed()
}

fn name() -> BoxedStrategy<Name> {
    text_name()
        .prop_map(|text| Name::parse(&text).unwrap())
        .boxed()
}

fn service_name() -> BoxedStrategy<ServiceName> {
    (namespace(), name())
        .prop_map(|(namespace, name)| ServiceName { namespace, name })
        .boxed()
}

fn workload_name() -> BoxedStrategy<WorkloadName> {
    (namespace(), name())
        .prop_map(|(namespace, name)| WorkloadName { namespace, name })
        .boxed()
}

fn account() -> BoxedStrategy<ServiceAccountName> {
    (namespace(), name())
        .prop_map(|(namespace, name)| ServiceAccountName { namespace, name })
        .boxed()
}

fn node_name() -> BoxedStrategy<NodeName> {
    text_name()
        .prop_map(|text| NodeName::parse(&text).unwrap())
        .boxed()
}

fn trust_domain() -> BoxedStrategy<TrustDomain> {
    text_name()
        .prop_map(|text| TrustDomain::parse(&text).unwrap())
        .boxed()
}

fn ip() -> BoxedStrategy<IpAddr> {
    let bounds = [
        "0.0.0.1",
        "127.0.0.1",
        "255.255.255.254",
        "::1",
        "::ffff:10.0.0.1",
        "fe80::1",
        "2001:db8::",
    ];
    let bounds: Vec<IpAddr> = bounds.iter().map(|text| text.parse().unwrap()).collect();
    prop_oneof![
        prop::sample::select(bounds),
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
    ]
    .prop_filter("one place", |address| is_one_place(*address))
    .boxed()
}

fn port() -> BoxedStrategy<u16> {
    prop_oneof![Just(1), Just(80), Just(u16::MAX), 1..=u16::MAX].boxed()
}

fn weight() -> BoxedStrategy<u32> {
    prop_oneof![4 => Just(1), 1 => Just(u32::MAX), 1 => 1..=u32::MAX].boxed()
}

fn number(bounds: std::ops::RangeInclusive<u64>) -> BoxedStrategy<u64> {
    prop_oneof![Just(*bounds.start()), Just(*bounds.end()), bounds].boxed()
}

/// A text without a NUL.
fn text() -> BoxedStrategy<String> {
    "[^\0]{0,6}".boxed()
}

fn path() -> BoxedStrategy<String> {
    prop_oneof![
        1 => Just("/".to_owned()),
        8 => (prefix_not_empty(), prop_oneof![Just(""), Just("/")])
            .prop_map(|(path, end)| path + end),
    ]
    .boxed()
}

fn prefix_not_empty() -> BoxedStrategy<String> {
    let segment = prop_oneof![
        Just("a%20b".to_owned()),
        Just("x;y=1".to_owned()),
        Just("...".to_owned()),
        "[A-Za-z0-9_~!$&'()*+,=:@-]{1,5}",
    ];
    let segments = vec(segment, 1..4).prop_map(|segments| format!("/{}", segments.join("/")));
    prop_oneof![
        8 => segments,
        1 => Just(format!("/{}", "p".repeat(1022))),
    ]
    .boxed()
}

fn prefix() -> BoxedStrategy<String> {
    prop_oneof![1 => Just(String::new()), 4 => prefix_not_empty()].boxed()
}

fn path_match() -> BoxedStrategy<PathMatch> {
    prop_oneof![
        path().prop_map(PathMatch::Exact),
        prefix().prop_map(PathMatch::Prefix),
    ]
    .boxed()
}

fn token() -> BoxedStrategy<String> {
    prop_oneof![
        8 => "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,6}",
        1 => Just("X".repeat(256)),
    ]
    .boxed()
}

fn value() -> BoxedStrategy<String> {
    prop_oneof![
        8 => "[!-~]([ -~\t]{0,6}[!-~])?",
        1 => Just("v".repeat(4096)),
    ]
    .boxed()
}

/// Conditions on headers: lower case, each name once.
fn headers() -> BoxedStrategy<Vec<(String, String)>> {
    btree_map("[a-z0-9!_-]{1,5}", value(), 0..3)
        .prop_map(|headers| headers.into_iter().rev().collect())
        .boxed()
}

fn settings() -> BoxedStrategy<Settings> {
    (
        trust_domain(),
        any::<bool>(),
        address_ranges(),
        forwarding(),
    )
        .prop_map(
            |(trust_domain, single_node, address_ranges, forwarding)| Settings {
                trust_domain,
                single_node,
                address_ranges,
                forwarding,
            },
        )
        .boxed()
}

fn forwarding() -> BoxedStrategy<Shared<Forwarding>> {
    let accounts = || {
        btree_set("[a-c]/(default|[a-d])", 0..4).prop_map(|names| {
            let names = names.iter().map(|name| ServiceAccountName::parse(name));
            names.collect::<Result<Vec<_>, _>>().unwrap()
        })
    };
    (accounts(), accounts())
        .prop_map(|(gateways, lazy)| Shared::from(Forwarding { gateways, lazy }))
        .boxed()
}

/// Address ranges, in order.
pub(super) fn address_ranges() -> BoxedStrategy<Vec<Cidr>> {
    let range = (ip(), 0..=128u8).prop_map(|(address, prefix)| {
        let address = address.to_canonical();
        let at_most = if address.is_ipv4() { 32 } else { 128 };
        // As long as it takes for no bit to be beyond it.
        let longer = (prefix.min(at_most)..=at_most).find_map(|prefix| Cidr::new(address, prefix));
        longer.expect("a prefix of the whole address")
    });
    btree_set(range, 0..4)
        .prop_map(|ranges| ranges.into_iter().collect())
        .boxed()
}

fn node() -> BoxedStrategy<Node> {
    (node_name(), ip(), port())
        .prop_map(|(name, ip, port)| Node {
            name,
            address: (ip, port).into(),
        })
        .boxed()
}

fn address() -> BoxedStrategy<AddressOf> {
    let holder = (option::of(node_name()), option::of(ip()));
    (ip(), btree_map(workload_name(), holder, 1..4))
        .prop_map(|(address, holders)| {
            let holder = |(workload, (node, first)): (_, (_, Option<IpAddr>))| Holder {
                workload,
                node,
                first: first.filter(|first| *first != address),
            };
            AddressOf {
                address,
                holders: holders.into_iter().map(holder).collect(),
            }
        })
        .boxed()
}

fn endpoint() -> BoxedStrategy<EndpointOf> {
    let room = option::of(number(1..=u64::from(MAX_ROOM)));
    let inside = (
        account(),
        option::of(workload_name()),
        option::of(node_name()),
        any::<bool>(),
    );
    let place = (service_name(), port(), ip(), port());
    let all = (place, weight(), room, option::of(inside));
    all.prop_map(|((service, port, ip, target), weight, room, inside)| {
        let has_envoy = inside.as_ref().is_some_and(|inside| inside.3);
        let (account, workload, node) = inside.map_or((None, None, None), |inside| {
            (Some(inside.0), inside.1, inside.2)
        });
        EndpointOf {
            service,
            port,
            endpoint: Endpoint {
                address: (ip, target).into(),
                weight,
                max_requests: room.map(|room| u32::try_from(room).unwrap()),
                workload,
                remote_workload: None,
                account,
                node,
                has_envoy,
            },
        }
    })
    .boxed()
}

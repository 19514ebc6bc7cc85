//! Random meshes around one workload, with everything that manifests can say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_model::{
    AppProtocol, Backend, BackendTarget, Balancer, Balancing, Ejection, Endpoint, Failing, Filters,
    Forwarding, HashOn, HeaderEdits, HttpMatch, Line, Mesh, Mode, Namespace, Node, NodeName,
    Outcome, PathMatch, PathRewrite, Policy, PolicyAction, PolicyName, PolicyRule, Probe, Proxy,
    Qos, Redirect, RetryBudget, Rewrite, RouteAction, RouteMatch, RouteRule, Service,
    ServiceAccountName, ServiceName, ServicePort, Shared, SourceNamespace, Sources, SpiffeId,
    TrustDomain, Workload, WorkloadName,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Services, of which each mesh has some.
const SERVICES: usize = 6;
/// Values with what means something to Envoy, to RE2, or to parsers of headers.
const VALUES: [&str; 8] = [
    "v1",
    "100%",
    "%START_TIME%",
    "a\\1b",
    "x, \"y\"; q=0.5",
    "[^a]*(?:",
    "ü",
    "a/b?c#d",
];

/// The workload whose Envoy is told.
pub(crate) fn workload_name() -> WorkloadName {
    WorkloadName::new("shop", "web").expect("a name")
}

fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("shop", name).expect("a name")
}

fn service_name(at: usize) -> ServiceName {
    // One is too long for a server name.
    let name = match at {
        0 => format!("{}.{}", "a".repeat(63), "b".repeat(63)),
        _ => format!("s{at}"),
    };
    ServiceName::new("shop", &name).expect("a name")
}

fn value() -> impl Strategy<Value = String> {
    select(VALUES.to_vec()).prop_map(str::to_owned)
}

fn header() -> impl Strategy<Value = (String, String)> {
    (select(vec!["x-a", "x-b", "accept"]), value())
        .prop_map(|(name, value)| (name.to_owned(), value))
}

fn path() -> impl Strategy<Value = String> {
    select(vec!["/a", "/a/b.c", "/x+y", "/(a)[b]", "/%C3%BC", "/a;b"]).prop_map(str::to_owned)
}

fn path_match() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        path().prop_map(PathMatch::Exact),
        path().prop_map(PathMatch::Prefix),
        Just(PathMatch::Prefix(String::new())),
    ]
}

fn once(fields: Vec<(String, String)>) -> Vec<(String, String)> {
    let fields: BTreeMap<String, String> = fields.into_iter().collect();
    fields.into_iter().collect()
}

fn edits() -> impl Strategy<Value = HeaderEdits> {
    let remove = option::of(Just("x-gone".to_owned()));
    (vec(header(), 0..2), vec(header(), 0..2), remove).prop_map(|(set, add, remove)| HeaderEdits {
        set: once(set),
        add: once(add),
        remove: remove.into_iter().collect(),
    })
}

fn path_rewrite() -> impl Strategy<Value = PathRewrite> {
    prop_oneof![
        path().prop_map(PathRewrite::ReplaceFull),
        Just(PathRewrite::ReplaceFull("/a\\0".to_owned())),
        path().prop_map(PathRewrite::ReplacePrefix),
        Just(PathRewrite::ReplacePrefix(String::new())),
    ]
}

fn filters() -> impl Strategy<Value = Filters> {
    let hostname = option::of(Just("other.example".to_owned()));
    let rewrite = option::of((hostname, option::of(path_rewrite())));
    (edits(), edits(), rewrite).prop_map(|(request, response, rewrite)| Filters {
        request,
        response,
        rewrite: rewrite.map(|(hostname, path)| Rewrite { hostname, path }),
    })
}

fn backend() -> impl Strategy<Value = Backend> {
    let target = (option::of(0..SERVICES + 1), select(vec![80, 81, 82, 83]));
    (select(vec![0, 1, 9, 1_000_000]), target, filters()).prop_map(
        |(weight, (service, port), filters)| Backend {
            weight,
            target: match service {
                Some(at) => BackendTarget::Service {
                    service: service_name(at),
                    port,
                },
                None => BackendTarget::Unresolved {
                    reason: "it is not there".to_owned(),
                },
            },
            filters,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let redirect = (
        option::of(select(vec!["http", "https"])),
        option::of(Just("other.example".to_owned())),
        option::of(path_rewrite()),
        option::of(1..=u16::MAX),
        select(vec![301, 302, 303, 307, 308]),
    );
    prop_oneof![
        3 => vec(backend(), 0..3).prop_map(Outcome::Forward),
        1 => redirect.prop_map(|(scheme, hostname, path, port, status)| {
            Outcome::Redirect(Redirect {
                scheme: scheme.map(str::to_owned),
                hostname,
                path,
                port,
                status,
            })
        }),
    ]
}

fn rule() -> impl Strategy<Value = RouteRule> {
    let matcher = (
        path_match(),
        option::of(select(vec!["GET", "QUERY"])),
        vec(header(), 0..2),
        vec(header(), 0..2),
    );
    let times = (option::of(0..5_000_u64), option::of(0..5_000_u64));
    (matcher, filters(), outcome(), times).prop_map(
        |((path, method, headers, query), filters, outcome, times)| RouteRule {
            name: "shop/route".into(),
            rule: 0,
            matcher: RouteMatch {
                path,
                method: method.map(str::to_owned),
                headers: once(headers),
                query: once(query),
            },
            action: Arc::new(RouteAction {
                filters,
                outcome,
                request_timeout_ms: times.0,
                backend_timeout_ms: times.1,
            }),
        },
    )
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let place = select(vec![(false, true), (true, false), (false, false)]);
    let who = select(vec![Some("server"), Some("other"), None]);
    (
        place,
        who,
        1..30_u8,
        select(vec![1, 7, u32::MAX]),
        any::<bool>(),
    )
        .prop_map(
            |((has_envoy, has_node), who, last, weight, is_v6)| Endpoint {
                address: match is_v6 {
                    false => ([10, 0, 0, last], 8_080).into(),
                    true => ([0xfd00, 0, 0, 0, 0, 0, 0, last.into()], 8_080).into(),
                },
                weight,
                max_requests: None,
                workload: None,
                remote_workload: None,
                account: who.map(account),
                node: has_node.then(|| NodeName::parse("n1").expect("a name")),
                has_envoy: has_envoy && who.is_some(),
            },
        )
}

fn port(number: u16) -> impl Strategy<Value = ServicePort> {
    let protocol = select(vec![
        AppProtocol::Http,
        AppProtocol::Undeclared,
        AppProtocol::Tcp,
        AppProtocol::Tls,
        AppProtocol::Grpc,
    ]);
    let routes = option::of(vec(rule(), 0..3));
    let own = option::of(vec(rule(), 0..2));
    (protocol, vec(endpoint(), 0..5), routes, own).prop_map(
        move |(protocol, endpoints, routes, own)| {
            let mut endpoints = endpoints;
            endpoints.sort_by_key(|one| one.address);
            endpoints.dedup_by_key(|one| one.address);
            let shop = Namespace::parse("shop").expect("a name");
            ServicePort {
                name: None,
                port: number,
                protocol,
                endpoints,
                routes,
                consumer_routes: own.map(|own| (shop, own)).into_iter().collect(),
            }
        },
    )
}

fn balancing() -> impl Strategy<Value = Balancing> {
    let ejection = (1..9_u32, any::<bool>(), 1..300_000_u64, 1..=100_u8);
    let ejection = ejection.prop_map(|(after, is_any, base_ms, max_percent)| Ejection {
        after,
        on: match is_any {
            true => Failing::ServerError,
            false => Failing::GatewayFailure,
        },
        base_ms,
        max_percent,
    });
    let hash_on = prop_oneof![
        Just(HashOn::Source),
        Just(HashOn::Header("x-user".to_owned())),
    ];
    let retries = (0..=100_u8, 0..100_000_u32);
    let slow = select(vec![0, 1, 60_000]);
    (hash_on, 0..70_000_u32, option::of(ejection), retries, slow).prop_map(
        |(hash_on, max_waiting, ejection, (percent, min_per_second), slow_start_ms)| Balancing {
            hash_on,
            line: Line {
                max_waiting,
                max_wait_ms: 1,
            },
            ejection,
            retry_budget: RetryBudget {
                percent,
                min_per_second,
            },
            slow_start_ms,
        },
    )
}

fn service(at: usize) -> impl Strategy<Value = Service> {
    let balancer = select(vec![
        Balancer::RoundRobin,
        Balancer::LeastRequest,
        Balancer::PeakEwma,
        Balancer::RingHash,
    ]);
    let ports = (port(80), option::of(port(81)), option::of(port(82)));
    let addresses = 0..3_usize;
    (balancer, balancing(), ports, addresses).prop_map(
        move |(balancer, balancing, (first, second, third), addresses)| {
            let last = u8::try_from(at).expect("few");
            let v6 = [0xfd01, 0, 0, 0, 0, 0, 0, last.into()];
            let all = [[10, 96, 0, last].into(), v6.into()];
            Service {
                name: service_name(at),
                headless: addresses == 0,
                addresses: all.into_iter().take(addresses).collect(),
                balancer,
                balancing,
                ports: [Some(first), second, third].into_iter().flatten().collect(),
            }
        },
    )
}

fn policy(number: usize) -> impl Strategy<Value = Policy> {
    let domain = TrustDomain::default;
    let identities = vec(select(vec!["web", "server", "other"]), 0..3);
    let sources = (identities, any::<bool>()).prop_map(move |(names, has_namespace)| {
        let ids: BTreeSet<SpiffeId> = names
            .into_iter()
            .map(|name| SpiffeId::workload(domain(), account(name)))
            .collect();
        let namespace = SourceNamespace {
            trust_domain: domain(),
            namespace: Namespace::parse("shop").expect("a name"),
        };
        Sources {
            identities: ids.into_iter().collect(),
            namespaces: has_namespace.then_some(namespace).into_iter().collect(),
        }
    });
    let http = (
        vec(select(vec!["GET", "POST"]), 0..2),
        vec(path_match(), 0..3),
        option::of(path()),
        vec(header(), 0..2),
    );
    let http = http.prop_map(|(methods, paths, start, headers)| HttpMatch {
        methods: methods.into_iter().map(str::to_owned).collect(),
        paths,
        path_starts: start.into_iter().collect(),
        headers: once(headers),
    });
    let http = http.prop_filter("a condition", |http| *http != HttpMatch::default());
    let ports = select(vec![vec![], vec![8_080], vec![8_080, 9_090]]);
    let rule = (option::of(sources), ports, option::of(http));
    let rule = rule.prop_map(|(sources, ports, http)| PolicyRule {
        number: 0,
        sources,
        ports,
        http,
    });
    (any::<bool>(), any::<bool>(), vec(rule, 1..3)).prop_map(move |(is_deny, dry_run, rules)| {
        let name = format!("AuthorizationPolicy shop/p{number}");
        Policy {
            name: PolicyName::parse(&name).expect("a name"),
            action: match is_deny {
                true => PolicyAction::Deny,
                false => PolicyAction::Allow,
            },
            dry_run,
            rules,
        }
    })
}

pub(crate) fn workload(policies: &[Policy], is_strict: bool, is_lazy: bool) -> Workload {
    Workload {
        name: workload_name(),
        labels: Default::default(),
        service_account: account("web"),
        address: [10, 0, 9, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: if is_strict {
            Mode::Strict
        } else {
            Mode::Permissive
        },
        policies: policies.iter().map(|policy| policy.name.clone()).collect(),
        probes: vec![Probe {
            port: 8_080,
            path: Some("/healthy".to_owned()),
            query: "a=b".to_owned(),
        }],
        qos: Qos::default(),
        proxy: Proxy::Envoy { lazy: is_lazy },
        command: None,
    }
}

/// A gateway that is an Envoy, and one that is a node.
pub(crate) fn gateways() -> [Workload; 2] {
    [
        ("gate", Proxy::Envoy { lazy: false }, 2),
        ("node-gate", Proxy::Node, 3),
    ]
    .map(|(name, proxy, last)| Workload {
        name: WorkloadName::new("shop", name).expect("a name"),
        service_account: account("gateway"),
        address: [10, 0, 9, last].into(),
        node: NodeName::parse("n1").ok(),
        proxy,
        ..workload(&[], false, false)
    })
}

/// A mesh in which the workload may be eager, lazy, or a gateway.
pub(crate) fn mesh() -> impl Strategy<Value = Mesh> {
    let services: Vec<_> = (0..SERVICES).map(|at| option::of(service(at))).collect();
    let policies = (option::of(policy(0)), option::of(policy(1)));
    let role = select(vec!["eager", "lazy", "gateway"]);
    (services, policies, role, any::<bool>()).prop_map(|(services, policies, role, is_strict)| {
        let policies: Vec<Policy> = [policies.0, policies.1].into_iter().flatten().collect();
        let mut mesh = Mesh {
            generation: 1,
            address_ranges: vec!["10.0.0.0/8".parse().expect("a range")],
            nodes: vec![Node {
                name: NodeName::parse("n1").expect("a name"),
                address: ([10, 1, 0, 1], 15_008).into(),
            }],
            services: services.into_iter().flatten().map(Shared::from).collect(),
            ..Mesh::default()
        };
        mesh.services.sort_by(|a, b| a.name.cmp(&b.name));
        let mut other = workload(&policies, false, true);
        other.name = WorkloadName::new("shop", "other").expect("a name");
        other.service_account = account("other");
        mesh.put_workload(Shared::from(workload(&policies, is_strict, role == "lazy")));
        mesh.put_workload(Shared::from(other));
        for gateway in gateways() {
            mesh.put_workload(Shared::from(gateway));
        }
        mesh.policies = policies.into_iter().map(Arc::new).collect();
        let gateways = match role {
            "gateway" => vec![account("web")],
            "lazy" => vec![account("gateway")],
            _ => Vec::new(),
        };
        mesh.forwarding = Forwarding::of(&mesh, gateways).into();
        mesh
    })
}

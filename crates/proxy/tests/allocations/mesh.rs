//! One Service with routes and policies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use heddle_model::{
    AppProtocol, Backend, BackendTarget, Balancer, Endpoint, Filters, HttpMatch, Mesh, Mode, Node,
    NodeName, Outcome, PathMatch, Policy, PolicyAction, PolicyName, PolicyRule, RouteAction,
    RouteMatch, RouteRule, Service, ServiceAccountName, ServiceName, ServicePort, Workload,
    WorkloadName, WorkloadPort,
};

/// As [`mesh`], with the workload on a node `there` whose proxy accepts connections at `address`, and a second node
/// `here`.
pub(crate) fn on_another_node(endpoint: SocketAddr, address: SocketAddr) -> Mesh {
    let name = |name| NodeName::parse(name).unwrap();
    let mut mesh = mesh(endpoint);
    mesh.workloads[0].node = Some(name("there"));
    mesh.services[0].ports[0].endpoints[0].node = Some(name("there"));
    let there = name("there");
    mesh.nodes = vec![Node {
        name: there,
        address,
    }];
    mesh
}

fn rule(path: &str, header: Option<(&str, &str)>) -> RouteRule {
    let service = ServiceName::parse("test/echo").unwrap();
    RouteRule {
        name: "test/route".into(),
        rule: 0,
        matcher: RouteMatch {
            path: PathMatch::Prefix(path.into()),
            method: None,
            headers: header
                .iter()
                .map(|(n, v)| ((*n).into(), (*v).into()))
                .collect(),
            query: Vec::new(),
        },
        action: Arc::new(RouteAction {
            filters: Filters::default(),
            outcome: Outcome::Forward(vec![Backend {
                weight: 1,
                target: BackendTarget::Service { service, port: 80 },
                filters: Filters::default(),
            }]),
            request_timeout_ms: Some(10_000),
            backend_timeout_ms: None,
        }),
    }
}

pub(crate) fn mesh(endpoint: SocketAddr) -> Mesh {
    let rules = vec![
        rule("/admin", None),
        rule("/api", Some(("x-canary", "1"))),
        rule("", None),
    ];
    let port = ServicePort {
        name: None,
        port: 80,
        protocol: AppProtocol::Http,
        endpoints: vec![Endpoint {
            address: endpoint,
            weight: 1,
            max_requests: None,
            workload: Some(WorkloadName::parse("test/echo").unwrap()),
            remote_workload: None,
            account: Some(ServiceAccountName::parse("test/echo").unwrap()),
            node: None,
            has_envoy: false,
        }],
        routes: Some(rules),
        consumer_routes: BTreeMap::new(),
    };
    let name = ServiceName::parse("test/echo").unwrap();
    let service = Service {
        name,
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::LeastRequest,
        balancing: heddle_model::Balancing::default(),
        ports: vec![port],
    };
    let policies = vec![
        policy("callers", PolicyAction::Allow, &["GET", "POST"], &[]),
        policy("guests", PolicyAction::Deny, &[], &[("x-guest", "yes")]),
    ];
    let mesh = Mesh {
        generation: 1,
        services: vec![service.into()],
        workloads: vec![workload(endpoint, &policies).into()].into(),
        policies,
        ..Mesh::default()
    };
    mesh.check_invariants().unwrap();
    mesh
}

/// Applies to every caller, for requests with one of these methods and all of these headers.
fn policy(
    name: &str,
    action: PolicyAction,
    methods: &[&str],
    headers: &[(&str, &str)],
) -> Arc<Policy> {
    let http = HttpMatch {
        methods: methods.iter().map(|&method| method.into()).collect(),
        paths: vec![PathMatch::Prefix(String::new())],
        path_starts: Vec::new(),
        headers: headers
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect(),
    };
    Arc::new(Policy {
        name: PolicyName::parse(&format!("AuthorizationPolicy test/{name}")).unwrap(),
        action,
        dry_run: false,
        rules: vec![PolicyRule {
            number: 0,
            sources: None,
            ports: Vec::new(),
            http: Some(http),
        }],
    })
}

fn workload(endpoint: SocketAddr, policies: &[Arc<Policy>]) -> Workload {
    Workload {
        name: WorkloadName::parse("test/echo").unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::parse("test/echo").unwrap(),
        address: endpoint.ip(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: vec![WorkloadPort {
            name: None,
            port: endpoint.port(),
        }],
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: policies.iter().map(|policy| policy.name.clone()).collect(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

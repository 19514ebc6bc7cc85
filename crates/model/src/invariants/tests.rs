use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::{
    AppProtocol, Backend, BackendTarget, Balancer, Balancing, Command, Ejection, Endpoint, Failing,
    Filters, HashOn, HttpMatch, Line, MAX_ROOM, MAX_SLOW_START_MS, Mode, NodeName, Outcome, Pages,
    Policy, PolicyAction, PolicyKind, PolicyName, PolicyRule, Probe, Redirect, RouteAction,
    RouteMatch, RouteRule, ServiceAccountName, ServiceName, ServicePort, SourceNamespace, Sources,
    Workload, WorkloadName,
};

fn rule() -> RouteRule {
    RouteRule {
        name: "a/r".into(),
        rule: 0,
        matcher: RouteMatch {
            path: PathMatch::Prefix("/a".into()),
            method: None,
            headers: vec![("x".into(), "1".into())],
            query: Vec::new(),
        },
        action: Arc::new(RouteAction {
            filters: Filters::default(),
            outcome: Outcome::Forward(vec![Backend {
                weight: 1,
                target: BackendTarget::Service {
                    service: ServiceName::parse("a/s").unwrap(),
                    port: 80,
                },
                filters: Filters::default(),
            }]),
            request_timeout_ms: Some(10),
            backend_timeout_ms: Some(10),
        }),
    }
}

fn mesh() -> Mesh {
    let workload = WorkloadName::parse("a/w").unwrap();
    Mesh {
        generation: 1,
        services: vec![
            Service {
                name: ServiceName::parse("a/s").unwrap(),
                headless: false,
                addresses: Vec::new(),
                balancer: Balancer::default(),
                balancing: crate::Balancing::default(),
                ports: vec![ServicePort {
                    name: None,
                    port: 80,
                    protocol: AppProtocol::Http,
                    endpoints: vec![Endpoint {
                        address: "127.0.0.1:80".parse().unwrap(),
                        weight: 1,
                        max_requests: None,
                        workload: Some(workload.clone()),
                        remote_workload: None,
                        account: Some(ServiceAccountName::parse("a/default").unwrap()),
                        node: None,
                        has_envoy: false,
                    }],
                    routes: Some(vec![rule()]),
                    consumer_routes: BTreeMap::new(),
                }],
            }
            .into(),
        ],
        workloads: Pages::from(vec![
            Workload {
                qos: Default::default(),
                name: workload,
                labels: crate::Shared::default(),
                service_account: ServiceAccountName::parse("a/default").unwrap(),
                address: "127.0.0.1".parse().unwrap(),
                uses: Vec::new(),
                more_addresses: Vec::new(),
                ports: Vec::new(),
                weight: 1,
                node: None,
                mode: Mode::Permissive,
                policies: vec![policy_name()],
                probes: vec![Probe {
                    port: 80,
                    path: Some("/healthz".into()),
                    query: "full".into(),
                }],
                proxy: crate::Proxy::Node,
                command: Some(Command {
                    argv: vec!["run".into()],
                    env: BTreeMap::new(),
                    working_dir: Some("/".into()),
                }),
            }
            .into(),
        ]),
        nodes: vec![Node {
            name: NodeName::parse("n").unwrap(),
            address: "10.0.0.1:15008".parse().unwrap(),
        }],
        policies: vec![Arc::new(policy())],
        ..Mesh::default()
    }
}

fn policy_name() -> PolicyName {
    PolicyName::parse("AuthorizationPolicy a/p").unwrap()
}

fn policy() -> Policy {
    Policy {
        name: policy_name(),
        action: PolicyAction::Deny,
        dry_run: false,
        rules: vec![PolicyRule {
            number: 0,
            sources: Some(Sources {
                identities: vec![SpiffeId::parse("spiffe://cluster.local/ns/b/sa/c").unwrap()],
                namespaces: vec![SourceNamespace {
                    trust_domain: crate::TrustDomain::default(),
                    namespace: crate::Namespace::parse("c").unwrap(),
                }],
            }),
            ports: vec![80, 81],
            http: Some(HttpMatch {
                methods: vec!["GET".into()],
                paths: vec![PathMatch::Exact("/a%20b;c".into())],
                path_starts: vec!["/start".into()],
                headers: vec![("x".into(), "1".into())],
            }),
        }],
    }
}

fn with_policy(change: impl FnOnce(&mut Policy)) -> Mesh {
    with(|mesh| change(Arc::make_mut(&mut mesh.policies[0])))
}

fn with_http(change: impl FnOnce(&mut HttpMatch)) -> Mesh {
    with_policy(|policy| change(policy.rules[0].http.as_mut().unwrap()))
}

fn with_probe(change: impl FnOnce(&mut Probe)) -> Mesh {
    with(|mesh| change(&mut mesh.workloads[0].probes[0]))
}

fn with_endpoint(change: impl FnOnce(&mut Endpoint)) -> Mesh {
    with(|mesh| change(&mut mesh.services[0].ports[0].endpoints[0]))
}

fn with_balancing(change: impl FnOnce(&mut Balancing)) -> Mesh {
    with(|mesh| change(&mut mesh.services[0].balancing))
}

fn with_ejection(change: impl FnOnce(&mut Ejection)) -> Mesh {
    with_balancing(|balancing| {
        let mut ejection = Ejection {
            after: 5,
            on: Failing::ServerError,
            base_ms: Ejection::BASE_MS,
            max_percent: Ejection::MAX_PERCENT,
        };
        change(&mut ejection);
        balancing.ejection = Some(ejection);
    })
}

fn with_rule(change: impl FnOnce(&mut RouteRule)) -> Mesh {
    let mut mesh = mesh();
    let mut changed = rule();
    change(&mut changed);
    mesh.services[0].ports[0].routes = Some(vec![changed]);
    mesh
}

fn with_action(change: impl FnOnce(&mut RouteAction)) -> Mesh {
    with_rule(|rule| change(Arc::get_mut(&mut rule.action).unwrap()))
}

fn redirect(change: impl FnOnce(&mut Redirect)) -> Outcome {
    let mut redirect = Redirect {
        scheme: None,
        hostname: None,
        path: None,
        port: None,
        status: 301,
    };
    change(&mut redirect);
    Outcome::Redirect(redirect)
}

thread_local! {
    static WHOLE: Mesh = mesh();
}

/// What does not change is the same object as in the whole one.
fn with(change: impl FnOnce(&mut Mesh)) -> Mesh {
    let mut mesh = WHOLE.with(Mesh::clone);
    change(&mut mesh);
    mesh
}

#[test]
fn a_mesh_that_keeps_its_promises_passes() {
    assert_eq!(mesh().check_invariants(), Ok(()));
    assert_eq!(Mesh::default().check_invariants(), Ok(()));
    assert_eq!(with_ejection(|_| {}).check_invariants(), Ok(()));
}

#[test]
fn every_broken_promise_is_found() {
    let set = |name: &str, value: &str| {
        let pair = (name.to_owned(), value.to_owned());
        with_action(|action| action.filters.request.set.push(pair))
    };
    let broken = [
        with(|mesh| mesh.services.push(mesh.services[0].clone())),
        with(|mesh| mesh.services.insert(0, mesh.services[0].clone())),
        with(|mesh| mesh.trust_domain = crate::TrustDomain::parse(&["d"; 127].join(".")).unwrap()),
        with(|mesh| mesh.workloads = Pages::default()),
        with(|mesh| mesh.workloads[0].weight = 0),
        with(|mesh| mesh.workloads[0].command.as_mut().unwrap().argv.clear()),
        with(|mesh| mesh.services[0].ports[0].port = 0),
        with(|mesh| mesh.services[0].ports[0].endpoints[0].weight = 0),
        with(|mesh| mesh.services[0].ports[0].port = 81),
        with_endpoint(|endpoint| endpoint.max_requests = Some(0)),
        with_endpoint(|endpoint| endpoint.max_requests = Some(MAX_ROOM + 1)),
        with_balancing(|balancing| balancing.hash_on = HashOn::Header("X-User".into())),
        with_balancing(|balancing| balancing.line.max_wait_ms = 0),
        with_balancing(|balancing| balancing.line.max_waiting = Line::MOST + 1),
        with_balancing(|balancing| balancing.retry_budget.percent = 101),
        with_balancing(|balancing| balancing.slow_start_ms = MAX_SLOW_START_MS + 1),
        with_ejection(|ejection| ejection.after = 0),
        with_ejection(|ejection| ejection.base_ms = 0),
        with_ejection(|ejection| ejection.max_percent = 101),
        with_rule(|rule| rule.matcher.path = PathMatch::Prefix("/".into())),
        with_rule(|rule| rule.matcher.path = PathMatch::Exact("a".into())),
        with_rule(|rule| rule.matcher.headers.push(("x".into(), "2".into()))),
        with_rule(|rule| rule.matcher.headers[0].0 = "X".into()),
        with_action(|action| action.backend_timeout_ms = Some(11)),
        with_action(|action| {
            action.outcome = redirect(|redirect| redirect.status = 200);
        }),
        with_action(|action| action.outcome = redirect(|redirect| redirect.port = Some(0))),
        with_action(|action| {
            action.outcome = redirect(|redirect| redirect.hostname = Some("a\r\nb: c".into()));
        }),
        with_action(|action| {
            action.outcome = redirect(|redirect| redirect.scheme = Some("javascript".into()));
        }),
        with_rule(|rule| rule.matcher.method = Some("G T".into())),
        with_rule(|rule| rule.name = "a\nb".into()),
        with(|mesh| mesh.services[0].addresses = vec![[127, 0, 0, 1].into()]),
        with(|mesh| mesh.services[0].addresses = vec![[10, 96, 0, 1].into(); 2]),
        with(|mesh| {
            mesh.services[0].addresses = vec![[10, 96, 0, 1].into()];
            mesh.services[0].headless = true;
        }),
        with(|mesh| {
            mesh.services[0].addresses = vec![[10, 96, 0, 1].into()];
            let mut other = mesh.services[0].clone();
            other.name = ServiceName::parse("a/t").unwrap();
            mesh.services.push(other);
        }),
        with(|mesh| mesh.workloads[0].more_addresses = vec![[127, 0, 0, 1].into()]),
        with(|mesh| mesh.workloads[0].more_addresses = vec![[10, 0, 0, 1].into(); 2]),
        with(|mesh| mesh.elsewhere = vec![[0, 0, 0, 0].into()]),
        with(|mesh| mesh.elsewhere = vec![[10, 0, 0, 2].into(), [10, 0, 0, 1].into()]),
        with(|mesh| mesh.nodes.push(mesh.nodes[0].clone())),
        with(|mesh| mesh.nodes[0].address.set_port(0)),
        with(|mesh| mesh.nodes[0].address.set_ip([0, 0, 0, 0].into())),
        with(|mesh| mesh.nodes[0].name = NodeName::parse(&["a"; 123].join(".")).unwrap()),
        with(|mesh| mesh.policies.clear()),
        with(|mesh| mesh.policies.push(Arc::new(policy()))),
        with(|mesh| mesh.workloads[0].policies.clear()),
        with(|mesh| mesh.workloads[0].policies.push(policy_name())),
        with(|mesh| mesh.workloads[0].service_account = ServiceAccountName::parse("b/c").unwrap()),
        with(|mesh| mesh.workloads[0].node = Some(NodeName::parse("n").unwrap())),
        with(|mesh| mesh.workloads[0].address = [127, 0, 0, 2].into()),
        with(|mesh| {
            let probes = &mut mesh.workloads[0].probes;
            probes.push(probes[0].clone());
        }),
        with_endpoint(|endpoint| endpoint.account = None),
        with_endpoint(|endpoint| {
            endpoint.account = Some(ServiceAccountName::parse("a/b").unwrap());
        }),
        with_endpoint(|endpoint| {
            endpoint.workload = None;
            endpoint.account = Some(ServiceAccountName::new("a", &["b"; 120].join(".")).unwrap());
        }),
        with_probe(|probe| probe.port = 0),
        with_probe(|probe| probe.path = Some("/a?b".into())),
        with_probe(|probe| probe.path = None),
        with_probe(|probe| probe.query = "a b".into()),
        with_policy(|policy| policy.rules.clear()),
        with_policy(|policy| policy.name.kind = PolicyKind::TrafficTarget),
        with_policy(|policy| policy.name.namespace = crate::Namespace::parse("b").unwrap()),
        with_policy(|policy| policy.rules[0].ports = vec![81, 80]),
        with_policy(|policy| policy.rules[0].ports = vec![0]),
        with_policy(|policy| {
            let sources = policy.rules[0].sources.as_mut().unwrap();
            sources.identities.push(sources.identities[0].clone());
        }),
        with_policy(|policy| {
            let sources = policy.rules[0].sources.as_mut().unwrap();
            sources.identities[0] = SpiffeId::control(crate::TrustDomain::default());
        }),
        with_policy(|policy| policy.rules[0].http = Some(HttpMatch::default())),
        with_policy(|policy| policy.rules = vec![policy.rules[0].clone(); 4_097]),
        with_http(|http| http.methods[0] = "G T".into()),
        with_http(|http| http.paths[0] = PathMatch::Exact("/a/../b".into())),
        with_http(|http| http.paths[0] = PathMatch::Exact("/a//b".into())),
        with_http(|http| http.paths[0] = PathMatch::Exact("/%61".into())),
        with_http(|http| http.paths[0] = PathMatch::Exact("/a%2Fb".into())),
        with_http(|http| http.paths[0] = PathMatch::Exact("/a%2".into())),
        with_http(|http| http.paths[0] = PathMatch::Exact("/a%3Bb/..%3Bc".into())),
        with_http(|http| http.paths[0] = PathMatch::Prefix("/a/".into())),
        with_http(|http| http.path_starts[0] = "start".into()),
        with_http(|http| http.headers[0].0 = "X".into()),
        with_http(|http| http.headers[0].1 = "a\n".into()),
        with_http(|http| http.headers.push(("x".into(), "2".into()))),
        set("a b", "c"),
        set("a", "c\r\nd: e"),
        set("a", " c"),
        set("Content-Length", "1"),
    ];
    for (number, mesh) in broken.iter().enumerate() {
        assert!(mesh.check_invariants().is_err(), "number {number} passes");
        // A mesh that has passed hides nothing of the next one.
        let checked = WHOLE.with(|whole| mesh.check_part_after(whole));
        assert_eq!(checked, mesh.check_part(), "number {number}");
    }
}

/// A Service that stays may lead to one that does not.
#[test]
fn a_route_of_a_service_that_stays_leads_somewhere() {
    let before = with(|mesh| {
        let mut target = mesh.services[0].clone();
        target.name = ServiceName::parse("a/t").unwrap();
        target.addresses.clear();
        let mut changed = rule();
        let action = Arc::get_mut(&mut changed.action).unwrap();
        action.outcome = Outcome::Forward(vec![Backend {
            weight: 1,
            target: BackendTarget::Service {
                service: target.name.clone(),
                port: target.ports[0].port,
            },
            filters: Filters::default(),
        }]);
        mesh.services[0].ports[0].routes = Some(vec![changed]);
        mesh.services.push(target);
    });
    assert_eq!(before.check_part(), Ok(()));
    let mut now = before.clone();
    assert_eq!(now.check_part_after(&before), Ok(()));
    now.services.pop();
    let checked = now.check_part_after(&before);
    assert!(
        checked.is_err() && checked == now.check_part(),
        "{checked:?}"
    );
    // The Service stays, and its port goes.
    let mut now = before.clone();
    now.services[1].ports.clear();
    let checked = now.check_part_after(&before);
    assert!(
        checked.is_err() && checked == now.check_part(),
        "{checked:?}"
    );
}

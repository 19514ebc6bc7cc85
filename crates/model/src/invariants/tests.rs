use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::{
    AppProtocol, Backend, Balancer, Command, Endpoint, Mode, Redirect, RouteAction,
    ServiceAccountName, ServiceName, WorkloadName,
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
        services: vec![Service {
            name: ServiceName::parse("a/s").unwrap(),
            headless: false,
            balancer: Balancer::default(),
            ports: vec![ServicePort {
                name: None,
                port: 80,
                protocol: AppProtocol::Http,
                endpoints: vec![Endpoint {
                    address: "127.0.0.1:80".parse().unwrap(),
                    weight: 1,
                    workload: Some(workload.clone()),
                    account: Some(ServiceAccountName::parse("a/default").unwrap()),
                    node: None,
                }],
                routes: Some(vec![rule()]),
                consumer_routes: BTreeMap::new(),
            }],
        }],
        workloads: vec![Workload {
            name: workload,
            labels: BTreeMap::new(),
            service_account: ServiceAccountName::parse("a/default").unwrap(),
            address: "127.0.0.1".parse().unwrap(),
            ports: Vec::new(),
            weight: 1,
            node: None,
            mode: Mode::Permissive,
            policies: Vec::new(),
            probes: Vec::new(),
            command: Some(Command {
                argv: vec!["run".into()],
                env: BTreeMap::new(),
                working_dir: Some("/".into()),
            }),
        }],
        ..Mesh::default()
    }
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

fn with(change: impl FnOnce(&mut Mesh)) -> Mesh {
    let mut mesh = mesh();
    change(&mut mesh);
    mesh
}

#[test]
fn a_mesh_that_keeps_its_promises_passes() {
    assert_eq!(mesh().check_invariants(), Ok(()));
    assert_eq!(Mesh::default().check_invariants(), Ok(()));
}

#[test]
fn every_broken_promise_is_found() {
    let set = |name: &str, value: &str| {
        let pair = (name.to_owned(), value.to_owned());
        with_action(|action| action.filters.request.set.push(pair))
    };
    let broken = [
        with(|mesh| mesh.services.push(mesh.services[0].clone())),
        with(|mesh| mesh.workloads.clear()),
        with(|mesh| mesh.workloads[0].weight = 0),
        with(|mesh| mesh.workloads[0].command.as_mut().unwrap().argv.clear()),
        with(|mesh| mesh.services[0].ports[0].port = 0),
        with(|mesh| mesh.services[0].ports[0].endpoints[0].weight = 0),
        with(|mesh| mesh.services[0].ports[0].port = 81),
        with_rule(|rule| rule.matcher.path = PathMatch::Prefix("/".into())),
        with_rule(|rule| rule.matcher.path = PathMatch::Exact("a".into())),
        with_rule(|rule| rule.matcher.headers.push(("x".into(), "2".into()))),
        with_rule(|rule| rule.matcher.headers[0].0 = "X".into()),
        with_action(|action| action.backend_timeout_ms = Some(11)),
        with_action(|action| {
            action.outcome = Outcome::Redirect(Redirect {
                scheme: None,
                hostname: None,
                path: None,
                port: None,
                status: 200,
            });
        }),
        set("a b", "c"),
        set("a", "c\r\nd: e"),
        set("a", " c"),
        set("Content-Length", "1"),
    ];
    for (number, mesh) in broken.iter().enumerate() {
        assert!(mesh.check_invariants().is_err(), "number {number} passes");
    }
}

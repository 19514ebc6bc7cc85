//! Connections from outside the mesh that arrive at pods.

use heddle_model::{AppProtocol, Mesh, Mode, Probe, ServiceName};

use super::bed::{ECHO, Steered, mesh, name};
use crate::policy::{allow, with, workload};
use crate::support::{GET, Upstream, get, serve_at};

fn strict(mut mesh: Mesh) -> Mesh {
    let echo = &mut mesh.workloads[0];
    assert_eq!(echo.name, name("echo"));
    echo.mode = Mode::Strict;
    echo.probes = vec![Probe {
        port: echo.ports[0].port,
        path: Some("/healthz".into()),
        query: String::new(),
    }];
    mesh.generation += 1;
    mesh.check_invariants().unwrap();
    mesh
}

#[test]
fn a_client_from_outside_gets_in_unless_an_identity_is_asked_for() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let open = mesh(endpoint, AppProtocol::Http);
    let steered = Steered::new(&open, &["echo"]);
    let get = |path: &str| steered.get(steered.arrive("echo", endpoint), path);
    assert_eq!(get("/"), 200);
    steered.expect_asked(&[(1, None)]);
    let labels = [
        "source=\"unidentified\"",
        "destination_service=\"test/echo\"",
    ];
    steered.expect("heddle_http_requests_total", &labels, 1.0);
    steered.apply(&strict(open.clone()));
    assert_eq!(get("/"), 403);
    assert_eq!(get("/healthz"), 200, "a health check is let in");
    let mut named = with(open, allow("shop"));
    named.generation += 1;
    steered.apply(&named);
    assert_eq!(get("/"), 403, "it has no identity");
}

#[test]
fn a_port_of_no_service_is_found_out_and_guarded_as_well() {
    let (known, own) = (Upstream::at(ECHO), Upstream::at(ECHO));
    let open = mesh(known.address, AppProtocol::Http);
    let steered = Steered::new(&open, &["echo"]);
    let _client = steered
        .arrive("echo", own.address)
        .sending("SSH-2.0-a_client\r\n");
    assert_eq!(own.accept().exact(18), b"SSH-2.0-a_client\r\n");
    let label = ["destination_service=\"test/echo\""];
    steered.expect("heddle_tcp_connections_total", &label, 1.0);
    let _client = steered.arrive("echo", own.address).sending(GET);
    assert!(own.accept().head().starts_with("GET / HTTP/1.1"));
    steered.apply(&strict(open));
    assert_eq!(steered.arrive("echo", own.address).rest(), b"");
    steered.expect_rejected("policy_denied", 1.0);
}

#[test]
fn a_pod_guards_a_port_that_another_workload_claims() {
    let known = serve_at(ECHO, |_| "ok".into());
    let own = serve_at(ECHO, |_| "own".into());
    let mut open = mesh(known, AppProtocol::Http);
    let mut other = workload("other", own);
    other.mode = Mode::Strict;
    other.probes = vec![Probe {
        port: own.port(),
        path: Some("/".into()),
        query: String::new(),
    }];
    let mut service = open.services[0].clone();
    service.name = ServiceName::new("test", "other").unwrap();
    service.addresses.clear();
    let endpoint = &mut service.ports[0].endpoints[0];
    (endpoint.address, endpoint.workload) = (own, Some(other.name.clone()));
    endpoint.account = Some(other.service_account.clone());
    open.services.push(service);
    open.put_workload(other.into());
    open.check_invariants().unwrap();
    let steered = Steered::new(&open, &["echo"]);
    let get = || steered.get(steered.arrive("echo", own), "/");
    assert_eq!(get(), 200);
    steered.apply(&strict(open));
    assert_eq!(get(), 403, "the pod is asked, too");
}

#[test]
fn a_further_address_is_the_workloads() {
    let endpoint = serve_at(ECHO, |_| "first".into());
    let further = format!("127.30.1.9:{}", endpoint.port());
    let further = serve_at(&further, |_| "further".into());
    let mut mesh = mesh(endpoint, AppProtocol::Http);
    mesh.workloads[0].more_addresses = vec![further.ip()];
    let mesh = strict(mesh);
    let steered = Steered::new(&mesh, &["echo", "shop"]);
    let arrived = || steered.arrive("echo", further);
    assert_eq!(steered.get(arrived(), "/"), 403, "it is as strict there");
    let answer = arrived().ask(get("/healthz"));
    assert_eq!(answer.body, b"further");
    let labels = ["destination_service=\"test/echo\""];
    steered.expect("heddle_http_requests_total", &labels, 2.0);
    let answer = steered.dial("shop", further).ask(GET);
    assert_eq!(answer.body, b"further");
    // The Service's port and protocol apply to each of the addresses.
    steered.expect("heddle_http_requests_total", &labels, 3.0);
}

#[test]
fn what_cannot_be_delivered_is_refused() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Tcp, &["shop"]);
    // This connection would be redirected to the proxy again.
    assert_eq!(steered.arrive("echo", upstream.address).rest(), b"");
    steered.expect_rejected("pod_gone", 1.0);
    assert_eq!(steered.arrive("stranger", upstream.address).rest(), b"");
    steered.expect_rejected("workload_not_in_mesh", 1.0);
    assert!(upstream.is_quiet());
}

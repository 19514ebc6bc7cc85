//! Policies: allowed and refused callers, and the effect of changes on open connections.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use heddle_model::{
    AppProtocol, HttpMatch, Mesh, Mode, Pages, PathMatch, Policy, PolicyAction, PolicyName,
    PolicyRule, Probe, ServiceAccountName, Sources, SpiffeId, Workload, WorkloadName, WorkloadPort,
};
use heddle_proxy::Settings;

use crate::balancing::{line, waiting};
use crate::support::{
    Bed, Client, GET, PATIENCE, Upstream, echo_entry, get, mesh, open, quick, serve, taking_none,
};

/// Callers with an identity.
pub(crate) const CALLERS: [&str; 2] = ["shop", "intruder"];

pub(crate) fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("test", name).unwrap()
}

pub(crate) fn workload(name: &str, address: SocketAddr) -> Workload {
    Workload {
        name: WorkloadName::new("test", name).unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: account(name),
        address: address.ip(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: vec![WorkloadPort {
            name: None,
            port: address.port(),
        }],
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

/// The echo Service with one workload, and two callers.
pub(crate) fn guarded(endpoint: SocketAddr, protocol: AppProtocol) -> Mesh {
    let mut mesh = mesh(&[endpoint], None);
    let port = &mut mesh.services[0].ports[0];
    port.protocol = protocol;
    port.endpoints[0].workload = Some(WorkloadName::new("test", "echo").unwrap());
    port.endpoints[0].account = Some(account("echo"));
    let nowhere = SocketAddr::from((IpAddr::from([127, 0, 0, 1]), 1));
    let callers = CALLERS.iter().map(|name| workload(name, nowhere));
    mesh.workloads = Pages::default();
    for workload in callers.chain([workload("echo", endpoint)]) {
        mesh.put_workload(workload.into());
    }
    mesh
}

fn echo(mesh: &mut Mesh) -> &mut Workload {
    let found = mesh.workloads.iter_mut();
    let mut found = found.filter(|workload| workload.name.name.as_str() == "echo");
    found.next().unwrap()
}

/// Replaces the policies of the echo workload.
pub(crate) fn with(mut mesh: Mesh, policies: Vec<Policy>) -> Mesh {
    mesh.generation += 1;
    echo(&mut mesh).policies = policies.iter().map(|policy| policy.name.clone()).collect();
    mesh.policies = policies.into_iter().map(Arc::new).collect();
    mesh.check_invariants().unwrap();
    mesh
}

pub(crate) fn policy(name: &str, action: PolicyAction, rules: Vec<PolicyRule>) -> Policy {
    let name = format!("AuthorizationPolicy test/{name}");
    Policy {
        name: PolicyName::parse(&name).unwrap(),
        action,
        dry_run: false,
        rules,
    }
}

pub(crate) fn from(caller: &str) -> PolicyRule {
    let id = SpiffeId::workload(Mesh::default().trust_domain, account(caller));
    PolicyRule {
        number: 0,
        sources: Some(Sources {
            identities: vec![id],
            namespaces: Vec::new(),
        }),
        ports: Vec::new(),
        http: None,
    }
}

/// A rule for the shop's requests that match this.
pub(crate) fn asking(http: HttpMatch) -> PolicyRule {
    PolicyRule {
        http: Some(http),
        ..from("shop")
    }
}

/// A rule for the shop's requests with this path.
pub(crate) fn asking_for(path: PathMatch) -> PolicyRule {
    asking(HttpMatch {
        paths: vec![path],
        ..HttpMatch::default()
    })
}

pub(crate) fn allow(caller: &str) -> Vec<Policy> {
    vec![policy("callers", PolicyAction::Allow, vec![from(caller)])]
}

/// A proxy with a listener for each caller.
pub(crate) struct Guarded {
    pub(crate) bed: Bed,
    doors: BTreeMap<&'static str, SocketAddr>,
}

impl Guarded {
    pub(crate) fn new(mesh: &Mesh) -> Guarded {
        Guarded::with(Settings::default(), mesh)
    }

    pub(crate) fn with(settings: Settings, mesh: &Mesh) -> Guarded {
        let bed = Bed::with(settings, mesh);
        let mut doors = BTreeMap::new();
        for (id, caller) in (10..).zip(CALLERS) {
            let entry = echo_entry(Some(WorkloadName::new("test", caller).unwrap()));
            doors.insert(caller, open(&bed.proxy, id, entry));
        }
        Guarded { bed, doors }
    }

    pub(crate) fn client(&self, caller: &str) -> Client {
        Client::connect(*self.doors.get(caller).unwrap_or(&self.bed.address))
    }

    /// A client that has sent these bytes.
    pub(crate) fn sending(&self, caller: &str, bytes: impl AsRef<[u8]>) -> Client {
        self.client(caller).sending(bytes)
    }

    /// The status of a request on a connection of its own.
    pub(crate) fn status(&self, caller: &str, line: &str, fields: &str) -> u16 {
        let request = format!("{line} HTTP/1.1\r\nHost: echo.test\r\n{fields}\r\n");
        self.client(caller).ask(request).status()
    }

    fn get(&self, caller: &str) -> u16 {
        self.status(caller, "GET /", "")
    }
}

#[test]
fn only_callers_that_a_rule_names_get_through() {
    let mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
    let bed = Guarded::new(&mesh);
    for caller in ["shop", "intruder", "unidentified"] {
        assert_eq!(bed.get(caller), 200, "{caller}, without policies");
    }
    bed.bed.apply(&with(mesh, allow("shop")));
    assert_eq!(bed.get("shop"), 200);
    assert_eq!(bed.get("unidentified"), 403);
    let mut intruder = bed.client("intruder");
    assert_eq!(intruder.ask(GET).verdict(), (403, "policy_denied"));
    // A refused client may send other requests on the same connection.
    assert_eq!(intruder.ask(GET).status(), 403);
    bed.bed.expect_rejected("policy_denied", 3.0);
}

#[test]
fn rules_see_the_request_as_the_endpoint_gets_it() {
    let rule = asking(HttpMatch {
        methods: vec!["GET".into()],
        paths: vec![PathMatch::Prefix("/public".into())],
        path_starts: Vec::new(),
        headers: vec![("x-team".into(), "blue".into())],
    });
    let policies = vec![policy("paths", PolicyAction::Allow, vec![rule])];
    let mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
    let bed = Guarded::new(&with(mesh, policies));
    let blue = "X-Team: blue\r\n";
    for (line, fields, status) in [
        ("GET /public/a", blue, 200),
        ("GET /public", blue, 200),
        ("GET /private/../public/a", blue, 400),
        ("GET /%70ublic/a?x=/private", blue, 200),
        ("GET /publicity", blue, 403),
        ("GET /public/../private", blue, 400),
        ("GET /private", blue, 403),
        (
            "POST /public/a",
            "X-Team: blue\r\nContent-Length: 0\r\n",
            403,
        ),
        ("GET /public/a", "", 403),
        ("GET /public/a", "X-Team: red\r\n", 403),
        ("GET /public/..%2fprivate", blue, 400),
    ] {
        assert_eq!(
            bed.status("shop", line, fields),
            status,
            "{line} {fields:?}"
        );
    }
}

#[test]
fn a_strict_workload_takes_no_caller_without_identity_but_its_health_checks() {
    let mut mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
    echo(&mut mesh).mode = Mode::Strict;
    let port = echo(&mut mesh).ports[0].port;
    echo(&mut mesh).probes = vec![Probe {
        port,
        path: Some("/healthz".into()),
        query: String::new(),
    }];
    let bed = Guarded::new(&mesh);
    assert_eq!(bed.get("shop"), 200);
    assert_eq!(bed.get("unidentified"), 403);
    assert_eq!(bed.status("unidentified", "GET /healthz", ""), 200);
    assert_eq!(bed.status("unidentified", "GET /healthz/x", ""), 403);
    assert_eq!(bed.status("unidentified", "GET /healthz?x", ""), 403);
    let post = bed.status("unidentified", "POST /healthz", "Content-Length: 0\r\n");
    assert_eq!(post, 403);
    // A health check cannot carry anything else: neither a body nor another protocol.
    for more in [
        "Content-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: upgrade\r\nUpgrade: websocket\r\n",
    ] {
        let status = bed.status("unidentified", "GET /healthz", more);
        assert_eq!(status, 403, "{more}");
    }
}

#[test]
fn opaque_connections_that_no_rule_allows_are_reset_and_reach_no_endpoint() {
    let upstream = Upstream::new();
    let mesh = guarded(upstream.address, AppProtocol::Tcp);
    let bed = Guarded::new(&with(mesh, allow("shop")));
    for caller in ["intruder", "unidentified"] {
        assert_eq!(bed.client(caller).rest(), b"");
    }
    let denied = ["reason=\"policy_denied\""];
    bed.bed
        .expect("heddle_tcp_connections_failed_total", &denied, 2.0);
    assert!(upstream.is_quiet());
    let _client = bed.sending("shop", "hello");
    assert_eq!(upstream.accept().exact(5), b"hello");
}

#[test]
fn a_health_check_that_only_connects_passes_no_byte_either_way() {
    let upstream = Upstream::new();
    let mut mesh = guarded(upstream.address, AppProtocol::Tcp);
    echo(&mut mesh).mode = Mode::Strict;
    echo(&mut mesh).probes = vec![Probe {
        port: upstream.address.port(),
        path: None,
        query: String::new(),
    }];
    let bed = Guarded::new(&mesh);
    let mut check = bed.client("unidentified");
    // The check shows that the endpoint accepts connections, and nothing more.
    assert_eq!(upstream.accept().rest(), b"");
    assert_eq!(check.rest(), b"");
    let mut curious = bed.client("unidentified");
    let _it_may_be_over_already = curious.stream.write_all(b"SELECT 1");
    assert_eq!(upstream.accept().rest(), b"");
    assert_eq!(curious.rest(), b"");
    let _known = bed.sending("shop", "hello");
    assert_eq!(upstream.accept().exact(5), b"hello");
}

#[test]
fn bytes_that_a_rule_about_requests_cannot_judge_are_refused() {
    // The manifest compiler makes an undeclared port HTTP if it has such a rule; this mesh was not made by it.
    let rule = asking(HttpMatch {
        methods: vec!["GET".into()],
        ..HttpMatch::default()
    });
    let upstream = Upstream::new();
    let policies = vec![policy("methods", PolicyAction::Allow, vec![rule])];
    let bed = Guarded::new(&with(
        guarded(upstream.address, AppProtocol::Undeclared),
        policies,
    ));
    let mut client = bed.sending("shop", "SSH-2.0-client\r\n");
    assert_eq!(client.rest(), b"");
    assert_eq!(upstream.accept().rest(), b"", "not a byte of it");
    assert_eq!(bed.get("intruder"), 403);
}

#[test]
fn what_is_under_way_ends_when_it_is_not_allowed_any_more_and_nothing_else_does() {
    let upstream = Upstream::new();
    for protocol in [AppProtocol::Tcp, AppProtocol::Http] {
        let open = guarded(upstream.address, protocol);
        let bed = Guarded::new(&open);
        let mut flows = Vec::new();
        for caller in CALLERS {
            let mut client = bed.sending(caller, GET);
            let server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun");
            client.head();
            assert_eq!(client.exact(5), b"begun");
            flows.push((client, server));
        }
        bed.bed.proxy.apply(&with(open, allow("shop")));
        let (mut intruder, mut theirs) = flows.pop().unwrap();
        assert_eq!(intruder.rest(), b"");
        assert_eq!(theirs.rest(), b"");
        bed.bed.expect_rejected("policy_revoked", 1.0);
        let (mut shop, mut theirs) = flows.pop().unwrap();
        theirs.send([b'x'; 95]);
        assert_eq!(shop.exact(95), [b'x'; 95]);
    }
}

#[test]
fn a_request_that_waits_for_its_answer_is_told_that_it_is_not_allowed_any_more() {
    let upstream = Upstream::new();
    let open = guarded(upstream.address, AppProtocol::Http);
    let bed = Guarded::new(&open);
    let mut client = bed.sending("intruder", GET);
    let _server = upstream.asked();
    bed.bed.proxy.apply(&with(open, allow("shop")));
    assert_eq!(client.response().verdict(), (403, "policy_revoked"));
}

/// The caller may still send other requests; the rule is applied again to its next request.
#[test]
fn a_request_under_way_goes_on_when_a_new_rule_about_requests_denies_it() {
    let upstream = Upstream::new();
    let [_, by_path, by_method] = later_rules();
    for rules in [by_path, by_method] {
        let open = guarded(upstream.address, AppProtocol::Http);
        let bed = Guarded::new(&open);
        let mut client = bed.sending("intruder", get("/admin"));
        let mut server = upstream.asked();
        bed.bed.apply(&with(open, rules));
        server.answer("asked before");
        let response = client.response();
        assert_eq!(
            (response.status(), &*response.body),
            (200, &b"asked before"[..])
        );
        client.send(get("/admin"));
        assert_eq!(client.response().status(), 403);
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut dry = allow("shop");
    dry[0].dry_run = true;
    let mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
    let bed = Guarded::new(&with(mesh, dry));
    assert_eq!(bed.get("intruder"), 200);
    assert_eq!(bed.get("shop"), 200);
    let differences = "heddle_policy_dry_run_differences_total";
    bed.bed.expect(differences, &[], 1.0);
}

/// Policies added while the intruder's request for `/admin` waits; each of them denies it.
fn later_rules() -> [Vec<Policy>; 3] {
    let denying = |http: HttpMatch| {
        let http = Some(http);
        let rule = PolicyRule {
            http,
            ..from("intruder")
        };
        vec![policy("denied", PolicyAction::Deny, vec![rule])]
    };
    let by_path = HttpMatch {
        paths: vec![PathMatch::Prefix("/admin".into())],
        ..HttpMatch::default()
    };
    let by_method = HttpMatch {
        methods: vec!["GET".into()],
        ..HttpMatch::default()
    };
    [allow("shop"), denying(by_path), denying(by_method)]
}

#[test]
fn a_request_that_is_tried_again_is_judged_by_the_policies_of_now() {
    for rules in later_rules() {
        let ((away, _held), there) = (taking_none(), serve(|_| "ok".into()));
        let mut mesh = guarded(there, AppProtocol::Http);
        let mut first = mesh.services[0].ports[0].endpoints[0].clone();
        first.address = away;
        first.workload = Some(WorkloadName::new("test", "first").unwrap());
        first.account = Some(account("first"));
        let endpoints = &mut mesh.services[0].ports[0].endpoints;
        endpoints.push(first);
        endpoints.sort_by_key(|endpoint| endpoint.address);
        mesh.put_workload(workload("first", away).into());
        let settings = quick(|timeouts| timeouts.connect = Duration::from_millis(1_500));
        let nodes = Guarded::with(settings, &mesh);
        let mut clients = [(); 2].map(|()| nodes.sending("intruder", get("/admin")));
        // One of them is answered; the other waits for the endpoint that accepts no connection.
        let answered = |client: &Client| {
            let wait = Some(Duration::from_millis(300));
            client.stream.set_read_timeout(wait).unwrap();
            client.stream.peek(&mut [0; 1]).is_ok()
        };
        clients.sort_by_key(|client| answered(client));
        let [waiting, other] = &mut clients;
        assert_eq!(other.response().body, b"ok");
        nodes.bed.apply(&with(mesh, rules));
        waiting.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(waiting.response().verdict(), (403, "policy_denied"));
    }
}

#[test]
fn a_request_that_waits_in_line_is_judged_by_the_policies_of_now() {
    for rules in later_rules() {
        let upstream = Upstream::new();
        let mut mesh = guarded(upstream.address, AppProtocol::Http);
        let service = &mut mesh.services[0];
        service.balancing.line = line(10, 10_000);
        service.ports[0].endpoints[0].max_requests = Some(1);
        let nodes = Guarded::new(&mesh);
        let mut shop = nodes.sending("shop", GET);
        let mut server = upstream.asked();
        let mut intruder = nodes.sending("intruder", get("/admin"));
        waiting(&nodes.bed, 1);
        nodes.bed.apply(&with(mesh, rules));
        server.answer("ok");
        assert_eq!(shop.response().status(), 200);
        assert_eq!(intruder.response().verdict(), (403, "policy_revoked"));
    }
}

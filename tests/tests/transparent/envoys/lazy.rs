//! Lazy Envoys: what they do not know goes through gateways, and is learned.

use std::time::{Duration, Instant};

use super::{PORTS, is_good};
use crate::load::{Kind, Load, failures};
use crate::programs::Serving;
use crate::stage::{Scene, Stage, pause, until};

/// Gateways are tried for destinations in these ranges: Services and pods.
const SETTINGS: &str = "mesh: {address_ranges: [10.96.0.0/16, 10.1.0.0/16, 10.2.0.0/16, \"fd68:6c::/48\", \"fd68:6c:60::/64\"]}\n";
/// The role of a gateway.
const GATEWAYS: &str = "apiVersion: v1
kind: ServiceAccount
metadata: {name: gateway, namespace: shop, annotations: {heddle.dev/gateway: default}}
";
/// `vault` and `safe` are open to `lazy` alone, `closed` to another account.
const POLICIES: &str = "apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: vault, namespace: shop}
spec:
  targetRefs: [{kind: Pod, selector: {matchExpressions: [{key: app, operator: In, values: [vault, safe]}]}}]
  action: ALLOW
  rules: [{sources: [{type: ServiceAccount, serviceAccount: {name: lazy}}]}]
---
apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: shop}
spec:
  targetRefs: [{kind: Pod, selector: {matchLabels: {app: closed}}}]
  action: ALLOW
  rules: [{sources: [{type: ServiceAccount, serviceAccount: {name: another}}]}]
";
/// Requests that the Envoy of `lazy` has sent to gateways.
const BY_GATEWAY: &str = "cluster.heddle-gateway.upstream_rq_total";
/// Between two requests: 100 in a second.
const BETWEEN: Duration = Duration::from_millis(10);
/// From which request on an Envoy goes direct, or how long after the first one.
const DIRECT_FROM: (usize, Duration) = (5, Duration::from_secs(1));
/// Within which a gateway that is gone is replaced by another one.
const FAILED_OVER_WITHIN: Duration = Duration::from_secs(1);
/// Services of the same pods, to be asked for the first time.
const UNKNOWN: usize = 8;
/// Another one, whose port of bytes is asked by HTTP.
const PLAIN: &str = "plain";

/// What the gateways are.
#[derive(Clone, Copy, PartialEq)]
enum Gateways {
    Envoys,
    Nodes,
}

fn scene(gateways: Gateways) -> Scene {
    let scene = Scene::default()
        .settings(SETTINGS)
        .account("lazy")
        .with_envoy("lazy", "two", "lazy", ", lazy-xds: \"true\"")
        .pod_of("native", "one", "lazy")
        .manifest("gateways", GATEWAYS);
    let scene = match gateways {
        Gateways::Envoys => scene
            .with_envoy("gate-one", "one", "gateway", "")
            .with_envoy("gate-two", "two", "gateway", ""),
        Gateways::Nodes => scene
            .pod_of("gate-one", "one", "gateway")
            .pod_of("gate-two", "two", "gateway"),
    };
    let mut scene = scene
        .pod("cart", "one")
        .service("cart", PORTS)
        .pod("safe", "one")
        .service("safe", PORTS)
        .manifest("policies", POLICIES);
    for name in ["api", "vault", "closed"] {
        let pod = scene.account(name).with_envoy(name, "one", name, "");
        scene = pod.service(name, PORTS);
    }
    let unknown = (0..UNKNOWN).map(|number| format!("unknown{number}"));
    for name in unknown.chain([PLAIN.to_owned()]) {
        let text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{selector: {{app: api}}, ports: [{PORTS}]}}
"
        );
        scene = scene.manifest(&name, &text);
    }
    scene
}

/// Asks a Service that the Envoy does not know, 100 times in a second: each answer is good, and the last one that a
/// gateway has carried is among the first.
fn is_learned(stage: &Stage, service: &str) {
    let url = format!("http://{service}/");
    let since = Instant::now();
    let mut gone = stage.envoy_counts("lazy", BY_GATEWAY);
    let began = gone;
    let mut last = (0, Duration::ZERO);
    for number in 1..=100 {
        assert_eq!(
            stage.status("lazy", &url, &[]),
            "200",
            "{service}: {number}"
        );
        let now = stage.envoy_counts("lazy", BY_GATEWAY);
        if now > gone {
            (gone, last) = (now, (number, since.elapsed()));
        } else if number > 10 {
            break;
        }
        pause(BETWEEN);
    }
    eprintln!(
        "{service}: by a gateway until request {}, after {:?}",
        last.0, last.1
    );
    assert!(
        gone > began,
        "{service}: the first request did not go through a gateway"
    );
    assert!(
        last.0 < DIRECT_FROM.0 || last.1 < DIRECT_FROM.1,
        "{service}: {last:?}"
    );
}

/// What `heddle deps` says.
fn deps(stage: &Stage) -> String {
    let mut command = stage.lab().underlay("heddle").expect("a lab");
    let output = command
        .args(["deps", "shop/lazy"])
        .output()
        .expect("heddle runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asks Services of all kinds for the first time, by requests and by bytes.
fn all_is_served_and_learned(stage: &Stage) {
    // HTTP, with an Envoy and with a node at the other end; a policy that names the caller sees the caller.
    for service in ["api", "cart", "vault", "safe"] {
        is_learned(stage, service);
    }
    assert_eq!(stage.status("lazy", "http://closed/", &[]), "403");
    // A pod that claims to be a gateway gets nothing by it: its own proxy takes the claim away.
    for pod in ["lazy", "native"] {
        for (service, expected) in [("vault", "200"), ("safe", "200"), ("closed", "403")] {
            let claim = "x-heddle-caller: spiffe://cluster.local/ns/shop/sa/another";
            let said = stage.status(pod, &format!("http://{service}/"), &[claim]);
            assert_eq!(said, expected, "{pod} to {service}");
        }
    }
    // Bytes: the first connection too, whichever side speaks first.
    for service in ["unknown0", "api", "cart", "vault", "safe"] {
        for attempt in ["first", "later"] {
            let (echo, heard) = (stage.echo("lazy", service), stage.hear("lazy", service));
            assert!(
                is_good(&echo, &heard),
                "{service}, {attempt}: {echo:?}, {heard:?}"
            );
            until("it is learned", || deps(stage).contains(service));
        }
    }
}

/// The servers of all Services.
fn serve(stage: &Stage) -> Vec<Serving> {
    let pods = ["api", "cart", "vault", "safe", "closed"].iter();
    pods.flat_map(|pod| stage.serve_all(pod)).collect()
}

#[test]
fn what_a_lazy_envoy_does_not_know_goes_through_a_gateway_and_is_learned() {
    let Some(stage) = scene(Gateways::Envoys).up() else {
        return;
    };
    let _servers = serve(&stage);
    all_is_served_and_learned(&stage);
    // The port of bytes of a Service that it does not know, asked by HTTP.
    let before = stage.envoy_counts("lazy", BY_GATEWAY);
    assert_eq!(plain(&stage), "200");
    assert!(stage.envoy_counts("lazy", BY_GATEWAY) > before);
    until("it is learned", || deps(&stage).contains(PLAIN));
    let direct = stage.envoy_counts("lazy", BY_GATEWAY);
    assert_eq!(plain(&stage), "200");
    for service in ["api", "cart", "vault"] {
        assert!(is_good(
            &stage.echo("lazy", service),
            &stage.hear("lazy", service)
        ));
    }
    assert_eq!(
        stage.envoy_counts("lazy", BY_GATEWAY),
        direct,
        "known bytes go direct"
    );
    // Nothing that was learned is lost with the control plane, and no request fails, of an Envoy that knows all either.
    let known = deps(&stage);
    let to_cart = stage.port_of("cart", 80).to_string();
    let loads = ["lazy", "api"].map(|pod| Load::start(&stage, pod, Kind::Anew, &to_cart));
    let killed = stage.heddle_lab(&["restart", "control", "--kill", "--lab"]);
    killed.expect("the control plane is back");
    until("the same is known", || deps(&stage) == known);
    for service in ["api", "cart", "vault"] {
        assert_eq!(
            stage.status("lazy", &format!("http://{service}/"), &[]),
            "200"
        );
    }
    for load in loads {
        let outcomes = load.stop();
        let failed = failures(&outcomes);
        assert!(failed.is_empty(), "of {}: {failed:?}", outcomes.len());
    }
    assert_eq!(
        stage.envoy_counts("lazy", BY_GATEWAY),
        direct,
        "nothing is relearned"
    );
    // A gateway dies: the other one takes over for what is unknown, and what is known does not notice.
    kill(&stage, "the Envoy of pod shop/gate-one");
    for number in 1..UNKNOWN {
        takes_over(&stage, number);
    }
}

/// The status of a request to a port of bytes.
fn plain(stage: &Stage) -> String {
    stage.status("lazy", &format!("http://{PLAIN}:81/"), &[])
}

/// Kills a process of the lab with SIGKILL.
fn kill(stage: &Stage, what: &str) {
    let pid = rustix::process::Pid::from_raw(stage.process(what).pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

/// Asks an unknown Service, which a gateway that lives serves soon, and a known one.
fn takes_over(stage: &Stage, number: usize) {
    let since = Instant::now();
    let said = stage.status("lazy", &format!("http://unknown{number}/"), &[]);
    assert_eq!(said, "200", "unknown{number}");
    assert!(
        since.elapsed() < FAILED_OVER_WITHIN,
        "unknown{number}: {:?}",
        since.elapsed()
    );
    assert_eq!(stage.status("lazy", "http://api/", &[]), "200");
}

/// A dependency is forgotten after this time, in seconds.
const FORGOTTEN_AFTER: u64 = 4;

#[test]
fn what_is_not_used_any_more_is_forgotten_and_comes_back_without_an_error() {
    let control = format!("control: {{forget_dependencies_after_s: {FORGOTTEN_AFTER}}}\n");
    let scene = Scene::default()
        .settings(&format!("{SETTINGS}{control}"))
        .account("lazy")
        .with_envoy(
            "lazy",
            "two",
            "lazy",
            ", lazy-xds: \"true\", heddle.dev/uses: declared",
        )
        .manifest("gateways", GATEWAYS)
        .with_envoy("gate-one", "one", "gateway", "")
        .pod("busy", "one")
        .service("busy", PORTS)
        .pod("open", "one")
        .service("open", PORTS)
        .pod("idle", "one")
        .service("idle", PORTS)
        .pod("declared", "one")
        .service("declared", PORTS);
    let Some(stage) = scene.up() else { return };
    let _servers: Vec<_> = ["busy", "open", "idle", "declared"]
        .iter()
        .flat_map(|pod| stage.serve_all(pod))
        .collect();
    let knows = |service: &str| deps(&stage).contains(&format!("shop/{service} "));
    // What is declared is known before it is used: no request of it goes through a gateway.
    until("what is declared is known", || knows("declared"));
    let by_gateway = stage.envoy_counts("lazy", BY_GATEWAY);
    assert_eq!(stage.status("lazy", "http://declared/", &[]), "200");
    assert_eq!(stage.envoy_counts("lazy", BY_GATEWAY), by_gateway);
    // Given requests to one Service, a connection to another one, and a third one that is asked once …
    assert_eq!(stage.status("lazy", "http://idle/", &[]), "200");
    let load = |service: &str, port: u16, kind: Kind| {
        // The first connection goes through a gateway.
        stage.echo("lazy", service);
        until("it is learned", || knows(service));
        Load::start(
            &stage,
            "lazy",
            kind,
            &stage.port_of(service, port).to_string(),
        )
    };
    let busy = load("busy", 80, Kind::Kept);
    let open = load("open", 81, Kind::Talk);
    assert!(knows("idle"), "{}", deps(&stage));
    // … when some time goes by, then only the third one is forgotten …
    until("what is idle is forgotten", || !knows("idle"));
    let routed_by = "http://127.0.0.1:15000/config_dump?resource=dynamic_active_clusters";
    until("its Envoy does not have it", || {
        !stage
            .says("lazy", &["curl", "-s", routed_by])
            .contains("shop/idle/")
    });
    pause(Duration::from_secs(FORGOTTEN_AFTER));
    for service in ["busy", "open", "declared"] {
        assert!(knows(service), "{service}: {}", deps(&stage));
    }
    // … nothing has failed, and it works again, from the first request on.
    assert_eq!(stage.status("lazy", "http://idle/", &[]), "200");
    until("it is learned again", || knows("idle"));
    for load in [busy, open] {
        let outcomes = load.stop();
        let failed = failures(&outcomes);
        assert!(failed.is_empty(), "of {}: {failed:?}", outcomes.len());
    }
}

#[test]
fn a_node_is_a_gateway_too() {
    let Some(stage) = scene(Gateways::Nodes).up() else {
        return;
    };
    let _servers = serve(&stage);
    all_is_served_and_learned(&stage);
    // Bytes that policies do not allow to their caller.
    let (echo, heard) = (stage.echo("lazy", "closed"), stage.hear("lazy", "closed"));
    assert!(!is_good(&echo, &heard), "{echo:?}, {heard:?}");
    assert!(heard.is_empty(), "{heard:?}");
    // A port of bytes that is asked by HTTP: not by a node, the first time.
    assert_eq!(plain(&stage), "501");
    until("it is learned", || plain(&stage) == "200");
    // One of the two is killed: its proxy ends with its holder, and the other one takes over.
    kill(&stage, "heddle node two");
    for number in 1..UNKNOWN {
        takes_over(&stage, number);
    }
}

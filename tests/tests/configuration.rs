//! Changes of configuration while requests are under way.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use heddle_tests::{Answer, Load, Mesh, endpoint, until_answered};

fn service(name: &str, endpoint: SocketAddr) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: {port}}}]
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}
spec:
  address: {ip}
  ports: [{{name: http, port: {port}}}]
",
        ip = endpoint.ip(),
        port = endpoint.port(),
    )
}

fn split(blue: u32, green: u32) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: colours, namespace: shop}}
spec:
  parentRefs: [{{group: \"\", kind: Service, name: blue}}]
  rules:
  - backendRefs:
    - {{name: blue, port: 80, weight: {blue}}}
    - {{name: green, port: 80, weight: {green}}}
"
    )
}

fn mesh() -> Mesh {
    let (blue, green) = (
        service("blue", endpoint("blue")),
        service("green", endpoint("green")),
    );
    let manifests = [
        ("blue.yaml", &*blue),
        ("green.yaml", &*green),
        ("route.yaml", &*split(1, 0)),
    ];
    let mesh = Mesh::of(&manifests, "shop/blue");
    until_answered(mesh.address(), "blue");
    mesh
}

fn failures(answers: &[(Instant, Answer)]) -> Vec<&Answer> {
    answers
        .iter()
        .map(|(_, answer)| answer)
        .filter(|answer| !matches!(answer, Some((200, _))))
        .collect()
}

/// Given clients that never pause, when the route is edited back and forth, then no request fails and each edit takes
/// effect within a second.
#[test]
fn a_route_is_edited_under_load() {
    let mesh = mesh();
    let load = Load::start(mesh.address(), 8);
    let mut fastest = Duration::MAX;
    for _ in 0..4 {
        mesh.edit("route.yaml", &split(0, 1));
        fastest = fastest.min(until_answered(mesh.address(), "green"));
        mesh.edit("route.yaml", &split(1, 0));
        fastest = fastest.min(until_answered(mesh.address(), "blue"));
    }
    let answers = load.stop();
    assert!(failures(&answers).is_empty(), "{:?}", failures(&answers));
    assert!(answers.len() > 100, "there was a load: {}", answers.len());
    // A busy machine may be late sometimes; a slow mesh is late every time.
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}

/// Given clients that never pause, when a manifest is replaced by nonsense, cut in half, and corrected with another
/// split, then the last valid state is served meanwhile, and the corrected one afterwards.
#[test]
fn nonsense_does_not_replace_what_works() {
    let mesh = mesh();
    let load = Load::start(mesh.address(), 4);
    let good = split(0, 1);
    for nonsense in [
        "\u{0}\u{1}",
        "kind: [",
        "kind: HTTPRoute\nspec: 5",
        &good[..good.len() / 2],
    ] {
        mesh.scribble("route.yaml", nonsense);
        assert!(until_answered(mesh.address(), "blue") < Duration::from_secs(5));
    }
    mesh.scribble("route.yaml", &good);
    until_answered(mesh.address(), "green");
    let answers = load.stop();
    assert!(failures(&answers).is_empty(), "{:?}", failures(&answers));
}

/// Given clients that keep their connections, when endpoints come and go, then the connections stay open and requests
/// go to the new endpoints.
#[test]
fn connections_outlive_their_endpoints() {
    let mesh = mesh();
    let load = Load::start(mesh.address(), 4);
    for _ in 0..5 {
        let (address, name) = (endpoint("newer"), "newer");
        mesh.edit("blue.yaml", &service("blue", address));
        until_answered(mesh.address(), name);
        mesh.edit("blue.yaml", &service("blue", endpoint("older")));
        until_answered(mesh.address(), "older");
    }
    let answers = load.stop();
    assert!(failures(&answers).is_empty(), "{:?}", failures(&answers));
}

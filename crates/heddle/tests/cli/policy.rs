//! Policies of a running mesh: which requests they allow, the effect of changes, and explanations.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::harness::{Folder, Heddle, as_str, backend, eventually, get, heddle, service, text};

/// A Service and two callers with accounts of their own.
fn shop(folder: &Folder) {
    folder.write(
        "reviews.yaml",
        &service("shop", "reviews", backend("stars")),
    );
    let caller = |name: &str, address: &str| {
        format!(
            "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: shop}}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}
spec: {{address: {address}, serviceAccountName: {name}}}
"
        )
    };
    folder.write("web.yaml", &caller("web", "127.2.60.1"));
    folder.write("intruder.yaml", &caller("intruder", "127.2.60.2"));
}

const ONLY_WEB: &str = "apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: reviews, namespace: shop}
spec:
  targetRefs:
    - {kind: Pod, selector: {matchLabels: {app: reviews}}}
  action: ALLOW
  rules:
    - sources:
        - {type: ServiceAccount, serviceAccount: {name: web}}
";

#[test]
fn a_policy_is_enforced_as_soon_as_it_is_written_and_explained() {
    let folder = Folder::new();
    shop(&folder);
    let mesh = Heddle::up(&folder, &[]);
    let ask = |caller: &str| {
        let proxy = mesh.forward_proxy(caller);
        get(proxy, "reviews.shop", "http://reviews.shop/").0
    };
    assert_eq!((ask("shop/web"), ask("shop/intruder")), (200, 200));

    folder.write("policy.yaml", ONLY_WEB);
    eventually("the intruder is refused", || ask("shop/intruder") == 403);
    assert_eq!(ask("shop/web"), 200);
    let (_, told) = get(
        mesh.forward_proxy("shop/intruder"),
        "reviews.shop",
        "http://reviews.shop/",
    );
    assert!(told.contains("policy"), "{told}");

    let explain = |from: &str| {
        let socket = folder.socket();
        let args = ["explain", from, "shop/reviews", "GET", "/", "--socket"];
        let args = [&args[..], &[as_str(&socket)]].concat();
        let output = heddle(&args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    assert!(explain("shop/web").contains("allowed"));
    let why = explain("shop/intruder");
    for expected in [
        "refused",
        "AuthorizationPolicy shop/reviews",
        "shop/intruder",
    ] {
        assert!(why.contains(expected), "{expected} is missing in {why}");
    }

    std::fs::remove_file(folder.manifests().join("policy.yaml")).expect("removed");
    eventually("it is let in again", || ask("shop/intruder") == 200);
}

#[test]
fn a_revoked_callers_connections_are_closed_within_a_second() {
    let folder = Folder::new();
    shop(&folder);
    let listener = std::net::TcpListener::bind("127.2.60.9:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let db = service("shop", "db", address).replace("name: http", "name: tcp");
    folder.write("db.yaml", &db);
    let mesh = Heddle::up(&folder, &[]);
    let mut flows: Vec<TcpStream> = ["shop/web", "shop/intruder"]
        .iter()
        .map(|caller| {
            let mut client =
                TcpStream::connect(mesh.address("shop/db", Some(caller))).expect("connected");
            client.write_all(b"hello").expect("sent");
            let (mut server, _) = listener.accept().expect("a connection");
            let mut hello = [0; 5];
            server.read_exact(&mut hello).expect("bytes");
            std::thread::spawn(move || {
                let mut byte = [0];
                while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
            });
            client
        })
        .collect();
    folder.write("policy.yaml", &ONLY_WEB.replace("reviews", "db"));
    let mut intruder = flows.pop().expect("two");
    let mut web = flows.pop().expect("two");
    intruder
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a timeout");
    let error = intruder.read(&mut [0; 1]).expect_err("it is reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    web.write_all(b"x").expect("sent");
    let mut byte = [0];
    web.read_exact(&mut byte).expect("others are untouched");
}

#[test]
fn a_strict_mesh_takes_no_caller_that_it_does_not_know() {
    let folder = Folder::new();
    shop(&folder);
    let settings = folder.path("heddle.settings");
    std::fs::write(
        &settings,
        "mesh: {mode: strict, trust_domain: site-7.example}\n",
    )
    .expect("written");
    let mesh = Heddle::up(&folder, &["--config", as_str(&settings)]);
    assert_eq!(
        get(mesh.address("shop/reviews", None), "reviews", "/").0,
        403
    );
    let own = mesh.address("shop/reviews", Some("shop/web"));
    assert_eq!(get(own, "reviews", "/").0, 200);

    let args = ["explain", "shop/web", "shop/reviews", "--dir"];
    let manifests = folder.manifests();
    let more = [as_str(&manifests), "--config", as_str(&settings)];
    let output = heddle(&[&args[..], &more].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said.contains("allowed"), "{said}");
}

#[test]
fn a_question_about_an_unknown_workload_has_no_answer() {
    let folder = Folder::new();
    shop(&folder);
    let manifests = folder.manifests();
    for (from, to, code) in [
        ("shop/absent", "shop/reviews", 1),
        ("shop/web", "shop/nothing", 1),
        ("shop", "shop/reviews", 2),
    ] {
        let output = heddle(&["explain", from, to, "--dir", as_str(&manifests)]);
        assert_eq!(output.status.code(), Some(code), "{from} {to}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

/// A mesh from a running heddle, which may be of another version, is checked before it is used to explain anything.
#[test]
fn nothing_is_explained_by_a_mesh_that_breaks_its_promises() {
    let folder = Folder::new();
    shop(&folder);
    let _mesh = Heddle::up(&folder, &[]);
    let socket = folder.socket();
    let dumped = heddle(&["config", "dump", "--socket", as_str(&socket)]);
    let mut config: serde_json::Value = serde_json::from_slice(&dumped.stdout).expect("JSON");
    let explained = |config: &serde_json::Value| {
        let socket = folder.path("other.sock");
        let _none_yet = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let body = config.to_string();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a question");
            let mut question = BufReader::new(client.try_clone().expect("the same")).lines();
            let asked = question.next().expect("a line").expect("text");
            assert!(asked.starts_with("GET /config "), "{asked}");
            let length = body.len();
            write!(
                client,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .expect("sent");
            for line in question.map_while(Result::ok) {
                if line.is_empty() {
                    return;
                }
            }
        });
        let args = ["explain", "shop/web", "shop/reviews", "--socket"];
        let output = heddle(&[&args[..], &[as_str(&socket)]].concat());
        server.join().expect("it was asked");
        output
    };
    let output = explained(&config);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let workloads = config["mesh"]["workloads"].as_array_mut().expect("a list");
    workloads.push(workloads[0].clone());
    let output = explained(&config);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("the answer is not understood: the workloads"),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
}

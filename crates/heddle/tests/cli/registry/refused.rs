//! Invalid or forbidden registrations are reported, and affect nothing else.

use super::*;

#[test]
fn what_is_wrong_is_a_problem_and_nothing_more() {
    let world = World::new("wrong");
    let heddle = world.up();
    let registrar = world.register(backend("x"), &["--name", "good"]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    let lease = format!("--lease={}", world.etcd.lease());
    for (key, value, lease) in [
        (
            "/heddle/v1/providers/wrong/web/bad",
            "{not: 'a workload'}",
            &*lease,
        ),
        ("/heddle/v1/providers/wrong/web", "{}", &*lease),
        ("/heddle/v1/providers/wrong/web/stays", "{}", "--lease=0"),
        ("/heddle/v2/providers/wrong/web/elsewhere", "{}", &*lease),
    ] {
        world.etcd.ctl(&["put", lease, key, value]);
    }
    let problems = || {
        let status = heddle.status();
        let problems = status["config"]["problems"].as_array().expect("a list");
        let said = |problem: &Value| problem.as_str().expect("a line").to_owned();
        problems.iter().map(said).collect::<Vec<_>>()
    };
    eventually("three are problems", || problems().len() == 3);
    let said = problems().join("\n");
    for expected in [
        "etcd:/heddle/v1/providers/wrong/web/bad: warning: this is no Kubernetes object",
        "etcd:/heddle/v1/providers/wrong/web: warning: this is no provider's key",
        "etcd:/heddle/v1/providers/wrong/web/stays: warning: it has no lease",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let (code, answer) = check(&world);
    assert_eq!(code, Some(6));
    assert_eq!(
        answer["registry"]["problems"].as_array().map(Vec::len),
        Some(3)
    );
    assert_eq!(workloads(&heddle), ["wrong/web.good"]);
    let status = heddle.status();
    assert_eq!(status["registry"]["services"][0]["called"], 1);
    assert_eq!(status["registry"]["services"][0]["registered"], 3);
    let (_, metrics) = get(heddle.metrics(), "x", "/metrics");
    for expected in [
        "heddle_registry_connected 1",
        "heddle_registry_providers 1",
        "heddle_registry_problems{reason=\"invalid_key\"} 1",
        "heddle_registry_problems{reason=\"invalid_value\"} 1",
        "heddle_registry_problems{reason=\"no_lease\"} 1",
        "heddle_registry_problems{reason=\"taken\"} 0",
    ] {
        assert!(
            metrics.lines().any(|line| line == expected),
            "{expected}\n{metrics}"
        );
    }
    world
        .etcd
        .ctl(&["del", "--prefix", "/heddle/v1/providers/wrong/web/bad"]);
    world.etcd.ctl(&["del", "/heddle/v1/providers/wrong/web"]);
    world
        .etcd
        .ctl(&["del", "/heddle/v1/providers/wrong/web/stays"]);
    eventually("all is well", || check(&world).0 == Some(0));
    // An invalid folder does not keep a provider in the mesh that is gone.
    world.folder.write("oops.yaml", "kind: Oops\n");
    let refused = |heddle: &Heddle| {
        let status = heddle.status();
        status["config"]["refused"].as_array().map(Vec::len)
    };
    eventually("the object is refused", || refused(&heddle) == Some(1));
    registrar.signal(Signal::TERM);
    eventually_serves(&heddle, 0);
    assert_eq!(refused(&heddle), Some(1));
}

/// A provider whose labels no Service selects is logged once, and shown in the status.
#[test]
fn a_provider_that_no_service_calls_is_said() {
    let world = World::new("uncalled");
    let heddle = world.up();
    let called = world.register(backend("x"), &["--name", "a"]);
    called.line("registered");
    let other = world.register(backend("x"), &["--name", "b", "--label", "app=other"]);
    other.line("registered");
    let expected =
        "uncalled/web/b: warning: no Service calls it: Service uncalled/web selects other labels";
    heddle.stderr_line(expected);
    let socket = world.folder.socket();
    let shown = || text(&super::heddle(&["status", "--socket", as_str(&socket)]).stdout);
    eventually("both are shown", || {
        shown().contains("uncalled/web: 1 of 2 providers")
    });
    let shown = shown();
    assert!(
        shown.contains("registered, NOT CALLED by any Service"),
        "{shown}"
    );
    // It is logged once, however often others come and go.
    called.signal(Signal::TERM);
    eventually_serves(&heddle, 1);
    heddle.signal(Signal::TERM);
    let after = heddle.stderr_before("stopping");
    assert!(
        !after.iter().any(|line| line.contains(expected)),
        "{after:#?}"
    );
}

#[test]
fn certificates_and_permissions_of_etcd_are_kept_to() {
    let folder = Folder::new();
    folder.write("web.yaml", &service("secured"));
    let tls = folder.path("tls");
    let etcd = Etcd::secured(&folder.path("etcd"), &tls);
    for user in ["root", "follow", "web"] {
        etcd.ctl(&["user", "add", &format!("{user}:{user}-password")]);
        etcd.ctl(&["role", "add", user]);
        std::fs::write(folder.path(user), format!("{user}-password\n")).expect("written");
    }
    for (role, what, keys) in [
        ("follow", "read", "/heddle/v1/providers/"),
        ("web", "readwrite", "/heddle/v1/providers/secured/web/"),
    ] {
        etcd.ctl(&[
            "role",
            "grant-permission",
            "--prefix=true",
            role,
            what,
            keys,
        ]);
    }
    for user in ["root", "follow", "web"] {
        etcd.ctl(&["user", "grant-role", user, user]);
    }
    etcd.ctl(&["auth", "enable"]);

    let file = |name: &str| as_str(&tls.join(name)).to_owned();
    let (ca, own, key) = (file("ca.pem"), file("own.pem"), file("own.key"));
    let with = |user: &str| {
        let password = as_str(&folder.path(user)).to_owned();
        [
            "--etcd-ca",
            &ca,
            "--etcd-cert",
            &own,
            "--etcd-key",
            &key,
            "--etcd-user",
            user,
        ]
        .map(str::to_owned)
        .into_iter()
        .chain(["--etcd-password-file".to_owned(), password])
        .collect::<Vec<String>>()
    };
    let follow = [vec!["--etcd".to_owned(), etcd.url()], with("follow")].concat();
    let follow: Vec<&str> = follow.iter().map(String::as_str).collect();
    let heddle = Heddle::up(&folder, &follow);
    let web = with("web");
    let web: Vec<&str> = web.iter().map(String::as_str).collect();
    let registrar = Registrar::start(&etcd, "secured/web", backend("x"), &web);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    // The user may not write another Service's keys.
    let mut other = Registrar::start(&etcd, "secured/other", backend("x"), &web);
    other.line("permission denied");
    assert_eq!(other.code(), Some(1));
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let refused = |args: &[&str], code: i32, expected: &str| {
        let output = heddle(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    };
    let at = ["register", "web", "--address", "127.0.0.1:80"];
    let with = |more: &[&'static str]| [&at[..], more].concat();
    refused(&with(&[]), 2, "there is no registry");
    refused(&with(&["--etcd", "localhost"]), 3, "is no endpoint of etcd");
    refused(
        &with(&["--etcd", "https://localhost:1"]),
        3,
        "need the certificate",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--etcd-user", "x"]),
        3,
        "a user needs a file",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--weight", "0"]),
        3,
        "0 is no weight",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--name", "A"]),
        3,
        "is no provider's name",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--ttl", "1s"]),
        2,
        "expected 2s to 3600s",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--etcd-prefix", "x"]),
        2,
        "is no prefix",
    );
    for (flag, value, expected) in [
        (
            "--weight",
            "0",
            "--weight (spec.weight): 0 is no weight (write 1 to 1000000; to take it out, stop this",
        ),
        (
            "--max-requests",
            "0",
            "--max-requests (metadata.annotations[heddle.dev/max-requests]): \"0\" is no number of requests (write 1",
        ),
        (
            "--label",
            "heddle.dev/mode=strict",
            "--label (metadata.labels[heddle.dev/mode]): a registry may not set labels of heddle.dev",
        ),
        (
            "--port-name",
            "A B",
            "--port-name (spec.ports[0].name): \"A B\" is no port name (use a-z",
        ),
        ("--node", "A B", "--node (spec.nodeName): "),
        (
            "--service-account",
            "A B",
            "--service-account (spec.serviceAccountName): ",
        ),
        (
            "--name",
            "A B",
            "--name: \"A B\" is no provider's name: use a-z",
        ),
    ] {
        refused(&with(&["--etcd", "http://a:1", flag, value]), 3, expected);
    }
    let named = [
        "register",
        "We b",
        "--address",
        "127.0.0.1:80",
        "--etcd",
        "http://a:1",
    ];
    refused(
        &named,
        3,
        "[NAMESPACE/]SERVICE: \"We b\" is no Service's name",
    );
    let any = [
        "register",
        "web",
        "--address",
        "0.0.0.0:80",
        "--etcd",
        "http://a:1",
    ];
    refused(
        &any,
        3,
        "--address (spec.address): 0.0.0.0 is not the address of a single host",
    );
    let world = World::new("said");
    let dir = world.folder.manifests();
    refused(
        &["up", as_str(&dir), "--etcd", "x"],
        3,
        "heddle: --etcd (registry.etcd): \"x\" is no endpoint",
    );
}

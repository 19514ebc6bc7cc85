//! Contradictions: between values of the settings file, file and flags, flags, and workloads of two nodes.

use std::path::Path;

use crate::harness::{Folder, Heddle, as_str, heddle, text};

const ETCD: &str = "registry:\n  etcd: ['http://127.0.0.1:1']\n";

/// Exit code and output of `heddle up` with this file and these flags, without the names of folders. Checks that it has
/// created nothing.
fn up(file: &str, flags: &[&str]) -> (Option<i32>, String) {
    let folder = Folder::new();
    let ended = up_in(&folder, &folder.socket(), file, flags);
    let left = std::fs::read_dir(folder.path(".")).expect("a folder");
    let left = left.map(|entry| entry.expect("an entry").file_name());
    let made: Vec<_> = left
        .filter(|name| name != "mesh" && name != "s.yaml")
        .collect();
    assert!(made.is_empty(), "{made:?} was made: {}", ended.1);
    ended
}

/// Like [`up`], with the admin socket at this path, and without the check for created files.
fn up_in(folder: &Folder, socket: &Path, file: &str, flags: &[&str]) -> (Option<i32>, String) {
    let config = folder.path("s.yaml");
    std::fs::write(&config, file).expect("written");
    let manifests = folder.manifests();
    let fixed = [
        "up",
        as_str(&manifests),
        "--config",
        as_str(&config),
        "--socket",
        as_str(socket),
        "--metrics",
        "none",
    ];
    let output = heddle(&[&fixed, flags].concat());
    let said = text(&output.stderr).replace(as_str(&config), "s.yaml");
    (output.status.code(), said)
}

#[test]
fn values_of_a_file_that_contradict_each_other_are_refused_with_line_and_remedy() {
    for (more, expected) in [
        (
            "  user: a\n",
            "s.yaml:3: registry.user: a user needs a file with the password (name it with --etcd-password-file or \
             registry.password_file)\n",
        ),
        (
            "  password_file: p\n",
            "s.yaml:3: registry.password_file: a password needs a user (name it with --etcd-user or registry.user)\n",
        ),
        (
            "  certificate: c.pem\n",
            "s.yaml:3: registry.certificate: a certificate needs its key (name it with --etcd-key or registry.key)\n",
        ),
        (
            "  key: k.pem\n",
            "s.yaml:3: registry.key: a key needs its certificate (name it with --etcd-cert or \
             registry.certificate)\n",
        ),
        (
            "  ca: ca.pem\n",
            "s.yaml:3: registry.ca: certificates are of use with https:// endpoints only; registry.etcd is set in \
             s.yaml:2 (see docs/registry.md)\n",
        ),
    ] {
        let (code, said) = up(&format!("{ETCD}{more}"), &[]);
        assert_eq!(said, format!("heddle: {expected}"));
        assert_eq!(code, Some(3), "{said}");
    }
    let (code, said) = up(
        "registry:\n  etcd: ['http://127.0.0.1:1', 'https://127.0.0.1:2']\n",
        &[],
    );
    assert_eq!(
        said,
        "heddle: s.yaml:2: registry.etcd: some endpoints are https:// and some are not: write all of them alike (see \
         docs/registry.md)\n"
    );
    assert_eq!(code, Some(3));
}

/// A flag has no line number: it is named with its field.
#[test]
fn a_flag_that_contradicts_the_file_or_another_is_refused_before_anything_is_made() {
    for (file, flags, expected) in [
        (
            ETCD,
            &["--etcd-key", "k.pem"][..],
            "--etcd-key (registry.key): a key needs its certificate (name it with --etcd-cert or \
             registry.certificate)",
        ),
        (
            ETCD,
            &["--etcd", "https://127.0.0.1:1"],
            "--etcd (registry.etcd): https:// endpoints need the certificate of their authority: name its file with \
             --etcd-ca (registry.ca) (see docs/registry.md)",
        ),
        (
            ETCD,
            &["--etcd-ca", "ca.pem"],
            "--etcd-ca (registry.ca): certificates are of use with https:// endpoints only; registry.etcd is set in \
             s.yaml:2 (see docs/registry.md)",
        ),
        (
            "registry:\n  etcd: ['https://a:1']\n  ca: ca.pem\n",
            &["--etcd", "http://a:1"],
            "s.yaml:3: registry.ca: certificates are of use with https:// endpoints only; registry.etcd is set by \
             --etcd (see docs/registry.md)",
        ),
        (
            "{}",
            &["--etcd", "http://a:1", "--etcd-ca", "ca.pem"],
            "--etcd-ca (registry.ca): certificates are of use with https:// endpoints only; registry.etcd is set by \
             --etcd (see docs/registry.md)",
        ),
        (
            "{}",
            &["--etcd-user", "a"],
            "--etcd-user (registry.user): a user needs a file with the password (name it with --etcd-password-file \
             or registry.password_file)",
        ),
        (
            "{}",
            &["--etcd-prefix", "/other/"],
            "--etcd-prefix (registry.prefix): there is no registry to use it with (name one with --etcd or \
             registry.etcd)",
        ),
    ] {
        let (code, said) = up(file, flags);
        assert_eq!(said, format!("heddle: {expected}\n"), "{flags:?}");
        assert_eq!(code, Some(3), "{flags:?}: {said}");
    }
}

/// The admin socket is opened after the settings are checked: an error of the socket shows that the settings were
/// accepted.
#[test]
fn a_file_that_flags_complete_is_taken_and_alone_is_refused() {
    for (file, flags, alone) in [
        (
            "registry:\n  user: a\n",
            &["--etcd", "http://127.0.0.1:1", "--etcd-password-file", "p"][..],
            "s.yaml:2: registry.user: a user needs a file with the password",
        ),
        (
            "registry:\n  etcd: ['https://127.0.0.1:1']\n",
            &["--etcd-ca", "ca.pem"],
            "s.yaml:2: registry.etcd: https:// endpoints need the certificate",
        ),
        (
            "registry:\n  prefix: /other/\n",
            &["--etcd", "http://127.0.0.1:1"],
            "s.yaml:2: registry.prefix: there is no registry",
        ),
    ] {
        let folder = Folder::new();
        let (code, said) = up_in(&folder, &folder.manifests(), file, flags);
        assert!(said.contains("not a socket"), "{flags:?}: {said}");
        assert_eq!(code, Some(1), "{flags:?}: {said}");

        let config = folder.path("s.yaml");
        let output = heddle(&["validate", "--config", as_str(&config)]);
        let said = text(&output.stdout).replace(as_str(&config), "s.yaml");
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.starts_with(alone), "{said}");
    }
}

/// Neither the admin socket nor the state folder is created.
#[test]
fn metrics_at_the_port_that_nodes_connect_to_are_refused_before_anything_is_made() {
    let folder = Folder::new();
    let (config, socket) = (folder.path("s.yaml"), folder.socket());
    let (manifests, state) = (folder.manifests(), folder.path("state/of/it"));
    std::fs::write(&config, "admin:\n  metrics: 127.0.0.1:7\n").expect("written");
    let at = ["--socket", as_str(&socket), "--state", as_str(&state)];
    let control = ["control", as_str(&manifests)];
    let node = ["node", "--name", "a", "--control", "127.0.0.1:1"];
    let one_port = "cannot be served at one port";
    for (command, flags, expected) in [
        (
            &control[..],
            &["--listen", "127.0.0.1:7", "--metrics", "127.0.0.1:7"][..],
            format!(
                "--metrics (control.metrics): metrics at 127.0.0.1:7 and nodes at 127.0.0.1:7 {one_port}; \
                 control.listen is set by --listen"
            ),
        ),
        (
            &control,
            &["--listen", "127.0.0.1:15014"],
            format!(
                "--listen (control.listen): metrics at 127.0.0.1:15014 and nodes at 127.0.0.1:15014 {one_port}; \
                 control.metrics is the default"
            ),
        ),
        (
            &node,
            &["--listen", "0.0.0.0:7", "--metrics", "127.0.0.1:7"],
            format!(
                "--metrics (admin.metrics): metrics at 127.0.0.1:7 and other nodes at 0.0.0.0:7 {one_port}; \
                 node.listen is set by --listen"
            ),
        ),
        (
            &node,
            &["--listen", "127.0.0.1:7", "--config", as_str(&config)],
            format!(
                "s.yaml:2: admin.metrics: metrics at 127.0.0.1:7 and other nodes at 127.0.0.1:7 {one_port}; \
                 node.listen is set by --listen"
            ),
        ),
    ] {
        let output = heddle(&[command, &at, flags].concat());
        let said = text(&output.stderr).replace(as_str(&config), "s.yaml");
        let expected = format!("heddle: {expected} (give one of them another port)\n");
        assert_eq!(said, expected, "{flags:?}");
        assert_eq!(output.status.code(), Some(3), "{flags:?}");
        assert!(!socket.exists() && !folder.path("state").exists());
    }
}

#[test]
fn flags_that_exclude_each_other_are_a_wrong_command_line_that_names_them() {
    for (flags, expected) in [
        (
            &["status", "--brief", "--output", "json"][..],
            ["--brief", "--output"],
        ),
        (
            &["check", "--probe", "--socket", "s"],
            ["--probe", "--socket"],
        ),
        (
            &["explain", "a/b", "a/c", "--dir", "d", "--control"],
            ["--dir", "--control"],
        ),
        (&["validate", "--for", "control"], ["DIR", "--for"]),
    ] {
        let output = heddle(flags);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        for part in expected {
            assert!(said.contains(part), "{flags:?}: no {part} in {said}");
        }
    }
}

/// Two workloads named `one` and `two`, each on a node of its own.
fn on_two_nodes(second_address: &str) -> String {
    let workload = |name: &str, node: &str, address: &str| {
        format!(
            "---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: clash, labels: {{app: cart}}}}
spec: {{nodeName: {node}, address: {address}, ports: [{{port: 8080}}]}}
"
        )
    };
    workload("one", "n1", "127.9.77.1") + &workload("two", "n2", second_address)
}

#[test]
fn one_address_on_two_nodes_is_refused_with_both_named_and_the_last_good_version_stays() {
    let folder = Folder::new();
    folder.write("a.yaml", &on_two_nodes("127.9.77.2"));
    let (control, _) = Heddle::control(&folder, &[]);
    control.status();

    folder.write("a.yaml", &on_two_nodes("127.9.77.1"));
    let said = control.stderr_line("127.9.77.1 already");
    for part in [
        "a.yaml:10: error: LocalWorkload clash/two: spec.address: LocalWorkload clash/one has port 8080 of 127.9.77.1",
        "a.yaml:5 (give one of them another port, or an address such as 127.9.77.2)",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    control.stderr_line("LocalWorkload clash/two: refused: its last good version stays in force");
    let status = control.status();
    assert_eq!(status["config"]["refused"][0]["in_force"], "last-good");

    let manifests = folder.manifests();
    let output = heddle(&["validate", as_str(&manifests), "--for", "control"]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stdout);
    assert!(said.contains("refused: 1 error in 2 objects"), "{said}");
}

#[test]
fn a_node_is_told_what_it_lacks_and_what_takes_interception() {
    let folder = Folder::new();
    let config = folder.path("s.yaml");
    let write = |text: &str| std::fs::write(&config, text).expect("written");
    let node = |more: &[&str]| {
        let output = heddle(&[&["node", "--config", as_str(&config)], more].concat());
        let said = text(&output.stderr).replace(as_str(&config), "s.yaml");
        (output.status.code(), said)
    };
    write("node: {name: a}\n");
    let (code, said) = node(&["--listen", "127.0.0.1:0"]);
    assert_eq!(
        (code, said.as_str()),
        (
            Some(2),
            "heddle: a node needs --control HOST:PORT (node.control): as a flag, or as a field in the file of --config\n"
        )
    );
    let (code, said) = node(&["--pod", "a/b"]);
    assert_eq!(
        (code, said.as_str()),
        (
            Some(3),
            "heddle: --pod (node.interception.pod): pods are not intercepted; node.interception.enabled is the default \
             (turn interception on (--intercept, or node.interception.enabled), or leave this out)\n"
        )
    );
    write("node:\n  control: http://c:1\n");
    let (code, said) = node(&[]);
    assert_eq!(code, Some(3));
    assert!(
        said.starts_with("heddle: s.yaml:2: node.control: "),
        "{said}"
    );
    write("node:\n  interception:\n    exclude_inbound: ['22']\n");
    let (code, said) = node(&[]);
    assert_eq!(code, Some(3));
    let expected =
        "heddle: s.yaml:3: node.interception.exclude_inbound: this is for the proxy of one pod; ";
    assert!(said.starts_with(expected), "{said}");
}

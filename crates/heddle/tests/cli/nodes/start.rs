//! What a node needs to start, and what it refuses.

use super::*;

#[test]
fn a_control_plane_that_is_not_the_tokens_is_sent_no_secret() {
    let (folder, _) = mesh(3);
    let (other, _) = mesh(4);
    let (_control, _) = Heddle::control(&folder, &[]);
    let (stranger, at) = Heddle::control(&other, &[]);
    let token = token(&folder, "n1");
    let (code, said) = refused(&folder, "n1", at, &["--token-file", as_str(&token)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("has no certificate of the root that the token names"),
        "{said}"
    );
    assert!(!folder.path("n1/node.leaf").exists());
    stranger.signal(Signal::TERM);
    // A control plane logs every attempt to join.
    for line in stranger.stderr_before("stopping") {
        assert!(!line.contains("join"), "{line}");
    }
}

#[test]
fn a_token_is_for_one_node_and_one_use() {
    let (folder, _) = mesh(5);
    let (_control, at) = Heddle::control(&folder, &[]);
    let path = token(&folder, "n1");
    let (code, said) = refused(&folder, "n2", at, &["--token-file", as_str(&path)]);
    assert!(
        code == Some(1) && said.contains("heddle token create"),
        "{said}"
    );
    let node = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&path)]);
    node.stderr_line("joined");
    let (code, said) = refused(&folder, "n3", at, &["--token-file", as_str(&path)]);
    assert!(
        code == Some(1) && said.contains("heddle token create"),
        "{said}"
    );
    // A second process cannot use the state folder of a running node.
    let socket = folder.path("other.sock");
    let (code, said) = refused(&folder, "n1", at, &[]);
    assert!(code == Some(5) && said.contains("another heddle"), "{said}");
    let state = folder.path("n1");
    let control = at.to_string();
    let second = heddle(&[
        "node",
        "--name",
        "n1",
        "--control",
        &control,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "none",
        "--state",
        as_str(&state),
        "--socket",
        as_str(&socket),
    ]);
    let said = text(&second.stderr);
    assert!(
        second.status.code() == Some(5) && said.contains("another process"),
        "{said}"
    );
}

#[test]
fn a_second_node_on_one_machine_needs_metrics_of_its_own() {
    let (folder, _) = mesh(16);
    let (_control, at) = Heddle::control(&folder, &[]);
    let first = join(&folder, "n1", at);
    let control = at.to_string();
    let metrics = first.metrics().to_string();
    let token = token(&folder, "n2");
    let (state, socket) = (folder.path("n2"), folder.path("n2.sock"));
    let second = heddle(&[
        "node",
        "--name",
        "n2",
        "--control",
        &control,
        "--listen",
        "127.0.0.1:0",
        "--token-file",
        as_str(&token),
        "--state",
        as_str(&state),
        "--socket",
        as_str(&socket),
        "--metrics",
        &metrics,
    ]);
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no metrics: choose another address with --metrics"),
        "{said}"
    );
}

#[test]
fn a_node_without_a_token_or_with_none_says_what_to_do() {
    let (folder, _) = mesh(6);
    let at = free_address();
    let (code, said) = refused(&folder, "n1", at, &[]);
    assert!(code == Some(1) && said.contains("--token-file"), "{said}");
    let path = folder.path("token");
    fs::write(&path, "heddle-x.y.z").expect("written");
    let (code, said) = refused(&folder, "n1", at, &["--token-file", as_str(&path)]);
    assert!(code == Some(1) && said.contains("holds no token"), "{said}");
    let (code, said) = refused(&folder, "n1", at, &["--token-file", "-"]);
    assert!(code == Some(1) && said.contains("- is empty"), "{said}");
    let (code, said) = refused(&folder, "n1", at, &["--token-file", "/nowhere/token"]);
    assert!(code == Some(1) && said.contains("/nowhere/token"), "{said}");
}

#[test]
fn addresses_that_are_none_are_a_wrong_command_line() {
    for (control, listen, expected) in [
        (
            "http://192.0.2.1:15012",
            "127.0.0.1:0",
            "write 192.0.2.1:15012",
        ),
        ("::1:28012", "127.0.0.1:0", "write [::1]:28012"),
        ("192.0.2.1:15012", "localhost:1", "no numeric address"),
    ] {
        let output = heddle(&[
            "node",
            "--name",
            "n1",
            "--control",
            control,
            "--listen",
            listen,
        ]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

/// Settings that only the control plane may make are refused rather than ignored: an operator would rely on them.
#[test]
fn a_node_refuses_settings_of_the_mesh() {
    let folder = Folder::new();
    let file = folder.path("node.yaml");
    let nowhere = "127.0.0.1:1".parse().expect("an address");
    for field in ["mode: strict", "trust_domain: prod.example.org"] {
        fs::write(&file, format!("drain: {{}}\nmesh:\n  {field}\n")).expect("written");
        let (code, said) = refused(&folder, "n1", nowhere, &["--config", as_str(&file)]);
        let (name, _) = field.split_once(':').unwrap_or_default();
        let expected =
            format!("node.yaml:3: mesh.{name}: a node is told this by its control plane");
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(&expected), "{said}");
    }
    assert!(!folder.path("n1").exists());
}

#[test]
fn a_node_that_waits_for_its_token_can_be_stopped() {
    for (name, signal) in [("n1", Signal::TERM), ("n2", Signal::INT)] {
        let (folder, _) = mesh(6);
        let pipe = folder.path("token");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|made| made.success()));
        let more = ["--token-file", as_str(&pipe)];
        let node = Heddle::node(&folder, name, free_address(), &more);
        // Opening a pipe for writing waits for the reader; the test holds it open and writes nothing.
        let silent = fs::OpenOptions::new().write(true).open(&pipe);
        node.signal(signal);
        assert_eq!(node.ended().code(), Some(0));
        drop(silent);
    }
}

#[test]
fn a_node_that_has_joined_waits_for_no_token() {
    let (folder, _) = mesh(6);
    let (_control, at) = Heddle::control(&folder, &[]);
    let node = join(&folder, "n1", at);
    eventually("it has joined", || is_well(&folder, "n1", 2));
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    let pipe = folder.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|made| made.success()));
    let node = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&pipe)]);
    node.stderr_line("the token is not used");
    node.stderr_line("listening for other nodes");
}

#[test]
fn a_node_waits_for_its_control_plane_to_join() {
    let (folder, _) = mesh(7);
    let at = free_address();
    let control = Heddle::control_at(&folder, at, &[]);
    let path = token(&folder, "n1");
    control.signal(Signal::TERM);
    assert_eq!(control.ended().code(), Some(0));
    let node = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&path)]);
    node.stderr_line("not joined yet");
    let (code, status) = check(&folder, "n1");
    assert_eq!(code, Some(6));
    let problem = status["problems"][0].as_str().expect("a problem");
    assert!(problem.contains("has not joined yet"), "{problem}");
    assert_eq!(get(node.metrics(), "x", "/ready").0, 503);
    let _control = Heddle::control_at(&folder, at, &[]);
    node.stderr_line("joined");
    eventually("it is well", || is_well(&folder, "n1", 2));
    eventually("it is ready", || {
        get(node.metrics(), "x", "/ready").0 == 200
    });
}

/// Joining is retried while the clock is wrong, since it may be set at any time.
#[test]
fn a_node_waits_for_the_right_time_to_join() {
    let (folder, _) = mesh(7);
    let (_control, at) = Heddle::control(&folder, &[]);
    let token = token(&folder, "n1");
    let state = folder.path("n1");
    fs::create_dir(&state).expect("a folder");
    let private = |path: &std::path::Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).expect("a mode");
    };
    private(&state, 0o700);
    let floor = state.join("floor");
    fs::write(&floor, "1900000000\n").expect("written");
    private(&floor, 0o600);
    let node = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&token)]);
    let said = node.stderr_line("not joined yet");
    assert!(
        said.contains("its certificate has expired (it is valid from ")
            && said.contains("this node's clock shows 2030-03-17T17:46:4")
            && said.contains(": compare the clocks)"),
        "{said}"
    );
    let (_, status) = check(&folder, "n1");
    let problem = status["problems"][0].as_str().expect("a problem");
    assert!(problem.contains("compare the clocks"), "{problem}");
}

/// A control plane that lost its state creates another root: the node refuses it until it gets a token of it.
#[test]
fn a_node_of_a_control_plane_that_was_replaced_says_what_to_do() {
    let (folder, _) = mesh(8);
    let at = free_address();
    let control = Heddle::control_at(&folder, at, &[]);
    let node = join(&folder, "n1", at);
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    control.signal(Signal::TERM);
    assert_eq!(control.ended().code(), Some(0));
    fs::rename(folder.path("state"), folder.path("lost")).expect("moved");
    let _control = Heddle::control_at(&folder, at, &[]);
    let remedy = "if the control plane was replaced: heddle token create NODE there";
    node.stderr_line(remedy);
    let (code, status) = check(&folder, "n1");
    assert_eq!(code, Some(6));
    assert!(status["problems"].to_string().contains(remedy), "{status}");
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));

    let token = token(&folder, "n1");
    let node = Heddle::node(&folder, "n1", at, &["--token-file", as_str(&token)]);
    node.stderr_line("the node joins again");
    eventually("it is a node again", || is_well(&folder, "n1", 2));
}

#[test]
fn state_that_is_damaged_is_named_and_never_replaced() {
    let (folder, _) = mesh(8);
    let (_control, at) = Heddle::control(&folder, &[]);
    let node = join(&folder, "n1", at);
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    // Even with a token, the node does not overwrite damaged files that may be needed.
    let token = token(&folder, "n1");
    for (file, remedy) in [
        ("node.leaf", "join with a new token"),
        ("trust.json", "bring it back from a backup"),
        ("floor", "remove it if the clock is right"),
    ] {
        let path = folder.path(&format!("n1/{file}"));
        let good = fs::read(&path).expect("it is there");
        fs::write(&path, b"damaged").expect("written");
        let (code, said) = refused(&folder, "n1", at, &["--token-file", as_str(&token)]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(file) && said.contains(remedy), "{said}");
        assert_eq!(fs::read(&path).expect("it is there"), b"damaged");
        fs::write(&path, good).expect("written");
    }
    // With only its mesh damaged it starts, and reports that.
    fs::write(folder.path("n1/mesh.json"), b"damaged").expect("written");
    let node = Heddle::node(&folder, "n1", at, &[]);
    node.stderr_line("mesh.json cannot be used");
    node.stdout_line("SERVICE");
    // The problem ends when the control plane has sent another mesh.
    eventually("it is well", || is_well(&folder, "n1", 2));
}

#[test]
fn what_the_disk_does_not_take_is_said_until_it_does() {
    let (folder, namespace) = mesh(9);
    let (_control, at) = Heddle::control(&folder, &[]);
    let node = join(&folder, "n1", at);
    eventually("it has its identities", || is_well(&folder, "n1", 2));
    // Given a folder in the place of a file …
    let kept = folder.path("n1/mesh.json");
    fs::remove_file(&kept).expect("it was there");
    fs::create_dir_all(kept.join("in the way")).expect("made");
    // … when a new mesh comes …
    let file = folder.manifests().join("a.yaml");
    let text = fs::read_to_string(&file).expect("it is there");
    let web = format!("{{name: web, namespace: {namespace}}}\nspec:");
    assert!(text.contains(&web), "{text}");
    let labelled = format!("{{name: web, namespace: {namespace}, labels: {{new: label}}}}\nspec:");
    folder.write("a.yaml", &text.replace(&web, &labelled));
    node.stderr_line("it is tried again every 10 seconds");
    // … then the node reports it, until the file could be written.
    let (code, status) = check(&folder, "n1");
    assert_eq!(code, Some(6));
    let problem = status["problems"][0].as_str().expect("a problem");
    assert!(problem.contains("mesh.json"), "{problem}");
    fs::remove_dir_all(&kept).expect("gone");
    node.stderr_line("the state folder is whole again");
    eventually("it is well", || is_well(&folder, "n1", 2));
    assert!(kept.is_file());
}

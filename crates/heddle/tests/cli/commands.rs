//! Commands that end by themselves, and their exit codes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Folder, Heddle, as_str, backend, heddle, line_with, lines, service, text};

#[test]
fn a_good_folder_is_valid() {
    let folder = Folder::new();
    folder.write(
        "a.yaml",
        &crate::harness::service("good", "web", "127.0.0.1:9080".parse().expect("an address")),
    );
    let output = heddle(&["validate", as_str(&folder.manifests())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_eq!(
        text(&output.stdout),
        "valid: 2 objects, 1 service, 1 workload, 0 warnings\n"
    );
}

#[test]
fn a_bad_folder_is_refused_with_file_line_field_and_remedy() {
    let folder = Folder::new();
    folder.write(
        "a.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  port: [{port: 80}]\n",
    );
    let output = heddle(&["validate", as_str(&folder.manifests())]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stdout);
    assert!(
        said.contains("a.yaml:5: error: Service default/web: spec.port: "),
        "{said}"
    );
    assert!(
        said.contains("(") && said.contains("refused: 1 error in 1 object\n"),
        "{said}"
    );

    let output = heddle(&["validate", as_str(&folder.manifests()), "--output", "json"]);
    assert_eq!(output.status.code(), Some(3));
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(verdict["valid"], false);
    assert_eq!(verdict["problems"][0]["line"], 5);
    assert_eq!(verdict["problems"][0]["field"], "spec.port");
}

/// A folder of this repository.
fn of_repository(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn what_heddle_lab_up_takes_is_valid_and_said_to_be_for_a_lab() {
    // The lab's manifests alone, with the lab's own file beside them, and with those that the demo adds.
    let with_extras = Folder::new();
    for folder in [
        "examples/lab/bookstore",
        "crates/lab-program/src/demo/manifests",
    ] {
        for file in std::fs::read_dir(of_repository(folder)).expect("a folder") {
            let path = file.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str());
            let text = std::fs::read_to_string(&path).expect("a manifest");
            with_extras.write(name.expect("a name"), &text);
        }
    }
    for folder in [
        of_repository("examples/lab/bookstore"),
        of_repository("examples/lab"),
        as_str(&with_extras.manifests()).to_owned(),
    ] {
        let output = heddle(&["validate", &folder]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{folder}: {said}");
        let expected = "for a lab: heddle-lab up gives addresses to pods and Services; heddle up and heddle \
                        control refuse the ";
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("\nvalid: "), "{said}");

        let output = heddle(&["validate", &folder, "--output", "json"]);
        let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(verdict["valid"], true);
        assert_eq!(verdict["for"], "lab");
        // With `--for`, the result is that command's.
        for (reader, code) in [("lab", 0), ("up", 3), ("control", 3)] {
            let output = heddle(&["validate", &folder, "--for", reader]);
            let said = text(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{reader}: {said}");
            let is_missed = said.contains("add address; in a lab heddle-lab up gives it one");
            assert_eq!(is_missed, code == 3, "{reader}: {said}");
        }
    }
    // The lab's own file is not a manifest, but is not reported as a broken one either.
    let output = heddle(&["validate", &of_repository("examples/lab")]);
    let said = text(&output.stdout);
    assert!(
        said.contains("bookstore.yaml:7: warning: this is the file of a lab"),
        "{said}"
    );
    // On its own it is refused, with a hint at the other command.
    let output = heddle(&["validate", &of_repository("examples/lab/bookstore.yaml")]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("heddle-lab validate"), "{said}");
    // Other commands that read a folder read it the same way.
    let folder = of_repository("examples/lab/bookstore");
    let asked = ["bookstore/shopper", "bookstore/productpage", "--dir"];
    let output = heddle(&[&["explain"], &asked[..], &[&folder]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn an_address_that_was_forgotten_is_said_whatever_the_folder_is_for() {
    let folder = Folder::new();
    let one =
        |name: &str, at: u8| crate::harness::service("some", name, ([127, 0, 0, at], 9080).into());
    let without = one("b", 2).replace("  address: 127.0.0.2\n", "");
    folder.write("a.yaml", &format!("{}---\n{without}", one("a", 1)));
    let manifests = folder.manifests();
    let output = heddle(&["validate", as_str(&manifests), "--for", "up"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("error: LocalWorkload some/b: spec.address: this field is required"));
    assert!(said.contains("refused: 1 error in 4 objects"), "{said}");
    // Without `--for`, the missing address is still reported.
    let said = text(&heddle(&["validate", as_str(&manifests)]).stdout);
    let expected =
        "warning: LocalWorkload some/b: spec.address: heddle up refuses it: this field is required";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("2 workloads, 1 warning"), "{said}");
    // A folder that no command accepts is refused.
    folder.write(
        "b.yaml",
        "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {}}",
    );
    let output = heddle(&["validate", as_str(&manifests)]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("error: LocalWorkload some/b: spec.address"),
        "{said}"
    );
}

#[test]
fn files_that_may_have_been_meant_are_counted() {
    let folder = Folder::new();
    folder.write("a.yaml", "{apiVersion: v1, kind: List, items: []}");
    folder.write("b.yaml.txt", "x");
    let output = heddle(&["validate", as_str(&folder.manifests())]);
    let said = text(&output.stdout);
    let end = "0 warnings; 1 file left aside: ";
    assert!(
        said.contains(end) && said.ends_with("b.yaml.txt\n"),
        "{said}"
    );
}

#[test]
fn names_of_files_and_kinds_tell_the_terminal_nothing() {
    let folder = Folder::new();
    folder.write("a\u{1b}]0;title\u{7}\n.yaml", "kind: [\n");
    folder.write("b.yaml", "{apiVersion: v1, kind: \"Co\\e[2Jnfig\"}");
    folder.write("c\u{1b}[2J.yaml.txt", "x");
    let output = heddle(&["validate", as_str(&folder.manifests())]);
    let said = text(&output.stdout);
    assert!(
        !said.contains(|c: char| c.is_control() && c != '\n'),
        "{said:?}"
    );
    assert!(said.contains("a\\u{1b}]0;title\\u{7}\\n.yaml:"), "{said}");
    assert!(said.contains("Co\\u{1b}[2Jnfig 1"), "{said}");
    assert!(said.contains("c\\u{1b}[2J.yaml.txt"), "{said}");
}

#[test]
fn a_name_that_is_no_text_is_reported_all_the_same() {
    let folder = Folder::new();
    let name = OsStr::from_bytes(b"a\xff.yaml");
    std::fs::write(folder.manifests().join(name), "kind: [\n").expect("written");
    let name = OsStr::from_bytes(b"b\xff.yaml.txt");
    std::fs::write(folder.manifests().join(name), "x").expect("written");
    let output = heddle(&["validate", as_str(&folder.manifests()), "--output", "json"]);
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let file = verdict["problems"][0]["file"].as_str().expect("a path");
    assert!(file.ends_with("a\u{fffd}.yaml"), "{file}");
    assert_eq!(verdict["left_aside"]["files"], 1);
}

#[test]
fn up_refuses_what_validate_refuses() {
    let folder = Folder::new();
    folder.write("a.yaml", "kind: [\n");
    let output = heddle(&[
        "up",
        as_str(&folder.manifests()),
        "--socket",
        as_str(&folder.socket()),
        "--metrics",
        "none",
    ]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(
        said.contains("a.yaml:") && said.contains("nothing is served"),
        "{said}"
    );
}

#[test]
fn settings_are_checked_before_anything_is_served() {
    let folder = Folder::new();
    let file = folder.path("heddle.yaml");
    std::fs::write(&file, "drain:\n  timeout: 5\n").expect("written");
    let output = heddle(&["up", as_str(&folder.manifests()), "--config", as_str(&file)]);
    assert_eq!(output.status.code(), Some(3));
    let expected = format!(
        "heddle: {}:2: drain.timeout: unknown field `timeout` (expected one of timeout_ms)\n",
        file.display()
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn settings_can_be_checked_without_serving() {
    let folder = Folder::new();
    folder.write("a.yaml", "{apiVersion: v1, kind: List, items: []}");
    let (good, bad) = (folder.path("good.yaml"), folder.path("bad.yaml"));
    std::fs::write(&good, "proxy: {workers: {min: 2, max: 3}}\n").expect("written");
    std::fs::write(&bad, "proxy:\n  workers: {min: 3, max: 2}\n").expect("written");
    let manifests = folder.manifests();
    let validate = |args: &[&str]| {
        let output = heddle(&[&["validate"], args].concat());
        (output.status.code(), text(&output.stdout))
    };

    let (code, said) = validate(&["--config", as_str(&good)]);
    assert_eq!(
        (code, said),
        (Some(0), format!("valid: settings in {}\n", as_str(&good)))
    );

    let (code, said) = validate(&[as_str(&manifests), "--config", as_str(&bad)]);
    assert_eq!(code, Some(3));
    let expected = format!(
        "{bad}:2: proxy.workers.min: min is 3 and more than max, 2; proxy.workers.max is set in {bad}:2 \
         (lower min, or raise max)\nrefused: settings\nvalid: 0 objects, ",
        bad = as_str(&bad)
    );
    assert!(said.starts_with(&expected), "{said}");

    let json = ["--config", as_str(&bad), "--output", "json"];
    let verdict: serde_json::Value = serde_json::from_str(&validate(&json).1).expect("JSON");
    assert_eq!(verdict["valid"], false);
    let problem = verdict["settings_problem"].as_str().expect("text");
    assert!(problem.contains("proxy.workers.min"), "{problem}");
    assert_eq!(validate(&[]).0, Some(2));
}

#[test]
fn a_socket_without_a_process_is_exit_code_4() {
    let folder = Folder::new();
    for command in [&["status"][..], &["config", "dump"]] {
        let output = heddle(&[command, &["--socket", as_str(&folder.socket())]].concat());
        assert_eq!(output.status.code(), Some(4));
        assert!(
            text(&output.stderr).contains("heddle up DIR"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for args in [
        &[][..],
        &["up"],
        &["no-such-command"],
        &["up", "x", "--metrics", "15020"],
    ] {
        assert_eq!(heddle(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn every_command_has_help_worth_reading() {
    for command in [
        "up",
        "validate",
        "status",
        "config",
        "completion",
        "config dump",
        "control",
        "token",
        "token create",
        "token revoke",
        "root",
        "root status",
        "root rotate",
        "root cancel",
        "deny",
        "deny add",
        "deny remove",
        "site",
        "site request",
        "site sign",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let output = heddle(&words);
        assert!(
            output.status.success() && output.stdout.len() > 200,
            "{command}"
        );
    }
}

#[test]
fn completion_knows_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = heddle(&["completion", shell]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        for word in ["validate", "rotate", "revoke"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let output = heddle(&["completion", shell, "--program", "heddle-node"]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        assert!(script.contains("heddle-node") && script.contains("token-file"));
        assert!(!script.contains("rotate"), "{shell}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let said = text(&heddle(&["version"]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], concat!("heddle ", env!("CARGO_PKG_VERSION")));
    let commit = lines[1].strip_prefix("commit ").expect("the commit");
    let is_hash = commit.len() >= 8 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_hash || commit == "unknown", "{said}");
    assert!(lines[2].starts_with("compiler rustc 1."), "{said}");

    let folder = Folder::new();
    folder.write("a.yaml", &service("version", "web", backend("web")));
    let _node = Heddle::up(&folder, &[]);
    let socket = folder.socket();
    let said = text(&heddle(&["version", "--socket", as_str(&socket)]).stdout);
    let running = concat!("running ", env!("CARGO_PKG_VERSION"), " (process ");
    assert!(said.contains(running), "{said}");
}

#[test]
fn a_bug_report_has_the_running_state_and_no_secrets() {
    let folder = Folder::new();
    let manifest = service("bug", "web", backend("web"));
    let command = "  command: [sleep, \"97531\"]\n  env: [{name: TOKEN, value: hidden-away}]\n";
    let callers = format!(
        "---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: runs, namespace: bug}}\nspec:\n  address: 127.1.72.9\n{command}"
    );
    folder.write("a.yaml", &format!("{manifest}{callers}"));
    let _node = Heddle::up(&folder, &[]);
    let (file, socket) = (folder.path("report.txt"), folder.socket());
    let flags = [
        "bug-report",
        "--file",
        as_str(&file),
        "--socket",
        as_str(&socket),
    ];
    assert_eq!(heddle(&flags).status.code(), Some(0));
    let report = std::fs::read_to_string(&file).expect("written");
    for part in [
        "== status",
        "== configuration",
        "== metrics",
        "bug/web",
        "TOKEN",
        "process_start_time_seconds",
    ] {
        assert!(report.contains(part), "no {part} in {report}");
    }
    assert!(
        !report.contains("hidden-away") && !report.contains("97531"),
        "{report}"
    );
    // An existing file is not overwritten.
    assert_eq!(heddle(&flags).status.code(), Some(1));
}

#[test]
fn a_status_is_watched_and_has_yaml() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("watched", "web", backend("web")));
    let node = Heddle::up(&folder, &[]);
    let socket = folder.socket();
    let yaml = text(&heddle(&["status", "--socket", as_str(&socket), "-o", "yaml"]).stdout);
    assert!(yaml.contains("\nready: true\n"), "{yaml}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_heddle"))
        .args(["status", "--brief", "--watch", "--socket", as_str(&socket)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let seen = lines(child.stdout.take().expect("piped"));
    line_with(&seen, ", ready");
    line_with(&seen, ", ready");
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    line_with(&seen, "no heddle");
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
}

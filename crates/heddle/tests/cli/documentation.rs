//! Checks `docs/operations.md` and `docs/policy.md`: their examples run, and their tables are complete.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};

use heddle_proxy::{Failure, Reason};
use heddle_skips::skipped;
use heddle_wire::http1::REJECTS;

use crate::harness::{
    Folder, Heddle, as_str, backend, eventually, families, free_address, get, service, text,
};

const PAGE: &str = include_str!("../../../../docs/operations.md");
const METRICS: &str = include_str!("../../../../docs/metrics.md");
const QUICKSTART: &str = include_str!("../../../../docs/quickstart.md");
const POLICY: &str = include_str!("../../../../docs/policy.md");

#[test]
fn every_example_runs() {
    if Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("there is no curl: not checked");
        return;
    }
    let blocks = PAGE
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let metrics = free_address().to_string();
    // No process stays behind, whatever fails.
    let script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}",
        blocks.collect::<String>()
    );
    let folder = Folder::new();
    // The page uses root's socket and the default port, which others on this machine may use too.
    let socket = folder.socket();
    let script = script.replace("/run/heddle/heddle.sock", as_str(&socket));
    // The shell may have noticed the end of a job already.
    let script = script.replace("wait %1\n", "wait %1 || [ $? = 127 ]\n");
    let script = script.replace("127.0.0.1:15020", &metrics).replace(
        "heddle up mesh",
        &format!("heddle up mesh --metrics {metrics}"),
    );

    std::fs::remove_dir(folder.manifests()).expect("the page makes its own");
    let dir = folder.path("");
    let binary = Path::new(env!("CARGO_BIN_EXE_heddle"))
        .parent()
        .expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["60", "bash", "-c", &script])
        .current_dir(&dir)
        .env("PATH", format!("{}:{path}", binary.display()))
        .env("XDG_RUNTIME_DIR", &dir)
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The walks on one node and on several, as a newcomer types them.
#[test]
fn the_quick_start_works_as_written() {
    for program in ["curl", "python3"] {
        let found = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if found.is_err() {
            skipped(&format!("there is no {program}"));
            return;
        }
    }
    let walks = QUICKSTART.split("## One node").nth(1);
    let walks = walks.and_then(|rest| rest.split("## Pods in a lab").next());
    let walks = walks.expect("the walks");
    let block = |kind: &str| {
        let opening = format!("```{kind}\n");
        let blocks = walks.split(&opening).skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        blocks.collect::<String>()
    };
    let [control, a, b] = [0; 3].map(|_| free_address().to_string());
    // Each command has to succeed, in its own line, with this test's addresses.
    let script = block("console").replace("\n$ ", "\n");
    let script = script.strip_prefix("$ ").expect("a prompt").to_owned();
    let script = script
        .replace("127.0.0.1:15012", &control)
        .replace("127.0.0.1:15008", &a)
        .replace("127.0.0.1:15009", &b)
        .replace("heddle up my-mesh/", "heddle up my-mesh/ --metrics none")
        .replace(
            "heddle control my-mesh/",
            &format!("heddle control my-mesh/ --metrics none --listen {control}"),
        );
    let script = format!(
        "set -euxo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{script}"
    );
    let folder = Folder::new();
    let dir = folder.path("walk");
    std::fs::create_dir_all(dir.join("my-mesh")).expect("a folder");
    let runtime = dir.join("run");
    let mut own = std::fs::DirBuilder::new();
    own.mode(0o700).create(&runtime).expect("a folder");
    let here = |text: &str| text.replace("127.1.0.", "127.1.71.");
    std::fs::write(dir.join("my-mesh/hello.yaml"), here(&block("yaml"))).expect("written");
    let binary = Path::new(env!("CARGO_BIN_EXE_heddle"))
        .parent()
        .expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["90", "bash", "-c", &here(&script)])
        .current_dir(&dir)
        .env("PATH", format!("{}:{path}", binary.display()))
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("XDG_STATE_HOME", &dir)
        .output()
        .expect("it runs");
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{}\n{said}\n{errors}",
        output.status
    );
    let pages = said.matches("Directory listing for /").count();
    assert!(
        pages >= 2,
        "a page on one node and one on two: {said}\n{errors}"
    );
}

#[test]
fn the_command_in_ten_lines_is_complete() {
    let example = PAGE
        .split("### A command in ten lines")
        .nth(1)
        .and_then(|rest| rest.split("```yaml\n").nth(1))
        .and_then(|rest| rest.split("```").next())
        .expect("an example");
    assert!(example.lines().count() <= 10, "{example}");
    let folder = Folder::new();
    folder.write("hello.yaml", example);
    let output = crate::harness::heddle(&["validate", as_str(&folder.manifests())]);
    let said = text(&output.stdout);
    assert!(said.ends_with(" 0 warnings\n"), "{said}");
    if Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("there is no python3: not started");
        return;
    }
    let heddle = Heddle::up(&folder, &[]);
    let address = heddle.address("default/hello", None);
    eventually("the command listens", || {
        let (status, body) = get(address, "hello", "/");
        status == 200 && body.contains("hello.yaml")
    });
}

#[test]
fn every_reason_is_listed() {
    let reasons = Reason::EACH.iter().map(|reason| {
        let failure = Failure::from(*reason);
        let status = match failure.status() {
            0 => "none".to_owned(),
            status => status.to_string(),
        };
        let blame = failure.blame().as_str();
        format!("| `{}` | {status} | {blame} |", reason.code())
    });
    let rejects = REJECTS.iter().map(|reject| {
        // The client gets that of a response that cannot be read.
        let of_a_response = ["malformed_status_line", "status_out_of_range"];
        let status = match of_a_response.contains(&reject.code) {
            true => Failure::response(*reject).status(),
            false => reject.status,
        };
        format!("| `{}` | {status} |", reject.code)
    });
    for row in reasons.chain(rejects) {
        assert!(PAGE.contains(&row), "{row} is missing");
    }
}

#[test]
fn every_metric_is_listed() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("listed", "web", backend("x")));
    let heddle = Heddle::up(&folder, &[]);
    let web = heddle.address("listed/web", None);
    assert_eq!(get(web, "web.listed", "/").0, 200);
    let metrics = || get(heddle.metrics(), "x", "/metrics").1;
    eventually("the request is counted", || {
        metrics().contains("\nheddle_http_requests_total{")
    });
    let metrics = metrics();
    for (name, kind) in families(&metrics) {
        assert!(
            METRICS.contains(&format!("| `{name}` | {kind} |")),
            "{name} is missing"
        );
    }
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let mut labelled = 0;
    for sample in samples {
        let (series, _) = sample.split_once(' ').expect("a value");
        let Some((name, labels)) = series.split_once('{') else {
            continue;
        };
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| {
                name.strip_suffix(end)
                    .filter(|name| name.ends_with("_seconds"))
            })
            .unwrap_or(name);
        let wanted = labels_of(name);
        let labels = labels.trim_end_matches('}').split("\",");
        for label in labels.filter_map(|label| Some(label.split_once('=')?.0)) {
            assert!(
                label == "le" || wanted.contains(&label),
                "{label} of {name}: {wanted:?}"
            );
            labelled += 1;
        }
    }
    assert!(labelled > 50, "{labelled}");
}

/// The labels of a metric, as the page lists them.
fn labels_of(name: &str) -> Vec<&'static str> {
    const TRAFFIC: [&str; 6] = [
        "reporter",
        "source",
        "source_principal",
        "destination_service",
        "destination_workload",
        "tls",
    ];
    let rows = METRICS.lines();
    let mut row = rows.filter_map(|line| line.strip_prefix(&*format!("| `{name}` | ")));
    let row = row
        .next_back()
        .unwrap_or_else(|| panic!("{name} is missing"));
    let labels = row.split(" | ").nth(1).expect("labels").split(", ");
    let labels = labels.flat_map(|label| match label {
        "traffic" => TRAFFIC.to_vec(),
        label => vec![label],
    });
    labels.collect()
}

/// The demo ends by showing commands to type: each must parse, and then find no process at the socket.
#[test]
fn every_command_that_the_demo_invites_to_is_one() {
    let demo = include_str!("../../../lab-program/src/demo.rs");
    let invitation = demo.split("async fn invitation(").nth(1);
    let commands = invitation
        .and_then(|rest| rest.split("for command in [").nth(1))
        .and_then(|rest| rest.split("] {").next())
        .expect("a list");
    let mut commands: Vec<&str> = commands.split('"').skip(1).step_by(2).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    commands.push("check");
    let folder = Folder::new();
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let output =
            crate::harness::heddle(&[&words[..], &["--socket", as_str(&folder.socket())]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{command}: {said}");
    }
}

#[test]
fn every_command_is_listed() {
    let help = text(&crate::harness::heddle(&["--help"]).stdout);
    let (groups, _) = help.split_once("\nOptions:").expect("a list");
    let commands = groups.lines().filter_map(|line| line.strip_prefix("  "));
    for line in commands {
        let name = line.split_whitespace().next().expect("a name");
        assert!(
            name == "help" || PAGE.contains(&format!("`heddle {name}")),
            "{name} is missing"
        );
    }
}

/// Each example is added to the page's mesh; the table below it shows which workload may call which.
#[test]
fn every_policy_example_does_what_its_table_says() {
    let mut examples = POLICY
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("an end"))
        .peekable();
    let (base, _) = *examples.peek().expect("the mesh of the examples");
    let mut asked = 0;
    for (example, after) in examples {
        let folder = Folder::new();
        folder.write("base.yaml", base);
        if example != base {
            folder.write("example.yaml", example);
        }
        let (mesh, report) = heddle_compile::load(&folder.manifests());
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let mesh = mesh.expect("a mesh");
        for row in after.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(|c| c.trim().trim_matches('`')).collect();
            let [_, from, to, request, outcome, _] = cells[..] else {
                continue;
            };
            let request = request.split_once(' ').map(|(method, path)| {
                heddle_compile::Request::new(method, path).expect("a request")
            });
            let (from, to) = (
                from.parse().expect("a caller"),
                to.parse().expect("a workload"),
            );
            let said = heddle_compile::explain(&mesh, &from, &to, request.as_ref());
            for endpoint in said.expect("an answer").endpoints {
                assert_eq!(endpoint.outcome.as_str(), outcome, "{row}\n{endpoint}");
                asked += 1;
            }
        }
    }
    assert!(asked > 20, "{asked} rows were found");
}

//! Commands of LocalWorkloads, through the whole program.

use rustix::process::{Signal, geteuid, test_kill_process};

use crate::harness::{Folder, Heddle, eventually, pid_at_end};

fn workload(namespace: &str, script: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: rating-db, namespace: {namespace}}}
spec:
  selector: {{app: none}}
  ports: [{{port: 80}}]
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: job, namespace: {namespace}}}
spec:
  address: 127.0.0.1
  command: [sh, -c, '{script}']
"
    )
}

#[test]
fn a_command_finds_its_own_addresses_in_its_environment() {
    let folder = Folder::new();
    let script = "echo at $RATING_DB_SERVICE_HOST:$RATING_DB_SERVICE_PORT; echo via $http_proxy; exec sleep 1000";
    folder.write("a.yaml", &workload("env", script));
    let heddle = Heddle::up(&folder, &[]);
    let own = heddle.address("env/rating-db", Some("env/job"));
    assert_eq!(
        heddle.stdout_line("[env/job] at"),
        format!("[env/job] at {own}")
    );
    let proxy = heddle.forward_proxy("env/job");
    assert_eq!(
        heddle.stdout_line("[env/job] via"),
        format!("[env/job] via http://{proxy}")
    );
}

#[test]
fn commands_end_with_the_process_however_it_ends() {
    for (signal, namespace) in [(Signal::TERM, "ends"), (Signal::KILL, "is-killed")] {
        let folder = Folder::new();
        folder.write(
            "a.yaml",
            &workload(namespace, "echo started $$; exec sleep 1000"),
        );
        let heddle = Heddle::up(&folder, &[]);
        let pid = pid_at_end(&heddle.stdout_line("started"));
        assert!(test_kill_process(pid).is_ok());
        heddle.signal(signal);
        heddle.ended();
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        eventually("the command is gone", || {
            std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
    }
}

#[test]
fn a_changed_command_is_run_and_a_removed_one_is_not() {
    let folder = Folder::new();
    folder.write(
        "a.yaml",
        &workload("changes", "echo first $$; exec sleep 1000"),
    );
    let heddle = Heddle::up(&folder, &[]);
    let first = pid_at_end(&heddle.stdout_line("first"));
    folder.write(
        "a.yaml",
        &workload("changes", "echo second $$; exec sleep 1000"),
    );
    let second = pid_at_end(&heddle.stdout_line("second"));
    assert!(test_kill_process(first).is_err());
    folder.write("a.yaml", "{apiVersion: v1, kind: List, items: []}");
    eventually("it is stopped", || test_kill_process(second).is_err());
}

#[test]
fn variables_of_the_manifest_win() {
    let folder = Folder::new();
    let script = "echo is $HEDDLE_WORKLOAD; exec sleep 1000";
    let manifest = workload("names", script) + "  env: [{name: HEDDLE_WORKLOAD, value: mine}]\n";
    folder.write("a.yaml", &manifest);
    let heddle = Heddle::up(&folder, &[]);
    assert_eq!(heddle.stdout_line("[names/job] is"), "[names/job] is mine");
}

#[test]
fn root_is_told_that_commands_run_as_root() {
    let folder = Folder::new();
    folder.write("a.yaml", &workload("as-root", "exec sleep 1000"));
    for (arguments, runs) in [(&[][..], true), (&["--no-run"], false)] {
        let heddle = Heddle::start(&folder, arguments);
        let lines = heddle.stderr_before("serving");
        let warned = lines.iter().any(|line| line.contains("running as root"));
        assert_eq!(warned, runs && geteuid().is_root(), "{lines:#?}");
        // A command that is being started still shares the descriptors of its heddle, the lock of the socket among them.
        eventually("the command is started", || {
            !runs || heddle.status()["workloads"][0]["process"]["pid"].is_u64()
        });
    }
}

#[test]
fn no_run_runs_nothing() {
    let folder = Folder::new();
    folder.write(
        "a.yaml",
        &workload("no-run", "echo started $$; exec sleep 1000"),
    );
    let heddle = Heddle::up(&folder, &["--no-run"]);
    assert_eq!(
        heddle.status()["workloads"][0]["process"],
        serde_json::Value::Null
    );
}

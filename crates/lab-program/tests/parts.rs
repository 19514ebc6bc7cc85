//! Tests of the helper processes of experiments.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_heddle-lab");

#[test]
fn a_confined_program_runs_on_its_core_only() {
    let output = Command::new(LAB)
        .args([
            "confine",
            "--core",
            "0",
            "--parent",
            &std::process::id().to_string(),
            "--",
        ])
        .args(["grep", "Cpus_allowed_list", "/proc/self/status"])
        .output()
        .expect("runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "Cpus_allowed_list:\t0"
    );
}

#[test]
fn a_confined_program_ends_with_the_process_that_started_it() {
    // Given a parent that has started a program and waits for it …
    let script = format!("\"{LAB}\" confine --parent $$ -- sh -c 'echo up; exec sleep 1000'; true");
    let mut parent = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let mut output = BufReader::new(parent.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("reads");
    assert_eq!(line, "up\n");
    // … when the parent is killed, then the program ends too: the pipe is closed.
    parent.kill().expect("kill");
    parent.wait().expect("wait");
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("reads to the end");
    assert!(rest.is_empty());
}

#[test]
fn a_program_whose_starter_is_gone_does_not_start() {
    let output = Command::new(LAB)
        .args(["confine", "--parent", "1", "--", "echo", "up"])
        .output();
    let output = output.expect("runs");
    assert!(!output.status.success() && output.stdout.is_empty());
}

//! Tells the program which commit and which compiler it was built from.

use std::env;
use std::process::Command;

fn main() {
    let commit = said(Command::new("git").args(["rev-parse", "--short=8", "HEAD"]));
    // Changes with every commit, whatever branch it is on.
    let log = said(Command::new("git").args([
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ]));
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(log) = log.filter(|log| std::path::Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiler = said(Command::new(compiler).arg("--version"));
    let of = |known: Option<String>| known.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=HEDDLE_COMMIT={}", of(commit));
    println!("cargo::rustc-env=HEDDLE_COMPILER={}", of(compiler));
}

/// The output of a command; `None` if it failed, as `git` does for sources without a repository.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

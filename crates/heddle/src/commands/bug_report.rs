//! `heddle bug-report`.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use heddle_node::exit::{Exit, Failure};
use serde_json::Value;

use super::version;

/// Write what helps to find a mistake in Heddle to a file, without secrets
///
/// The file has the version, the machine, and from the running heddle its status, its configuration and its metrics.
/// Commands of LocalWorkloads keep their program's name only; values of environment variables, header edits and
/// conditions on headers and queries are left out. Names and addresses stay: read the file before you hand it on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle bug-report
  heddle bug-report --control --file control.txt

Exit codes:
  0  written, even if no running heddle answers, which the file then says
  1  failed
  2  wrong command line")]
pub(crate) struct Args {
    #[command(flatten)]
    at: super::At,
    /// The file, which must not exist yet
    #[arg(long, value_name = "FILE", default_value = "heddle-bug-report.txt")]
    file: PathBuf,
}

/// Files about the machine that are small and have no secrets.
const MACHINE: [&str; 4] = [
    "/proc/version",
    "/etc/os-release",
    "/proc/meminfo",
    "/proc/loadavg",
];
/// Most bytes that are read of each of them.
const MAX_BYTES: u64 = 64 * 1024;
const REDACTED: &str = "(redacted)";

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut report = String::new();
    section(&mut report, "heddle version", &version::text(&args.at));
    for path in MACHINE {
        section(&mut report, path, &beginning(Path::new(path)));
    }
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    section(&mut report, "processors", &processors.to_string());
    for (title, path) in [("status", "/status"), ("configuration", "/config")] {
        let answer = args.at.get(path).map(|answer| redacted(&answer));
        section(&mut report, title, &said(answer));
    }
    section(&mut report, "metrics", &said(args.at.get("/metrics")));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(&args.file)
        .and_then(|mut file| file.write_all(report.as_bytes()));
    written.with_context(|| format!("cannot write {}", args.file.display()))?;
    super::print(&format!(
        "{}: read it before you hand it on: it has names and addresses of the mesh\n",
        args.file.display()
    ))?;
    Ok(Exit::Ok)
}

fn section(report: &mut String, title: &str, text: &str) {
    let _infallible = writeln!(report, "== {title}\n{}\n", text.trim_end());
}

/// An answer, or why there is none.
fn said(answer: Result<String, Failure>) -> String {
    answer.unwrap_or_else(|failure| failure.to_string())
}

fn beginning(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// A status or a configuration without values that may be secret.
fn redacted(answer: &str) -> String {
    match serde_json::from_str::<Value>(answer) {
        Ok(mut value) => {
            redact(&mut value);
            format!("{value:#}")
        }
        Err(error) => format!("the answer is no JSON: {error}"),
    }
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("argv", Value::Array(words)) => {
                        words.iter_mut().skip(1).for_each(hide);
                    }
                    ("env", Value::Object(variables)) => variables.values_mut().for_each(hide),
                    ("set" | "add" | "headers" | "query", Value::Array(pairs)) => {
                        pairs.iter_mut().for_each(hide_second);
                    }
                    (_, value) => redact(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn hide(value: &mut Value) {
    *value = Value::from(REDACTED);
}

/// Hides the value of a pair of a name and a value; what has another form is hidden as a whole.
fn hide_second(pair: &mut Value) {
    match pair.as_array_mut().map(Vec::as_mut_slice) {
        Some([Value::String(_), value]) => hide(value),
        _ => hide(pair),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_left_out() {
        let answer = r#"{"mesh": {
            "workloads": [{"name": "a/b", "command": {"argv": ["serve", "--key=S"], "env": {"TOKEN": "S"}}}],
            "services": [{"routes": [{"filters": {"request": {"set": [["authorization", "S"]], "add": [["x", "S"]]}},
                "matcher": {"headers": [["cookie", "S"]], "query": [["key", "S"]]}}]}],
            "policies": [{"headers": [{"name": "authorization", "values": ["S"]}]}]}}"#;
        let said = redacted(answer);
        assert!(!said.contains('S'), "{said}");
        for kept in ["a/b", "serve", "TOKEN", "authorization", "cookie", "key"] {
            assert!(said.contains(kept), "{kept} in {said}");
        }
        assert!(redacted("{").contains("no JSON"));
    }
}

//! `heddle validate`.

use std::fmt::Write;
use std::path::PathBuf;

use heddle_control::printable;
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::exit::{Exit, Failure};
use crate::table::count;

/// Check a folder of manifests without serving it
///
/// Says what `heddle up` would say. Errors, which keep a configuration from being served, make
/// the command exit with 3; warnings do not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle validate examples/bookstore
  heddle validate . --output json | jq '.problems[].reason'

Exit codes:
  0  valid, perhaps with warnings
  1  failed
  2  wrong command line
  3  refused: there are errors")]
pub(crate) struct Args {
    /// The folder of manifests
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How to print the result
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

#[derive(Serialize)]
struct Verdict<'a> {
    valid: bool,
    services: usize,
    workloads: usize,
    #[serde(flatten)]
    report: &'a heddle_control::Report,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let (mesh, report) = heddle_control::load(&args.dir);
    let (services, workloads) = mesh
        .as_ref()
        .map_or((0, 0), |mesh| (mesh.services.len(), mesh.workloads.len()));
    let verdict = Verdict {
        valid: mesh.is_some(),
        services,
        workloads,
        report: &report,
    };
    super::print(&match args.output {
        OutputFormat::Text => text(&verdict),
        OutputFormat::Json => serde_json::to_string_pretty(&verdict).unwrap_or_default() + "\n",
    })?;
    Ok(if verdict.valid {
        Exit::Ok
    } else {
        Exit::Refused
    })
}

fn text(verdict: &Verdict<'_>) -> String {
    let mut out = String::new();
    let report = verdict.report;
    for problem in &report.problems {
        let _infallible = writeln!(out, "{problem}");
    }
    if report.omitted > 0 {
        let _infallible = writeln!(out, "and {} more", report.omitted);
    }
    if let Some(skipped) = report.skipped_summary() {
        let _infallible = writeln!(out, "{skipped}");
    }
    let objects = count(report.objects, "object");
    let _infallible = if verdict.valid {
        write!(
            out,
            "valid: {objects}, {}, {}, {}",
            count(verdict.services, "service"),
            count(verdict.workloads, "workload"),
            count(report.problems.len() + report.omitted, "warning")
        )
    } else {
        write!(
            out,
            "refused: {} in {objects}",
            count(report.errors(), "error")
        )
    };
    if let Some(first) = &report.left_aside.first {
        let files = count(report.left_aside.files, "file");
        let first = first.display().to_string();
        let first = printable(&first);
        let _infallible = match report.left_aside.files {
            1 => write!(out, "; {files} left aside: {first}"),
            _ => write!(out, "; {files} left aside, {first} the first"),
        };
    }
    out.push('\n');
    out
}

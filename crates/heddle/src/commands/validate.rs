//! `heddle validate`.

use std::fmt::Write;
use std::path::PathBuf;

use heddle_model::Mesh;
use heddle_model::printable;
use heddle_model::report::Report;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::{GivenSettings, Settings};
use heddle_node::table::count;
use serde::Serialize;

use super::folder::{self, Reader};
use crate::colour;
use crate::output::OutputFormat;

/// Check a folder of manifests, or settings, without serving anything
///
/// Says what is wrong for `heddle up` on this machine. With any error the command exits with 3; warnings do not
/// count. A running heddle refuses only the objects with errors, and those that need them.
///
/// A folder in which LocalWorkloads have no address may be a lab's, which gives addresses: it is read as `heddle-lab
/// up` reads it. If that command accepts it, it is valid, and the output says that it is for a lab. With --for, as in a
/// pipeline, the folder has to be valid for that command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle validate examples/bookstore
  heddle validate --config heddle.yaml
  heddle validate . --config heddle.yaml
  heddle validate examples/lab/bookstore --for lab
  heddle validate . --output json | jq '.problems[].reason'

Exit codes:
  0  valid, perhaps with warnings
  1  failed
  2  wrong command line
  3  refused: there are errors")]
pub(crate) struct Args {
    /// The folder of manifests
    #[arg(value_name = "DIR", required_unless_present = "config")]
    dir: Option<PathBuf>,
    /// Settings of the process, as for `heddle up`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which command the folder is for [default: up, or lab where addresses are missing]
    #[arg(long = "for", value_name = "COMMAND", requires = "dir")]
    reader: Option<Reader>,
    /// How to print the result
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

#[derive(Serialize)]
struct Verdict<'a> {
    valid: bool,
    /// The command that accepts the folder, or that was given with `--for`; absent without a folder.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    reader: Option<Reader>,
    services: usize,
    workloads: usize,
    #[serde(flatten)]
    report: &'a Report,
    /// The problem of the settings; absent when they are valid or were not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_problem: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let file = args.config.as_deref();
    let settings = file.map(|file| GivenSettings::read(Some(file))?.checked());
    let (settings, settings_problem) = match settings {
        Some(Ok(settings)) => (settings, None),
        Some(Err(error)) => (Settings::default(), Some(error.to_string())),
        None => (Settings::default(), None),
    };
    let read = args.dir.as_ref();
    let read = read.map(|dir| folder::read(dir, &settings.mesh, args.reader));
    let (mesh, report, reader) = match read {
        Some(read) => (read.mesh, read.report, Some(read.reader)),
        None => (Some(Mesh::default()), Report::default(), None),
    };
    let (services, workloads) = mesh
        .as_ref()
        .map_or((0, 0), |mesh| (mesh.services.len(), mesh.workloads.len()));
    let verdict = Verdict {
        valid: mesh.is_some() && settings_problem.is_none(),
        reader,
        services,
        workloads,
        report: &report,
        settings_problem,
    };
    super::print(&args.output.written(&verdict, || said(args, &verdict))?)?;
    Ok(if verdict.valid {
        Exit::Ok
    } else {
        Exit::Refused
    })
}

/// Text of the results for settings and folder.
fn said(args: &Args, verdict: &Verdict<'_>) -> String {
    let mut out = String::new();
    if let Some(file) = &args.config {
        let file = file.display().to_string();
        let _infallible = match &verdict.settings_problem {
            Some(problem) => writeln!(
                out,
                "{}\n{}: settings",
                printable(problem),
                colour::bad("refused")
            ),
            None => writeln!(
                out,
                "{}: settings in {}",
                colour::good("valid"),
                printable(&file)
            ),
        };
    }
    if args.dir.is_some() {
        out.push_str(&text(verdict));
    }
    out
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
    if verdict.reader == Some(Reader::Lab) {
        out.push_str(&for_a_lab(report.addresses.missing));
    }
    let objects = count(report.objects, "object");
    let _infallible = if report.errors() == 0 {
        write!(
            out,
            "{}: {objects}, {}, {}, {}",
            colour::good("valid"),
            count(verdict.services, "service"),
            count(verdict.workloads, "workload"),
            count(report.problems.len() + report.omitted, "warning")
        )
    } else {
        write!(
            out,
            "{}: {} in {objects}",
            colour::bad("refused"),
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

/// Note about a folder whose workloads have no addresses.
fn for_a_lab(missing: usize) -> String {
    let named = "for a lab: heddle-lab up gives addresses to pods and Services";
    match missing {
        0 => format!("{named}\n"),
        _ => format!(
            "{named}; heddle up and heddle control refuse the {} without one\n",
            count(missing, "LocalWorkload")
        ),
    }
}

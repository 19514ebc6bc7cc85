//! `heddle-lab bench cost`: the cost of a request and of an idle proxy, compared with a record.
//!
//! These figures hardly depend on the machine: user instructions and system calls of a request, and the memory of an
//! idle proxy. So a record of them is kept in the repository, and a change that raises a figure fails the comparison.
//!
//! What disturbs a figure raises it: on a busy machine fewer requests share one turn of the proxy's loop. So a record is
//! the least of several rounds, and a figure that is above it is measured again: what a change costs is there each time.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::child::words;
use super::findings::Findings;
use super::instructions;
use super::machine::Machine;
use super::proxy::main_cell;
use super::runner::{Subject, write_json};
use super::stage::{Stage, parse};
use super::syscalls::Method;
use super::systems::{ProxyKind, System, Traffic, Work};

/// Rounds of which the least is taken.
const ROUNDS: usize = 3;

/// Options of `bench cost`.
#[derive(Args, Clone)]
pub struct CostOptions {
    /// Fail when a figure is above the one in FILE by more than its tolerance.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Write FILE anew instead of comparing.
    #[arg(long, requires = "expect")]
    update: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    subject: Subject,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    isolated: bool,
}

/// A figure, and the percentage by which it may be above its record.
#[derive(Debug, Clone, PartialEq)]
struct Figure {
    name: &'static str,
    value: f64,
    tolerance_percent: f64,
}

/// Measures, prints, and compares.
///
/// # Errors
/// When a tool is missing, the proxy does not start, or a figure is above the record.
pub(super) fn run(options: &CostOptions) -> anyhow::Result<()> {
    let machine = Machine::prepare(options.isolated)?;
    anyhow::ensure!(
        machine.cores >= 2,
        "this experiment needs two cores, one for the proxy alone"
    );
    let program = options.subject.heddle()?;
    let system = System::new("heddle", ProxyKind::Heddle, &program)?;
    let mut figures = measure(&system)?;
    let held = match &options.expect {
        None => {
            print!("{}", record(&figures));
            Ok(())
        }
        Some(file) if options.update => {
            for _ in 1..ROUNDS {
                lower(&mut figures, &measure(&system)?);
            }
            fs::write(file, record(&figures))
                .with_context(|| format!("cannot write {}", file.display()))
        }
        Some(file) => hold(&system, &mut figures, file),
    };
    if options.json.is_some() {
        let mut findings = Findings::new("cost", false, machine);
        for figure in &figures {
            findings.value(figure.name, Some(figure.value));
        }
        write_json(options.json.as_deref(), &findings)?;
    }
    held
}

/// Compares the figures with a record; those above it are measured again.
///
/// # Errors
/// When the record cannot be read, or a figure is above it in each round.
fn hold(system: &System, figures: &mut [Figure], file: &Path) -> anyhow::Result<()> {
    for round in 1.. {
        let above = compare(figures, file)?.join(", ");
        if above.is_empty() {
            break;
        }
        anyhow::ensure!(
            round < ROUNDS,
            "more than on record in {}: {above}. If that is worth it, write the record anew with --update and say why",
            file.display()
        );
        println!("more than on record, so measured again: {above}");
        lower(figures, &measure(system)?);
    }
    Ok(())
}

fn measure(system: &System) -> anyhow::Result<Vec<Figure>> {
    let systems = [system.clone()];
    let stage = Stage::set(&systems, 1, 0.2, Traffic::Http)?;
    let (work, place) = (stage.work(1, 1), stage.place(0));
    let load = |stage: &Stage, targets: &[String], requests: u64| {
        let mut command = stage.load_command(targets, main_cell());
        command.extend(words(["--requests", &requests.to_string()]));
        command
    };
    // The kernel also maps the pages beside one that is needed, those in its page cache: all of the program is there.
    let _in_page_cache = fs::read(&system.program)?;
    let idle = system.start(&work, &place, &[])?;
    let memory = idle.idle_memory()?;
    let method = Method::probe();
    let method = method.context("neither perf nor strace works here: install strace")?;
    let command = load(&stage, &idle.targets, method.requests());
    let (calls, printed) = method.count(&idle.pids(), &command, &stage.client, stage.dir.path())?;
    let calls = calls as f64 / parse(&printed)?.requests as f64;
    drop(idle);
    let instructions = |stage: &Stage, work: &Work| {
        let load = |targets: &[String], requests: u64| load(stage, targets, requests);
        instructions::per_request(system, work, &place, &stage.client, load)
    };
    let one_node = instructions(&stage, &work)?;
    let policy = Work {
        policy: true,
        ..work
    };
    let with_policy = instructions(&stage, &policy)?;
    drop(stage);
    let pair = Stage::set(&systems, 1, 0.2, Traffic::MutualTls)?;
    let by_link = instructions(&pair, &pair.work(1, 1))?;
    let figure = |name, value, tolerance_percent| Figure {
        name,
        value,
        tolerance_percent,
    };
    Ok(vec![
        figure("user_instructions_per_request", one_node, 2.0),
        figure("user_instructions_with_policy", with_policy, 2.0),
        // Both nodes together; the second one has the policy.
        figure("user_instructions_by_link", by_link, 2.0),
        // How many requests share a wait depends on scheduling; one more call for each request would be over 20 %.
        figure("system_calls_per_request", calls, 15.0),
        figure("idle_anonymous_kib", memory.anonymous_kib as f64, 10.0),
        figure("idle_rss_kib", memory.rss_kib as f64, 10.0),
    ])
}

/// The text of a record with these figures.
fn record(figures: &[Figure]) -> String {
    let mut text =
        "# What a request and an idle proxy cost; written by heddle-lab bench cost --update.\n"
            .to_owned();
    for Figure { name, value, .. } in figures {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{value:12.2} {name}");
    }
    text
}

/// Replaces each figure by that of another round, if that is less.
fn lower(figures: &mut [Figure], again: &[Figure]) {
    for (figure, again) in figures.iter_mut().zip(again) {
        figure.value = figure.value.min(again.value);
    }
}

/// Compares the figures with a record, and returns the names of those that are above it by more than their tolerance.
///
/// # Errors
/// When the record cannot be read, or has not all figures.
fn compare(figures: &[Figure], file: &Path) -> anyhow::Result<Vec<&'static str>> {
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    let mut above = Vec::new();
    for figure in figures {
        let recorded = recorded(&text, figure.name).with_context(|| {
            let (file, name) = (file.display(), figure.name);
            format!("{file} has no {name}: write it anew with --update")
        })?;
        println!(
            "{:12.2} {}, on record {recorded:.2}",
            figure.value, figure.name
        );
        if figure.is_above(recorded) {
            above.push(figure.name);
        }
    }
    Ok(above)
}

impl Figure {
    fn is_above(&self, recorded: f64) -> bool {
        self.value > recorded * (1.0 + self.tolerance_percent / 100.0)
    }
}

/// The value with that name in a record.
fn recorded(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let (value, named) = line.trim().split_once(' ')?;
        (named == name).then(|| value.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64) -> Figure {
        Figure {
            name: "cost",
            value,
            tolerance_percent: 2.0,
        }
    }

    #[test]
    fn a_figure_may_be_a_little_above_its_record() {
        for (value, is_above) in [(100.0, false), (50.0, false), (102.0, false), (102.1, true)] {
            assert_eq!(figure(value).is_above(100.0), is_above, "{value}");
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = record(&[figure(17_655.25)]);
        assert_eq!(recorded(&text, "cost"), Some(17_655.25));
        assert_eq!(recorded(&text, "other"), None);
        assert!(compare(&[figure(1.0)], Path::new("/nowhere")).is_err());
    }

    #[test]
    fn what_only_one_round_has_is_above_no_record() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), record(&[figure(100.0)])).unwrap();
        let mut figures = [figure(103.0)];
        assert_eq!(compare(&figures, file.path()).unwrap(), ["cost"]);
        lower(&mut figures, &[figure(101.0)]);
        assert!(compare(&figures, file.path()).unwrap().is_empty());
        lower(&mut figures, &[figure(104.0)]);
        assert_eq!(figures, [figure(101.0)]);
    }
}

//! `heddle-lab bench results`: every figure that README and the documents quote, measured and recorded.
//!
//! Each part is an experiment in full, run as a program of its own. Its results are written to `docs/results` as soon
//! as it ends, so that an interrupted run can be continued: a part that is on record for the programs of this commit is
//! not measured again.
//!
//! | module | is |
//! |---|---|
//! | [`parts`] | the experiments, and what a reader has to know about each |
//! | [`repository`] | which commit is measured, and whether the files in the folder are those of the commit |
//! | [`build`] | the programs that are measured |
//! | [`record`] | the record of a part, and when it is stale |
//! | [`shown`], [`page`], [`readme`], [`picture`] | how results are presented |
//! | [`quotes`] | figures in other pages, which have to be those on record |
//! | [`check`] | whether they are: a test, and the end of `--render` |

mod build;
mod check;
mod page;
mod parts;
mod picture;
mod quotes;
mod readme;
mod record;
mod repository;
mod shown;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::runner::NOT_FOR_PUBLICATION;
use build::Build;
use parts::{PARTS, Part};
use quotes::Records;
use record::{Origin, Record};
use repository::Repository;

/// Options of `bench results`.
#[derive(Args, Clone)]
pub struct ResultsOptions {
    /// Only these parts.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure parts again that are on record for these programs.
    #[arg(long)]
    again: bool,
    /// Measure the files as they are, committed or not, into target/results: not for publication.
    #[arg(long)]
    draft: bool,
    /// Short experiments, to see whether all of them work: a draft.
    #[arg(long)]
    quick: bool,
    /// Measure nothing: write the pages anew from the records.
    #[arg(long, conflicts_with_all = ["again", "draft", "quick"])]
    render: bool,
    /// Measure the programs of this folder instead of a build: a draft.
    #[arg(long, value_name = "DIR", hide = true)]
    programs: Option<PathBuf>,
}

impl ResultsOptions {
    fn is_draft(&self) -> bool {
        self.draft || self.quick || self.programs.is_some()
    }

    /// The parts that the user wants.
    ///
    /// # Errors
    /// When no part has one of the names.
    fn parts(&self) -> anyhow::Result<Vec<&'static Part>> {
        let known = |name: &String| PARTS.iter().any(|part| part.name == name);
        if let Some(unknown) = self.only.iter().find(|name| !known(name)) {
            let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            anyhow::bail!("there is no part {unknown}, only {}", names.join(", "));
        }
        let is_wanted =
            |part: &&Part| self.only.is_empty() || self.only.iter().any(|name| name == part.name);
        Ok(PARTS.iter().filter(is_wanted).collect())
    }
}

/// Measures what is not on record, and writes the pages.
///
/// # Errors
/// When a part failed, or a file cannot be written.
pub(super) fn run(options: &ResultsOptions) -> anyhow::Result<()> {
    let repository = Repository::here()?;
    if options.render {
        render(&repository)?;
        return complain(&repository);
    }
    let wanted = options.parts()?;
    let draft = options.is_draft();
    let folder = match draft {
        true => build::target(&repository).join("results"),
        false => repository.results(),
    };
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let origin = origin(&repository, options)?;
    if draft {
        println!(
            "A draft: {NOT_FOR_PUBLICATION}. It is written to {}.",
            folder.display()
        );
    }
    let (kept, due) = split(&wanted, &folder, &origin, options)?;
    let mut session = Session {
        folder: &folder,
        repository: &repository,
        origin,
        ends: kept
            .into_iter()
            .map(|part| (part.name, End::Kept))
            .collect(),
    };
    if !due.is_empty() {
        let build = Build::make(&repository, options.programs.as_deref())?;
        session.measure(&due, &build)?;
    }
    session.write_pages()?;
    session.conclude()
}

/// Splits the parts into those that are on record for the programs to be measured, and those that are not.
fn split(
    wanted: &[&'static Part],
    folder: &Path,
    origin: &Origin,
    options: &ResultsOptions,
) -> anyhow::Result<(Vec<&'static Part>, Vec<&'static Part>)> {
    let (mut kept, mut due) = (Vec::new(), Vec::new());
    for part in wanted {
        let why = match Record::read(folder, part.name)? {
            None => Some("it is not on record"),
            Some(_) if options.again => Some("it was asked for again"),
            // Nothing tells the programs of one draft from those of another.
            Some(_) if origin.draft && !options.quick => Some("it is a draft"),
            Some(record) => record.stale(origin, part.has_published),
        };
        match why {
            Some(why) => {
                eprintln!("{}: to be measured, {why}", part.name);
                due.push(*part);
            }
            None => kept.push(*part),
        }
    }
    Ok((kept, due))
}

/// The commit, the compiler and the options of this run.
///
/// # Errors
/// When files differ from the commit, unless it is a draft.
fn origin(repository: &Repository, options: &ResultsOptions) -> anyhow::Result<Origin> {
    let changed = repository.changed()?;
    anyhow::ensure!(
        options.is_draft() || changed.is_empty(),
        "figures belong to a commit, and these files differ from it: commit them, or measure a --draft\n  {}",
        changed.join("\n  ")
    );
    Ok(Origin {
        commit: repository.commit()?,
        tree: repository.tree()?,
        date: time::OffsetDateTime::now_utc().date().to_string(),
        compiler: build::compiler(repository)?,
        draft: options.is_draft(),
        quick: options.quick,
        published: std::env::var_os("PUBLISHED").is_some_and(|value| value == "1"),
    })
}

/// The result of a part.
enum End {
    Kept,
    Measured,
    NotRoot,
    /// The experiment failed, or its results are invalid.
    Failed(String),
}

/// A run over several parts.
struct Session<'a> {
    folder: &'a Path,
    repository: &'a Repository,
    origin: Origin,
    ends: Vec<(&'static str, End)>,
}

impl Session<'_> {
    /// Measures one part after the other. One that fails does not stop the others.
    fn measure(&mut self, due: &[&'static Part], build: &Build) -> anyhow::Result<()> {
        let is_root = rustix::process::geteuid().is_root();
        let began = Instant::now();
        let minutes: Vec<u64> = due.iter().map(|part| self.minutes(part)).collect();
        for (index, part) in due.iter().enumerate() {
            if part.needs_root && !is_root {
                self.ends.push((part.name, End::NotRoot));
                continue;
            }
            eprintln!(
                "\n== part {} of {}: {}, about {} min ({} min since the beginning, about {} min to go)",
                index + 1,
                due.len(),
                part.name,
                minutes[index],
                began.elapsed().as_secs() / 60,
                minutes[index..].iter().sum::<u64>()
            );
            let end = match self.measure_one(part, build) {
                Ok(end) => end,
                Err(error) => End::Failed(format!("{error:#}")),
            };
            if let End::Failed(why) = &end {
                eprintln!("{}: {why}", part.name);
            }
            self.ends.push((part.name, end));
            self.write_pages()?;
        }
        Ok(())
    }

    fn measure_one(&self, part: &Part, build: &Build) -> anyhow::Result<End> {
        let began = Instant::now();
        let scratch = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let (json, svg) = (scratch.path().join("json"), scratch.path().join("svg"));
        let mut command = Command::new(&build.lab);
        command.arg("bench").args(part.arguments);
        command.arg("--json").arg(&json);
        if matches!(part.picture, parts::Picture::Own) {
            command.arg("--svg").arg(&svg);
        }
        if self.origin.quick && part.has_quick {
            command.arg("--quick");
        }
        let status = command.status().context("heddle-lab bench")?;
        anyhow::ensure!(status.success(), "the experiment ended with {status}");
        let report: Value = serde_json::from_slice(&fs::read(&json)?)?;
        let mut versions: BTreeMap<String, String> = part.versions()?.into_iter().collect();
        versions.insert("Heddle".to_owned(), build.version.clone());
        let record = Record {
            part: part.name.to_owned(),
            origin: self.origin.clone(),
            took_s: began.elapsed().as_secs(),
            versions,
            report: record::slim(report)?,
        };
        picture::write(part, &record, &svg, self.folder)?;
        record.write(self.folder)?;
        let invalid = record.invalid();
        Ok(match invalid.is_empty() {
            true => End::Measured,
            false => End::Failed(format!("the result is invalid: {}", invalid.join("; "))),
        })
    }

    /// The expected time of a part: as long as the last time, if it was measured with the same options.
    fn minutes(&self, part: &Part) -> u64 {
        let record = Record::read(self.folder, part.name).ok().flatten();
        let is_alike = |record: &Record| {
            let (then, now) = (&record.origin, &self.origin);
            (then.quick, then.published) == (now.quick, now.published)
        };
        match record.filter(is_alike) {
            Some(record) => record.took_s.div_ceil(60),
            None if self.origin.quick => u64::from(part.minutes).div_ceil(4),
            None if self.origin.published && part.has_published => parts::PUBLISHED_MINUTES,
            None => u64::from(part.minutes),
        }
    }

    /// Writes the page of results and, where these are for publication, the figures that other pages quote.
    fn write_pages(&self) -> anyhow::Result<()> {
        if self.origin.draft {
            let page = page::page(&records(self.folder)?, true);
            return Ok(fs::write(self.folder.join("README.md"), page)?);
        }
        render(self.repository)
    }

    /// Prints the result of every part.
    ///
    /// # Errors
    /// When a part failed.
    fn conclude(&self) -> anyhow::Result<()> {
        println!("\n{} has:", self.folder.join("README.md").display());
        let mut failed = Vec::new();
        for (name, end) in &self.ends {
            let said = match end {
                End::Kept => "on record for these programs".to_owned(),
                End::Measured => "measured".to_owned(),
                End::NotRoot => "NOT measured: it takes root (sudo)".to_owned(),
                End::Failed(why) => {
                    failed.push(*name);
                    format!("FAILED: {why}")
                }
            };
            println!("  {name:22} {said}");
        }
        anyhow::ensure!(
            failed.is_empty(),
            "these parts failed: {}",
            failed.join(", ")
        );
        Ok(())
    }
}

/// All records in a folder.
///
/// # Errors
/// When a file is not a record.
fn records(folder: &Path) -> anyhow::Result<Records> {
    let mut records = Records::new();
    for part in &PARTS {
        if let Some(record) = Record::read(folder, part.name)? {
            records.insert(part.name.to_owned(), record);
        }
    }
    Ok(records)
}

/// Writes the page of results, README's figures, and those that other pages quote.
///
/// # Errors
/// When a file cannot be read or written, or README has no place for the figures.
fn render(repository: &Repository) -> anyhow::Result<()> {
    let folder = repository.results();
    let records = records(&folder)?;
    fs::create_dir_all(&folder)?;
    write_changed(&folder.join("README.md"), &page::page(&records, false))?;
    for page in pages(repository)? {
        let text = fs::read_to_string(&page)?;
        let mut filled = quotes::filled(&text, &records);
        if page == repository.file("README.md") {
            filled = readme::filled(&filled, &records)?;
        }
        write_changed(&page, &filled)?;
    }
    Ok(())
}

/// Fails with what the test of these pages would find.
///
/// # Errors
/// When the test would find something.
fn complain(repository: &Repository) -> anyhow::Result<()> {
    let wrong = check::check(repository)?.wrong;
    anyhow::ensure!(
        wrong.is_empty(),
        "not as it should be:\n  {}",
        wrong.join("\n  ")
    );
    Ok(())
}

fn write_changed(file: &Path, text: &str) -> anyhow::Result<()> {
    if fs::read_to_string(file).is_ok_and(|before| before == text) {
        return Ok(());
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The pages that may quote figures: those at the root of the repository, and in `docs`.
///
/// # Errors
/// When a folder cannot be read.
fn pages(repository: &Repository) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in [repository.root.clone(), repository.file("docs")] {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests;

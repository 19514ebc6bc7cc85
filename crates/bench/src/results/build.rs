//! The programs that are measured: a release build of what is committed, copied away from later builds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::repository::Repository;

const PROGRAMS: [&str; 2] = ["heddle", "heddle-lab"];

/// Copies of the programs in a folder of their own.
pub(super) struct Build {
    pub(super) lab: PathBuf,
    /// Heddle's version, as the program prints it.
    pub(super) version: String,
    _folder: tempfile::TempDir,
}

impl Build {
    /// Builds the programs, or takes those of a given folder.
    ///
    /// # Errors
    /// When the build fails, or a program is missing.
    pub(super) fn make(repository: &Repository, given: Option<&Path>) -> anyhow::Result<Build> {
        let from = match given {
            Some(folder) => folder.to_owned(),
            None => built(repository)?,
        };
        // Another build may replace the programs while these are measured.
        let target = target(repository);
        fs::create_dir_all(&target)?;
        let folder = tempfile::Builder::new()
            .prefix("measured-")
            .tempdir_in(target)?;
        // A node's proxy, which has no privileges, starts from this folder, too.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        for program in PROGRAMS {
            let (from, to) = (from.join(program), folder.path().join(program));
            fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let version = said(Command::new(folder.path().join("heddle")).arg("--version"))?;
        Ok(Build {
            lab: folder.path().join("heddle-lab"),
            version: version.trim_start_matches("heddle ").to_owned(),
            _folder: folder,
        })
    }
}

fn built(repository: &Repository) -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&repository.root);
    cargo.env("CARGO_TARGET_DIR", target(repository));
    cargo.args(["build", "--locked", "--release"]);
    cargo.args(["--package", "heddle", "--package", "heddle-lab-program"]);
    let status = cargo.status().context("cannot run cargo")?;
    anyhow::ensure!(status.success(), "the release build failed");
    Ok(target(repository).join("release"))
}

/// The target folder of cargo.
pub(super) fn target(repository: &Repository) -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let given = given.and_then(|folder| std::path::absolute(folder).ok());
    given.unwrap_or_else(|| repository.file("target"))
}

/// The name and the version of the compiler.
///
/// # Errors
/// When it cannot be run.
pub(super) fn compiler(repository: &Repository) -> anyhow::Result<String> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(&repository.root).arg("--version");
    let version = said(&mut rustc)?;
    // Without the date and the hash.
    let words: Vec<&str> = version.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    anyhow::ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

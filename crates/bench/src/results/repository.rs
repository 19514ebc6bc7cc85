//! The repository whose build is measured: its commit, and which of its files a release build contains.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// The files that a release build is made of.
const MEASURED: [&str; 4] = ["crates", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];
/// Parts of paths of files that no measured program contains: tests, examples, and what renders these results.
const NOT_MEASURED: [&str; 4] = ["/tests/", "/tests.rs", "/examples/", "/src/results"];

/// A checkout.
#[derive(Debug, Clone)]
pub(super) struct Repository {
    pub(super) root: PathBuf,
}

impl Repository {
    /// The checkout of the current directory.
    ///
    /// # Errors
    /// When there is none, or git is missing.
    pub(super) fn here() -> anyhow::Result<Repository> {
        let found = Repository { root: ".".into() }.git(&["rev-parse", "--show-toplevel"]);
        let root = found.context("the results belong to a commit: run this in a git checkout")?;
        Ok(Repository { root: root.into() })
    }

    /// The commit that is checked out.
    ///
    /// # Errors
    /// When git fails.
    pub(super) fn commit(&self) -> anyhow::Result<String> {
        self.git(&["rev-parse", "HEAD"])
    }

    /// A hash of all files that a release build of HEAD is made of: the same for commits that differ in documents or
    /// tests alone.
    ///
    /// # Errors
    /// When git fails.
    pub(super) fn tree(&self) -> anyhow::Result<String> {
        let mut arguments = vec!["ls-tree", "-r", "HEAD", "--"];
        arguments.extend(MEASURED);
        let listing = self.git(&arguments)?;
        let measured: Vec<&str> = listing.lines().filter(|line| is_measured(line)).collect();
        let mut hash = self.command(&["hash-object", "--stdin"]);
        let mut hash = hash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = hash.stdin.take().context("git's input")?;
        input.write_all(measured.join("\n").as_bytes())?;
        drop(input);
        let output = hash.wait_with_output()?;
        anyhow::ensure!(output.status.success(), "git hash-object failed");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// The files of a release build that differ from HEAD.
    ///
    /// # Errors
    /// When git fails.
    pub(super) fn changed(&self) -> anyhow::Result<Vec<String>> {
        let mut arguments = vec!["status", "--porcelain", "--untracked-files=all", "--"];
        arguments.extend(MEASURED);
        let listing = self.git(&arguments)?;
        let changed = listing.lines().filter(|line| is_measured(line));
        Ok(changed.map(|line| line.trim().to_owned()).collect())
    }

    /// Whether a commit is HEAD or one before it; `None` where the history is cut off.
    ///
    /// # Errors
    /// When git fails.
    pub(super) fn has_behind_it(&self, commit: &str) -> anyhow::Result<Option<bool>> {
        let ancestor = ["merge-base", "--is-ancestor", commit, "HEAD"];
        let is_ancestor = self.command(&ancestor).stderr(Stdio::null()).status()?;
        if is_ancestor.success() {
            return Ok(Some(true));
        }
        let is_cut_off = self.git(&["rev-parse", "--is-shallow-repository"])? == "true";
        Ok((!is_cut_off).then_some(false))
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(arguments).output().context("git")?;
        anyhow::ensure!(
            output.status.success(),
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.root).args(arguments);
        git
    }

    /// The folder of the results.
    pub(super) fn results(&self) -> PathBuf {
        self.root.join("docs/results")
    }

    pub(super) fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }
}

/// Whether a line of a listing, which ends with a path, names a file of a measured program.
fn is_measured(line: &str) -> bool {
    !NOT_MEASURED.iter().any(|part| line.contains(part))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn repository() -> (tempfile::TempDir, Repository) {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository {
            root: dir.path().to_owned(),
        };
        repository.git(&["init", "--quiet"]).unwrap();
        for name in ["user.name", "user.email"] {
            repository.git(&["config", name, "test"]).unwrap();
        }
        (dir, repository)
    }

    fn commit(repository: &Repository, path: &str, text: &str) {
        let file = repository.file(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        repository.git(&["add", "--all"]).unwrap();
        repository
            .git(&["commit", "--quiet", "--message", path])
            .unwrap();
    }

    #[test]
    fn a_commit_that_changes_no_program_leaves_its_name_alone() {
        let (_dir, repository) = repository();
        commit(&repository, "crates/proxy/src/lib.rs", "one");
        let before = repository.tree().unwrap();
        for path in [
            "README.md",
            "docs/results/proxy.json",
            "crates/proxy/src/tests.rs",
            "crates/proxy/tests/all.rs",
            "crates/bench/src/results/page.rs",
        ] {
            commit(&repository, path, "text");
            assert_eq!(repository.tree().unwrap(), before, "{path}");
        }
        commit(&repository, "crates/proxy/src/lib.rs", "two");
        assert_ne!(repository.tree().unwrap(), before);
    }

    #[test]
    fn what_is_not_committed_is_named_if_it_is_measured() {
        let (_dir, repository) = repository();
        commit(&repository, "crates/proxy/src/lib.rs", "one");
        fs::write(repository.file("README.md"), "new").unwrap();
        assert_eq!(repository.changed().unwrap(), [""; 0]);
        fs::write(repository.file("crates/proxy/src/lib.rs"), "two").unwrap();
        fs::write(repository.file("Cargo.toml"), "new").unwrap();
        let changed = repository.changed().unwrap().join(" ");
        assert!(
            changed.contains("lib.rs") && changed.contains("?? Cargo.toml"),
            "{changed}"
        );
    }

    #[test]
    fn a_commit_is_behind_head_or_it_is_not() {
        let (_dir, repository) = repository();
        commit(&repository, "a", "one");
        let first = repository.commit().unwrap();
        commit(&repository, "a", "two");
        assert_eq!(repository.has_behind_it(&first).unwrap(), Some(true));
        let unknown = "0123456789012345678901234567890123456789";
        assert_eq!(repository.has_behind_it(unknown).unwrap(), Some(false));
    }
}

//! Checks that every figure that a page quotes is on record, is quoted as recorded, and may be published.

use std::fs;

use super::parts::PARTS;
use super::quotes::{self, Records};
use super::record::Record;
use super::repository::Repository;
use super::{page, pages, readme, records};

/// Numbers with a unit in README that are no measurements: limits, sizes and settings.
const SETTINGS: [&str; 0] = [];
const REMEDY: &str = "heddle-lab bench results --render puts it right";

/// The results of a check.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) wrong: Vec<String>,
    /// Checks that could not be made, and why.
    pub(super) skipped: Vec<String>,
}

/// Checks all records and pages of a repository.
///
/// # Errors
/// When a file cannot be read, or is not a record.
pub(super) fn check(repository: &Repository) -> anyhow::Result<Checked> {
    let mut checked = Checked::default();
    let records = records(&repository.results())?;
    strangers(repository, &mut checked)?;
    for record in records.values() {
        origin(repository, record, &mut checked)?;
    }
    for path in pages(repository)? {
        let text = fs::read_to_string(&path)?;
        let name = path.strip_prefix(&repository.root)?.display().to_string();
        checked.wrong.extend(quotes::check(&name, &text, &records));
    }
    let results = fs::read_to_string(repository.results().join("README.md")).unwrap_or_default();
    if results != page::page(&records, false) {
        let said = format!("docs/results/README.md is not what the records say: {REMEDY}");
        checked.wrong.push(said);
    }
    let text = fs::read_to_string(repository.file("README.md"))?;
    checked.wrong.extend(of_readme(&text, &records)?);
    Ok(checked)
}

/// Finds files that belong to no part.
fn strangers(repository: &Repository, checked: &mut Checked) -> anyhow::Result<()> {
    let Ok(files) = fs::read_dir(repository.results()) else {
        return Ok(());
    };
    for file in files {
        let name = file?.file_name().to_string_lossy().into_owned();
        if let Some(part) = name.strip_suffix(".json")
            && !PARTS.iter().any(|known| known.name == part)
        {
            checked
                .wrong
                .push(format!("docs/results/{name} belongs to no part"));
        }
    }
    Ok(())
}

/// Checks that a record is of a full run, of HEAD or a commit before it.
fn origin(repository: &Repository, record: &Record, checked: &mut Checked) -> anyhow::Result<()> {
    let part = &record.part;
    let file = format!("docs/results/{part}.json");
    let objections = record.objections().into_iter();
    checked
        .wrong
        .extend(objections.map(|why| format!("{file}: {why}")));
    if !repository.results().join(format!("{part}.svg")).exists() {
        checked
            .wrong
            .push(format!("{file} has no picture beside it"));
    }
    if repository.commit().is_err() {
        let said = format!("whether {file} is of a commit before this one: there is no git here");
        checked.skipped.push(said);
        return Ok(());
    }
    let commit = &record.origin.commit;
    match repository.has_behind_it(commit)? {
        Some(true) => {}
        Some(false) => {
            let said = format!("{file} is of {commit}, which is not before HEAD: measure it again");
            checked.wrong.push(said);
        }
        None => {
            let said = format!("whether {file} is of a commit before this one: history is cut off");
            checked.skipped.push(said);
        }
    }
    Ok(())
}

/// What is wrong with README: its figures are not those on record, or it has figures outside of the markers.
fn of_readme(text: &str, records: &Records) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    if readme::filled(text, records)? != text {
        wrong.push(format!(
            "README.md's figures are not those on record: {REMEDY}"
        ));
    }
    let (before, after) = readme::outside(text)?;
    for text in [before, after] {
        let unbacked = quotes::unbacked(text, &SETTINGS).into_iter();
        wrong.extend(unbacked.map(|figure| {
            format!("README.md has a figure outside of the markers, or a setting that is not on the list: {figure}")
        }));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use serde_json::json;

    use super::*;
    use crate::results::record::tests::record;

    #[test]
    fn pages_quote_what_was_measured() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let checked = check(&Repository { root }).unwrap();
        for skipped in checked.skipped {
            eprintln!("NOT checked: {skipped}");
        }
        assert!(checked.wrong.is_empty(), "{:#?}", checked.wrong);
    }

    /// A repository with one commit, whose README has the markers.
    fn repository(folder: &Path) -> Repository {
        let root = folder.to_owned();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=test", "-c", "user.email=test"]);
            let status = git.current_dir(folder).args(arguments).status().unwrap();
            assert!(status.success());
        };
        git(&["init", "--quiet"]);
        fs::create_dir_all(folder.join("docs/results")).unwrap();
        let readme =
            "<!-- figures: rendered by make results, not by hand -->\n<!-- end of figures -->\n";
        fs::write(folder.join("README.md"), readme).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", "first"]);
        Repository { root }
    }

    fn write(repository: &Repository, mut record: Record, commit: &str) {
        record.origin.commit = commit.to_owned();
        record.write(&repository.results()).unwrap();
        let picture = repository.results().join(format!("{}.svg", record.part));
        fs::write(picture, "<svg></svg>").unwrap();
        crate::results::render(repository).unwrap();
    }

    #[test]
    fn a_record_of_another_history_a_quick_one_and_a_figure_by_hand_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let repository = repository(dir.path());
        let wrong = || check(&repository).unwrap().wrong;
        let measured = || {
            record(
                "proxy",
                json!({"quick": false, "ratios": {"cpu_vs_envoy": 0.44}}),
            )
        };
        let commit = repository.commit().unwrap();
        write(&repository, measured(), &commit);
        assert_eq!(wrong(), [""; 0]);
        write(&repository, measured(), &"0".repeat(40));
        assert!(
            wrong().concat().contains("is not before HEAD"),
            "{:?}",
            wrong()
        );
        write(
            &repository,
            record("proxy", json!({"quick": true})),
            &commit,
        );
        assert!(
            wrong().concat().contains("it is of a quick run"),
            "{:?}",
            wrong()
        );
        write(&repository, measured(), &commit);
        let readme = repository.file("README.md");
        let text = fs::read_to_string(&readme).unwrap().replace("0.44", "0.40");
        fs::write(&readme, text + "It takes 35 µs.\n").unwrap();
        let found = wrong();
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

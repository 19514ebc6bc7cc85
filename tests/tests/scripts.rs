//! The scripts of the CI gate fail when they should.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

const PASSED: &str = "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n";
const FAILED: &str = "failures:\n\n---- a::b stdout ----\nit said so\n\n\nfailures:\n    a::b\n\n\
    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\n\
    error: 1 target failed:\n    `-p heddle-wire --lib`\n";

/// Whether `scripts/tally.sh` succeeds, and its output.
fn tally(log: &str, skips: &str, expected: Option<&str>) -> (bool, String) {
    let folder = tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let mut arguments = vec![write("log", log), write("skips", skips)];
    arguments.extend(expected.map(|expected| write("expected", expected)));
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("bash")
        .arg(tests.with_file_name("scripts/tally.sh"))
        .args(&arguments)
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), said)
}

fn last(said: &str) -> &str {
    said.lines().next_back().unwrap_or_default()
}

#[test]
fn tests_that_were_skipped_are_counted_once_and_named() {
    let skips = "web::a\tno root\nweb::a\tno BPF\nstep cost\tanother compiler\n";
    let (is_good, said) = tally(&PASSED.repeat(2), skips, None);
    assert!(is_good, "{said}");
    assert!(said.contains("skipped: web::a: no root\n"), "{said}");
    assert!(
        said.contains("skipped: step cost: another compiler\n"),
        "{said}"
    );
    assert!(said.contains("4 ignored"), "{said}");
    assert_eq!(last(&said), "9 passed, 0 failed, 2 skipped");
}

#[test]
fn tests_and_programs_that_failed_are_named() {
    let (_, said) = tally(&format!("{PASSED}{FAILED}"), "", None);
    assert!(said.contains("failed: test a::b\n"), "{said}");
    assert!(
        said.contains("failed: program `-p heddle-wire --lib`\n"),
        "{said}"
    );
    assert_eq!(last(&said), "6 passed, 1 failed, 0 skipped");
}

#[test]
fn a_skip_that_is_not_expected_fails() {
    let expected = "# why\nweb::b\n";
    let (is_good, said) = tally(PASSED, "web::b\tno root\n", Some(expected));
    assert!(is_good, "{said}");
    let (is_good, said) = tally(PASSED, "web::a\tno root\n", Some(expected));
    assert!(!is_good, "{said}");
    assert!(said.contains("web::a: no root (it is not on"), "{said}");
    assert!(said.contains("no longer skipped: web::b"), "{said}");
    assert_eq!(last(&said), "4 passed, 0 failed, 1 skipped");
}

#[test]
fn that_nothing_was_tested_fails() {
    assert!(!tally("error: could not compile\n", "", None).0);
}

/// The names of ignored tests below a folder.
fn ignored(folder: &Path, out: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            ignored(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            // Only at the beginning of a line, since this file names the attribute, too.
            let attributed = text
                .split('\n')
                .map(str::trim_start)
                .collect::<Vec<_>>()
                .join("\n");
            for rest in attributed.split("\n#[ignore").skip(1) {
                let name = rest.split_once("fn ").expect("a function").1;
                let name = name.split(['(', '<']).next().unwrap_or_default();
                out.insert(name.to_owned());
            }
        }
    }
}

#[test]
fn every_ignored_test_is_soaked_or_said_to_be_no_proof() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for folder in ["crates", "tests", "examples"] {
        ignored(&tests.with_file_name(folder), &mut found);
    }
    let list = fs::read_to_string(tests.with_file_name("scripts/soak.txt")).expect("the list");
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let named = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = if words[0] == "-" { 1 } else { 2 };
        words[at].to_owned()
    });
    assert_eq!(named.collect::<BTreeSet<_>>(), found);
}

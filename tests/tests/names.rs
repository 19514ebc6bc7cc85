//! Names of code and metrics in the documents are used in the code.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_path_buf()
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap()
}

/// The words of a Rust file, and the types that it defines or implements something for.
struct Source {
    words: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl Source {
    fn new(text: &str) -> Source {
        let defines = |line: &&str| {
            let mut words = words(line)
                .filter(|word| !["pub", "crate", "super", "unsafe", "in"].contains(word));
            let first = words.next().unwrap_or_default();
            ["struct", "enum", "trait", "type", "impl"].contains(&first)
        };
        let types = text.lines().filter(defines).flat_map(words);
        Source {
            words: words(text).map(str::to_owned).collect(),
            types: types.map(str::to_owned).collect(),
        }
    }

    /// Whether a path such as `Type::member` can refer to this file.
    fn has(&self, path: &[&str]) -> bool {
        match path {
            [.., of, member] if is_type(of) => {
                self.types.contains(*of) && self.words.contains(*member)
            }
            [.., name] => self.words.contains(*name),
            [] => false,
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// Whether a name has the form of a type's.
fn is_type(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.contains(|c: char| c.is_ascii_lowercase())
}

fn sources(dir: &Path, out: &mut Vec<Source>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(Source::new(&std::fs::read_to_string(path).unwrap()));
        }
    }
}

#[test]
fn what_the_pages_about_the_code_name_is_there() {
    let mut crates = Vec::new();
    sources(&root().join("crates"), &mut crates);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for page in ["ARCHITECTURE.md", "docs/life-of-a-request.md"] {
        let text = read(page);
        // Every second piece is between back-quotes.
        let quoted = text.split('`').skip(1).step_by(2);
        let names = quoted.filter_map(|quoted| quoted.split(['(', '<']).next());
        let named: BTreeSet<&str> = names
            .filter(|name| name.chars().all(is_name))
            .filter(|name| is_type(name) || name.contains("::"))
            .collect();
        assert!(named.len() > 80, "{page} names {}", named.len());
        let is_missing = |name: &&str| {
            let path: Vec<&str> = name.split("::").collect();
            !crates.iter().any(|source| source.has(&path))
        };
        let missing: Vec<&str> = named.into_iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{page}: {missing:?}");
    }
}

/// A family that no code writes would be on the page of metrics all the same.
#[test]
fn every_metric_of_the_page_is_written() {
    let mut crates = Vec::new();
    sources(&root().join("crates"), &mut crates);
    let mut families = BTreeSet::new();
    for module in ["control", "node", "process", "proxy"] {
        let text = read(&format!("crates/telemetry/src/families/{module}.rs"));
        let defined = text.lines().filter_map(|line| line.split_once(" = "));
        families.extend(defined.map(|(name, _)| name.trim().to_owned()));
    }
    assert!(families.len() > 80, "{}", families.len());
    // One of the files is the table itself.
    let uses = |name: &String| {
        let files = crates.iter();
        files.filter(|file| file.words.contains(name)).count()
    };
    let unused: Vec<&String> = families.iter().filter(|name| uses(name) < 2).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

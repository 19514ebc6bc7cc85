//! References in the documents lead to something that exists.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// A Rust source file.
struct Source {
    /// The folders and modules above it, and its own.
    modules: Vec<String>,
    /// Whether the file contains its tests.
    has_tests: bool,
    functions: BTreeSet<String>,
}

impl Source {
    fn read(path: &Path) -> Source {
        let text = fs::read_to_string(path).unwrap();
        let below = path.strip_prefix(root()).unwrap().with_extension("");
        let pieces = below.iter().map(|piece| piece.to_str().unwrap().to_owned());
        let functions = text.split("fn ").skip(1);
        let functions = functions.filter_map(|rest| rest.split(['(', '<']).next());
        Source {
            modules: pieces
                .filter(|piece| piece != "mod" && piece != "main")
                .collect(),
            has_tests: text.contains("mod tests {"),
            functions: functions.map(str::to_owned).collect(),
        }
    }

    /// Whether the module path leads to this file or is inside it.
    fn is_in(&self, module: &[&str]) -> bool {
        let mut of_all = self.modules.windows(module.len());
        of_all.any(|some| some == module) || self.ends_in(module)
    }

    /// Whether the file has a function of this name in a module of this path.
    fn has(&self, module: &[&str], function: &str) -> bool {
        self.functions.contains(function) && self.ends_in(module)
    }

    fn ends_in(&self, module: &[&str]) -> bool {
        let ends_in = |module: &[&str]| {
            let skipped = self.modules.len().checked_sub(module.len());
            skipped.is_some_and(|skipped| self.modules[skipped..] == *module)
        };
        let outer = module.strip_suffix(&["tests"]);
        ends_in(module) || self.has_tests && outer.is_some_and(ends_in)
    }
}

/// Every Rust source file below `dir`.
fn sources(dir: &Path, out: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(Source::read(&path));
        }
    }
}

/// The texts between back-quotes: every second piece.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The last column of each row of a page's tables.
fn last_cells(page: &str) -> impl Iterator<Item = &str> {
    let rows = page.lines().filter_map(|line| line.strip_suffix('|'));
    rows.filter_map(|row| Some(row.rsplit_once('|')?.1))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Checks names of tests by their modules, of modules, of folders, and of manifest fixtures.
#[test]
fn every_test_that_the_compatibility_page_names_exists() {
    let mut files = Vec::new();
    ["crates", "tests"]
        .iter()
        .for_each(|dir| sources(&root().join(dir), &mut files));
    let page = page("docs/compatibility.md");
    let named: Vec<&str> = last_cells(&page).flat_map(quoted).collect();
    assert!(
        named.len() > 200,
        "the page names its tests: {}",
        named.len()
    );
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| {
            let pieces: Vec<&str> = name.split("::").collect();
            let (last, modules) = pieces.split_last().unwrap();
            let is_folder = name.contains('/') && root().join(name).is_dir();
            let is_fixture = root().join("crates/compile/fixtures").join(name).is_dir();
            let mut files = files.iter();
            !is_folder
                && !is_fixture
                && !files.any(|file| file.is_in(&pieces) || file.has(modules, last))
        })
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn the_compatibility_page_says_how_many_ambiguous_requests_are_sent() {
    let corpus = page("crates/wire/corpus/requests.txt");
    let cases = corpus
        .lines()
        .filter(|line| line.starts_with("== "))
        .count();
    let page = page("docs/compatibility.md");
    let row = page
        .lines()
        .find(|line| line.contains("`corpus::no_ambiguous_request_reaches_an_endpoint`"));
    let said = format!(": {cases} of them |");
    assert!(row.unwrap().ends_with(&said), "not {cases}: {row:?}");
}

/// Every page under a folder, except build results and hidden folders.
fn pages(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            pages(&path, out);
        } else if name.ends_with(".md") {
            out.push(path);
        }
    }
}

/// The anchors of a page's headings, in GitHub's form.
fn anchors(page: &str) -> Vec<String> {
    let mut in_code = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
        let anchor: String = title.chars().filter(kept).collect();
        anchors.push(anchor.replace(' ', "-"));
    }
    anchors
}

/// Why a link is broken; `None` if it is not.
fn broken(page: &Path, text: &str, link: &str) -> Option<&'static str> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = page.parent().unwrap().join(file);
    if !file.is_empty() && !target.exists() {
        return Some("no such file");
    }
    let of = match file.is_empty() {
        true => text.to_owned(),
        false if !file.ends_with(".md") => return None,
        false => fs::read_to_string(&target).unwrap(),
    };
    let leads = anchor.is_empty() || anchors(&of).iter().any(|known| known == anchor);
    (!leads).then_some("no such heading")
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut found = Vec::new();
    pages(&root(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let why = broken(&path, &text, link);
            assert!(why.is_none(), "{} links to {link}: {why:?}", path.display());
        }
    }
}

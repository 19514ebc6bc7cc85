//! What the documents refer to exists.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Every Rust source file below `dir`.
fn sources(dir: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_compatibility_page_names_exists() {
    let mut files = Vec::new();
    ["crates", "tests"]
        .iter()
        .for_each(|dir| sources(&root().join(dir), &mut files));
    let functions: BTreeSet<&str> = files
        .iter()
        .flat_map(|text| text.split("fn ").skip(1))
        .filter_map(|rest| rest.split(['(', '<']).next())
        .collect();
    let page = std::fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    // What stands between back-quotes is every second piece.
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|quoted| Some(quoted.rsplit_once("::")?.1))
        .filter(|name| name.contains('_'))
        .collect();
    assert!(named.len() > 30, "the page names its tests");
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| !functions.contains(**name))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn links_between_documents_lead_somewhere() {
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/compatibility.md",
        "docs/operations.md",
        "docs/settings.md",
        "docs/manifests.md",
        "docs/registry.md",
        "docs/balancing.md",
        "docs/benchmarks.md",
        "docs/life-of-a-request.md",
    ] {
        let path = root().join(page);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{page}: {e}"));
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = link.split('#').next().unwrap();
            if file.is_empty() || link.contains("://") {
                continue;
            }
            assert!(
                path.parent().unwrap().join(file).exists(),
                "{page} links to {link}"
            );
        }
    }
}

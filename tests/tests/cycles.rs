//! Modules of a crate import each other in one direction only, except parents and children.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by its path within the crate.
type Module = Vec<String>;

/// Cycles that ARCHITECTURE.md explains: a table of connections and the drivers that it starts.
const EXPLAINED: [(&str, &[&str]); 2] = [
    ("proxy", &["http2::call", "http2::connections"]),
    (
        "proxy",
        &[
            "link::call",
            "link::carry",
            "link::links",
            "link::pair",
            "link::receiver",
        ],
    ),
];

/// The modules of a crate that have a file, with their code, without tests.
fn sources(dir: &Path, parent: &[String], out: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        let stem = path.file_stem().expect("a name").to_string_lossy();
        if ["tests", "testing", "simulation"].contains(&&*stem) {
            continue;
        }
        let mut module = parent.to_vec();
        if !["lib", "main", "mod"].contains(&&*stem) {
            module.push(stem.into_owned());
        }
        if path.is_dir() {
            sources(&path, &module, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            *out.entry(module).or_default() += code.unwrap_or_default();
        }
    }
}

/// The paths in `use` declarations, without those of other crates.
fn imports(code: &str) -> Vec<Vec<String>> {
    let code: Vec<&str> = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join(" ");
    let mut found = Vec::new();
    for rest in code.split("use ").skip(1) {
        let (item, _) = rest.split_once(';').unwrap_or_default();
        if ["crate::", "super::", "self::"]
            .iter()
            .any(|first| item.starts_with(first))
        {
            expand("", item, &mut found);
        }
    }
    found
}

/// Expands braces: `a::{b, c::{d}}` becomes `a::b` and `a::c::d`.
fn expand(before: &str, item: &str, out: &mut Vec<Vec<String>>) {
    let item = item.trim();
    let Some((head, list)) = item.split_once('{') else {
        let path = format!("{before}{item}");
        let path = path.split(" as ").next().unwrap_or_default();
        out.push(
            path.split("::")
                .map(|part| part.trim().to_owned())
                .collect(),
        );
        return;
    };
    let before = format!("{before}{}", head.trim());
    let (mut depth, mut start) = (0_usize, 0);
    for (at, byte) in list.bytes().enumerate() {
        let ends = match byte {
            b'{' => {
                depth += 1;
                false
            }
            b'}' if depth > 0 => {
                depth -= 1;
                false
            }
            b',' => depth == 0,
            b'}' => true,
            _ => false,
        };
        if ends {
            if !list[start..at].trim().is_empty() {
                expand(&before, &list[start..at], out);
            }
            start = at + 1;
        }
        if byte == b'}' && ends {
            return;
        }
    }
}

/// The module with a file to which a path belongs.
fn resolve(from: &Module, path: &[String], files: &BTreeMap<Module, String>) -> Module {
    let mut module = match path[0].as_str() {
        "crate" => Vec::new(),
        _ => from.clone(),
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(module.pop()),
            name => module.push(name.to_owned()),
        }
    }
    while !files.contains_key(&module) && module.pop().is_some() {}
    module
}

/// The cycles among a crate's files: groups in which each file reaches each other.
fn cycles(files: &BTreeMap<Module, String>) -> BTreeSet<Vec<String>> {
    let mut leads: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, code) in files {
        let all = imports(code);
        let to = all.iter().map(|path| resolve(module, path, files));
        let is_family = |to: &Module| module.starts_with(to) || to.starts_with(module);
        leads.insert(module, to.filter(|to| !is_family(to)).collect());
    }
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for to in leads.get(module).into_iter().flatten() {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = files
        .keys()
        .map(|module| (module, reached(module)))
        .collect();
    let mut groups = BTreeSet::new();
    for (module, to) in &reached {
        let group = to.iter().filter(|to| reached[*to].contains(*module));
        let group: Vec<String> = group.map(|module| module.join("::")).collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups
}

#[test]
fn files_import_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let crates = fs::read_dir(root.expect("the workspace").join("crates"));
    for entry in crates.expect("crates").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut files = BTreeMap::new();
        sources(&entry.path().join("src"), &[], &mut files);
        let explained = EXPLAINED.iter().filter(|(of, _)| *of == name);
        let explained: BTreeSet<Vec<String>> = explained
            .map(|(_, files)| files.iter().map(|&file| file.to_owned()).collect())
            .collect();
        assert_eq!(cycles(&files), explained, "in {name}");
    }
}

#[test]
fn a_cycle_is_found_in_every_form_of_import() {
    let files = [
        ("a", "use crate::{b::{C, D}, e as f};"),
        ("b", "use super::g;"),
        ("g", "use super::{a};"),
        ("a::child", "use super::Parent;"),
        ("e", "use std::fmt;"),
    ];
    let files = files.map(|(module, code)| {
        let module = module.split("::").map(str::to_owned).collect();
        (module, code.to_owned())
    });
    let found = cycles(&files.into());
    assert_eq!(
        found,
        [vec!["a".to_owned(), "b".to_owned(), "g".to_owned()]].into()
    );
}

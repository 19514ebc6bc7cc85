//! The order of the modules in ARCHITECTURE.md is that of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// An import of one module by another.
type Arrow = (String, String);

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_path_buf()
}

/// The rows of the table under a heading of ARCHITECTURE.md, each as its cells.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, below) = text.split_once(heading).expect(heading);
    let lines = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        cells
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

/// Every file of the code with its module, without tests.
fn sources(dir: &Path, module: Option<&str>, out: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        let stem = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if ["tests", "testing", "simulation", "interleavings"].contains(&stem.as_str()) {
            continue;
        }
        let of = module.unwrap_or(&stem).to_owned();
        if path.is_dir() {
            sources(&path, Some(&of), out);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && of != "lib"
            && of != "main"
        {
            let text = fs::read_to_string(&path).expect("a source");
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            out.push((of, code.unwrap_or_default().to_owned()));
        }
    }
}

/// The modules that a source refers to, by `crate::module` or in a list after `use crate::`.
fn named(code: &str) -> BTreeSet<String> {
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = code.split("crate::").skip(1).flat_map(|rest| {
        let list = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once("};"));
        let items: Vec<&str> = match list {
            Some((list, _)) => list.split(',').map(str::trim).collect(),
            None => vec![rest],
        };
        items
            .into_iter()
            .map(|item| {
                item.split(|c| !is_word(c))
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect::<Vec<_>>()
    });
    words.collect()
}

#[test]
fn modules_of_the_proxy_refer_to_those_before_them() {
    refer_to_those_before_them("#### Modules of `proxy`, in order", "crates/proxy/src");
}

#[test]
fn modules_of_a_node_refer_to_those_before_them() {
    refer_to_those_before_them("#### Modules of `node`, in order", "crates/node/src");
}

fn refer_to_those_before_them(heading: &str, folder: &str) {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let order = table(&map, heading);
    let height: BTreeMap<&str, usize> = order.iter().map(|row| &*row[0]).zip(0..).collect();
    let mut files = Vec::new();
    sources(&root().join(folder), None, &mut files);
    let modules: BTreeSet<&str> = files.iter().map(|(module, _)| &**module).collect();
    let listed: BTreeSet<&str> = height.keys().copied().collect();
    assert_eq!(
        modules, listed,
        "the table has each module once, and no other"
    );
    let mut up: BTreeSet<Arrow> = BTreeSet::new();
    for (from, code) in &files {
        for to in named(code) {
            let is_up = height.get(&*to).is_some_and(|to| *to > height[&**from]);
            if is_up {
                up.insert((from.clone(), to));
            }
        }
    }
    assert!(up.is_empty(), "these refer to later modules: {up:?}");
}

/// Plain values to which a later module adds what it does with them, for itself and modules after it.
const EXTENDED: [&str; 3] = ["Inbound", "Moving", "Origin"];

/// The types that a source defines, and those to which it adds methods.
fn types(code: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let name = |rest: &'_ str| rest.len() - rest.trim_start_matches(is_word).len();
    let (mut defined, mut extended) = (BTreeSet::new(), BTreeSet::new());
    for line in code.lines() {
        for keyword in ["struct ", "enum "] {
            let begins = |before: &str| before.is_empty() || before.starts_with("pub");
            if let Some((before, rest)) = line.split_once(keyword)
                && begins(before)
            {
                defined.insert(&rest[..name(rest)]);
            }
        }
        if let Some(rest) = line.strip_prefix("impl ") {
            let end = name(rest);
            if rest[end..].starts_with(" {") {
                extended.insert(&rest[..end]);
            }
        }
    }
    (defined, extended)
}

/// A method of a type, written in a later module, would be called from earlier ones without an import.
#[test]
fn methods_of_a_type_stand_in_its_module() {
    let mut files = Vec::new();
    sources(&root().join("crates/proxy/src"), None, &mut files);
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, code) in &files {
        for defined in types(code).0 {
            homes.entry(defined).or_default().insert(module);
        }
    }
    for (module, code) in &files {
        for extended in types(code).1 {
            let is_home = |homes: &BTreeSet<&str>| homes.contains(&**module);
            let stands_well =
                homes.get(extended).is_none_or(is_home) || EXTENDED.contains(&extended);
            assert!(stands_well, "{module} adds methods to {extended}");
        }
    }
}

#[test]
fn names_are_found_in_every_form_of_import() {
    let code = "use crate::io::Side;\nuse crate::{clock, door::Door};\nfn f(a: crate::entry::Entry) {} // crate::link\n";
    let found: Vec<String> = named(code).into_iter().collect();
    assert_eq!(found, ["clock", "door", "entry", "io"]);
}

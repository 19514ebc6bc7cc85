//! Checks the statements of ARCHITECTURE.md about crates, modules and their dependencies against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// An import of one module by another.
type Arrow = (String, String);

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_path_buf()
}

/// The rows of the table under a heading of ARCHITECTURE.md, each as a list of cells.
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

/// Modules that exist only for tests.
const OF_TESTS: [&str; 5] = ["tests", "testing", "simulation", "interleavings", "pairs"];

/// Every source file with its module, without tests.
fn sources(dir: &Path, module: Option<&str>, out: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        let stem = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if OF_TESTS.contains(&stem.as_str()) {
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

/// A source without its comments.
fn said(code: &str) -> String {
    code.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The names that a source uses within a path such as `crate::`, single or in a `use` list.
fn named(code: &str, path: &str) -> BTreeSet<String> {
    let code = said(code);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = code.split(path).skip(1).flat_map(|rest| {
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

/// A crate's name, and its dependencies with the kind of each.
fn manifest(folder: &str) -> (String, Vec<(String, String)>) {
    let text = fs::read_to_string(root().join(folder).join("Cargo.toml")).expect(folder);
    let (mut own, mut section, mut uses) = (String::new(), "", Vec::new());
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('[') {
            section = heading.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once('=') {
            let name = key.trim().trim_end_matches(".workspace").to_owned();
            match section.rsplit('.').next() {
                Some("package") if name == "name" => {
                    value.trim().trim_matches('"').clone_into(&mut own);
                }
                Some(kind) if kind.ends_with("dependencies") => uses.push((name, kind.to_owned())),
                _ => {}
            }
        }
    }
    (own, uses)
}

/// The folders of all crates in the table of ARCHITECTURE.md, in its order.
fn crates() -> Vec<String> {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let rows = table(&map, "## Code map");
    rows.into_iter().map(|row| row[0].clone()).collect()
}

#[test]
fn arrows_between_crates_run_down_the_code_map() {
    let folders = crates();
    let here = fs::read_dir(root().join("crates"))
        .expect("crates")
        .flatten();
    for path in here.map(|entry| entry.path()) {
        let name = path.file_name().expect("a name").to_string_lossy();
        let folder = format!("crates/{name}");
        assert!(folders.contains(&folder), "{folder} is not in the table");
    }
    let manifests: Vec<_> = folders.iter().map(|folder| manifest(folder)).collect();
    let height: BTreeMap<&str, usize> = manifests.iter().map(|(own, _)| &**own).zip(0..).collect();
    assert_eq!(height.len(), folders.len(), "each stands there once");
    let mut arrows = 0;
    for (own, uses) in &manifests {
        for (name, _) in uses {
            let Some(to) = height.get(&**name) else {
                assert!(!name.starts_with("heddle"), "{name} is not in the table");
                continue;
            };
            assert!(*to > height[&**own], "{own} stands below {name}");
            arrows += 1;
        }
    }
    assert!(arrows > 40, "{arrows} were read");
}

#[test]
fn crates_on_the_way_to_nodes_use_what_the_table_says() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let rows = table(&map, "### From manifests and identities to nodes");
    assert_eq!(rows.len(), 5);
    for row in rows {
        let may: BTreeSet<String> = row[1]
            .split(',')
            .map(|name| format!("heddle-{}", name.trim().trim_matches('`')))
            .collect();
        let (own, uses) = manifest(&format!("crates/{}", row[0]));
        let ours = uses
            .into_iter()
            .filter(|(name, kind)| kind == "dependencies" && name.starts_with("heddle"));
        let uses: BTreeSet<String> = ours.map(|(name, _)| name).collect();
        assert_eq!(uses, may, "{own}");
    }
}

#[test]
fn crates_do_not_know_what_the_map_says_they_do_not() {
    let uses = |folder: &str, name: &str| {
        let (_, uses) = manifest(folder);
        uses.iter().any(|(used, _)| used == name)
    };
    let know_etcd: Vec<String> = crates()
        .into_iter()
        .filter(|folder| uses(folder, "etcd-client"))
        .collect();
    assert_eq!(know_etcd, ["crates/registry"]);
    for (folder, name) in [
        ("crates/proxy", "heddle-compile"),
        ("crates/proxy", "heddle-control"),
        ("crates/wire", "tokio"),
        ("crates/model", "tokio"),
    ] {
        assert!(!uses(folder, name), "{folder} uses {name}");
    }
    let clock: &[&str] = &["Instant::now", "SystemTime", "clock_gettime", "elapsed()"];
    let network: &[&str] = &["TcpStream", "TcpListener", "UdpSocket", "UnixStream"];
    for (folder, words) in [
        ("wire", clock),
        ("model", clock),
        ("authority", clock),
        ("authority", network),
        ("compile", network),
    ] {
        let mut files = Vec::new();
        sources(
            &root().join("crates").join(folder).join("src"),
            Some(folder),
            &mut files,
        );
        assert!(!files.is_empty());
        for (_, code) in &files {
            let code = said(code);
            let found = words.iter().find(|word| code.contains(**word));
            assert_eq!(found, None, "{folder}");
        }
    }
}

/// Functions that read or write sockets, or shut down a direction.
const OF_SOCKETS: [&str; 7] = [
    "recv", "recvfrom", "recvmsg", "send", "sendmsg", "sendto", "shutdown",
];

/// Functions that read or write any descriptor.
const OF_DESCRIPTORS: [&str; 4] = ["read", "readv", "write", "writev"];

#[test]
fn two_modules_of_the_proxy_read_and_write_sockets() {
    let mut files = Vec::new();
    sources(&root().join("crates/proxy/src"), None, &mut files);
    let mut found = BTreeSet::new();
    for (module, code) in &files {
        let sockets = named(code, "rustix::net::");
        let descriptors = named(code, "rustix::io::");
        if OF_SOCKETS.iter().any(|call| sockets.contains(*call))
            || OF_DESCRIPTORS
                .iter()
                .any(|call| descriptors.contains(*call))
        {
            found.insert(&**module);
        }
        // No module uses the equivalents of the runtime and the standard library.
        for call in ["ReadExt", "WriteExt", ".try_read(", ".try_write("] {
            assert!(!said(code).contains(call), "{module}: {call}");
        }
    }
    let found: Vec<&str> = found.into_iter().collect();
    assert_eq!(found, ["handshake", "io"]);
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
        for to in named(code, "crate::") {
            let is_up = height.get(&*to).is_some_and(|to| *to > height[&**from]);
            if is_up {
                up.insert((from.clone(), to));
            }
        }
    }
    assert!(up.is_empty(), "these refer to later modules: {up:?}");
}

/// Plain value types to which a later module adds methods, for itself and for modules after it.
const EXTENDED: [&str; 3] = ["Inbound", "Moving", "Origin"];

/// The types that a source defines, and the types to which it adds methods.
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

/// Earlier modules could call a method defined in a later module without an import.
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
    let found: Vec<String> = named(code, "crate::").into_iter().collect();
    assert_eq!(found, ["clock", "door", "entry", "io"]);
    let code = "use rustix::net::{RecvFlags, Shutdown, shutdown};\n";
    assert!(named(code, "rustix::net::").contains("shutdown"));
}

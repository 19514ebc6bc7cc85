use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn names(dir: &TempDir, scan: &Scan) -> Vec<String> {
    let relative = |file: &ManifestFile| {
        file.path
            .strip_prefix(dir.path())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    scan.files.iter().map(relative).collect()
}

fn reasons(scan: &Scan) -> Vec<&str> {
    scan.problems
        .iter()
        .map(|problem| problem.reason.as_str())
        .collect()
}

#[test]
fn manifests_are_read_and_nothing_else() {
    let dir = folder(&[
        ("b.yaml", "b"),
        ("a.YML", "a"),
        ("c.json", "c"),
        ("sub/d.yaml", "d"),
        ("README.md", ""),
        ("noextension", ""),
        (".hidden.yaml", ""),
        (".git/config.yaml", ""),
        (".b.yaml.swp", ""),
        (".#b.yaml", ""),
        ("#b.yaml#", ""),
        ("~$b.yaml", ""),
        ("b.yaml~", ""),
        ("b.yaml.bak", ""),
    ]);
    let scan = scan(dir.path());
    assert_eq!(
        names(&dir, &scan),
        ["a.YML", "b.yaml", "c.json", "sub/d.yaml"]
    );
    assert_eq!(scan.problems, []);
    assert_eq!(scan.files[0].bytes, b"a");
}

#[test]
fn links_are_followed_once() {
    let dir = folder(&[("a.yaml", "a"), ("sub/b.yaml", "b")]);
    let outside = folder(&[("c", "c"), ("folder/d.yaml", "d")]);
    symlink(outside.path().join("c"), dir.path().join("c.yaml")).unwrap();
    symlink(outside.path().join("folder"), dir.path().join("d")).unwrap();
    let found = scan(dir.path());
    assert_eq!(
        names(&dir, &found),
        ["a.yaml", "c.yaml", "d/d.yaml", "sub/b.yaml"]
    );
    assert_eq!(reasons(&found), [""; 0]);

    symlink("sub", dir.path().join("zub")).unwrap();
    symlink("a.yaml", dir.path().join("z.yaml")).unwrap();
    let found = scan(dir.path());
    assert_eq!(found.files.len(), 4);
    assert_eq!(found.problems.len(), 2);
    assert!(
        found
            .problems
            .iter()
            .all(|problem| problem.severity == Severity::Warning)
    );
}

#[test]
fn loops_and_dead_links_are_refused() {
    let dir = folder(&[("sub/a.yaml", "a")]);
    symlink("..", dir.path().join("sub/up")).unwrap();
    symlink("nowhere", dir.path().join("dead.yaml")).unwrap();
    symlink("self.yaml", dir.path().join("self.yaml")).unwrap();
    symlink("nowhere", dir.path().join("not-a-manifest")).unwrap();
    let found = scan(dir.path());
    assert_eq!(names(&dir, &found), ["sub/a.yaml"]);
    let reasons = reasons(&found);
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert_eq!(reasons[0], "this link leads nowhere");
    assert!(
        reasons[1].starts_with("this link cannot be followed"),
        "{reasons:?}"
    );
    assert_eq!(reasons[2], "this link leads back to a folder that it is in");
    assert!(
        found
            .problems
            .iter()
            .all(|problem| problem.severity == Severity::Error)
    );
}

#[test]
fn sizes_and_numbers_are_bounded() {
    let dir = folder(&[("ok.yaml", "a")]);
    let large = usize::try_from(MAX_FILE_BYTES).unwrap();
    fs::write(dir.path().join("large.yaml"), vec![b'#'; large]).unwrap();
    fs::write(dir.path().join("larger.yaml"), vec![b'#'; large + 1]).unwrap();
    let found = scan(dir.path());
    assert_eq!(names(&dir, &found), ["large.yaml", "ok.yaml"]);
    assert_eq!(reasons(&found), ["this file has more than 4 MiB"]);

    let deep = folder(&[
        ("1/2/3/4/5/6/7/8/a.yaml", "a"),
        ("1/2/3/4/5/6/7/8/9/b.yaml", "b"),
    ]);
    let found = scan(deep.path());
    assert_eq!(found.files.len(), 1);
    assert_eq!(reasons(&found), ["this folder is more than 8 folders deep"]);

    let many = TempDir::new().unwrap();
    for number in 0..=MAX_FILES + 1 {
        fs::write(many.path().join(format!("{number}.yaml")), "").unwrap();
    }
    let found = scan(many.path());
    assert_eq!(found.files.len(), MAX_FILES);
    assert_eq!(reasons(&found), ["there are more than 4096 manifest files"]);
}

#[test]
fn what_is_no_file_is_not_opened() {
    let dir = folder(&[("a.yaml", "a")]);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("b.yaml")).unwrap();
    let found = scan(dir.path());
    assert_eq!(names(&dir, &found), ["a.yaml"]);
    assert_eq!(reasons(&found), ["this is no regular file"]);
}

#[test]
fn empty_and_missing_folders_are_told_apart() {
    let dir = folder(&[]);
    assert_eq!(reasons(&scan(dir.path())), [""; 0]);
    let missing = scan(&dir.path().join("x"));
    assert_eq!(missing.problems[0].severity, Severity::Error);
    let file = folder(&[("a.yaml", "")]);
    assert_eq!(
        reasons(&scan(&file.path().join("a.yaml"))),
        ["this is no folder"]
    );
}

#[test]
fn the_digest_follows_names_and_content() {
    let dir = folder(&[("a.yaml", "a")]);
    let first = scan(dir.path()).digest();
    fs::write(dir.path().join("a.yaml"), "a").unwrap();
    assert_eq!(scan(dir.path()).digest(), first);
    fs::write(dir.path().join("a.yaml"), "b").unwrap();
    let second = scan(dir.path()).digest();
    assert_ne!(second, first);
    fs::rename(dir.path().join("a.yaml"), dir.path().join("b.yaml")).unwrap();
    assert_ne!(scan(dir.path()).digest(), second);
}

#[test]
fn a_want_of_descriptors_is_not_blamed_on_the_file() {
    let of = |errno: Errno| remedy(&errno.into(), "make it readable");
    assert!(of(Errno::MFILE).contains("ulimit -n"));
    assert!(of(Errno::NFILE).contains("ulimit -n"));
    assert_eq!(of(Errno::ACCESS), "make it readable");
}

#[test]
fn manifests_by_another_ending_are_counted() {
    let dir = folder(&[
        ("a.yaml", "a"),
        ("b.yaml.txt", "b"),
        ("c.yml.bak", "c"),
        ("d.txt", "d"),
        (".e.yaml.swp", "e"),
        ("f.yaml~", "f"),
    ]);
    let scan = scan(dir.path());
    assert_eq!(names(&dir, &scan), ["a.yaml"]);
    let expected = LeftAside {
        files: 2,
        first: Some(dir.path().join("b.yaml.txt")),
    };
    assert_eq!(scan.left_aside, expected);
}

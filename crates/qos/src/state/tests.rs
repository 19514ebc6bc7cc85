use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{StateFolder, damaged, file, read, replace};
use crate::arbiter::journal::{Journal, Record, Store};
use crate::arbiter::{Held, Key};
use crate::cgroup::{ControlGroup, Knob, Value};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

fn refused(path: &Path) -> String {
    StateFolder::open(path).expect_err("refused").to_string()
}

/// The folder, taken. A program that another test is starting has this process's locks for a moment, until it is executed.
fn taken(path: &Path) -> StateFolder {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match StateFolder::open(path) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                thread::yield_now();
            }
            opened => return opened.expect("taken"),
        }
    }
}

/// The error of a folder, which has each of these parts.
fn assert_refused(path: &Path, parts: &[&str]) {
    let said = refused(path);
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_folder_that_others_can_write_to_or_replace_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let state = at.join("qos");
    fs::create_dir(&state).expect("made");
    set_mode(&state, 0o777);
    assert_refused(&state, &["other users can write to ", "qos", "chmod 0700"]);
    set_mode(&state, 0o700);

    let link = at.join("link");
    symlink(&state, &link).expect("made");
    let with_slash = Path::new(link.as_os_str()).join("");
    for path in [&link, &with_slash] {
        assert_refused(
            path,
            &["is a symbolic link", "name the folder that it leads to"],
        );
    }
    // A link above is followed, and what it leads to is checked.
    let above = at.join("above");
    symlink(at, &above).expect("made");
    drop(taken(&above.join("qos")));

    set_mode(at, 0o777);
    assert_refused(&state, &["and replace the state folder", "chmod go-w"]);
    set_mode(at, 0o1777);
    drop(taken(&state));
    set_mode(at, 0o700);

    let is_file = at.join("file");
    fs::write(&is_file, "").expect("written");
    assert_refused(&is_file, &["is a file", "--state"]);
    assert_refused(&is_file.join("qos"), &["file"]);
}

#[test]
fn folders_and_files_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        heddle_skips::skipped("needs root");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let state = dir.path().join("theirs/qos");
    let chown = |path: &Path| std::os::unix::fs::chown(path, Some(12_345), None).expect("set");
    fs::create_dir_all(&state).expect("made");
    chown(&state);
    assert_refused(&state, &["belongs to user 12345", "chown root"]);
    std::os::unix::fs::chown(&state, Some(0), None).expect("set");
    chown(state.parent().expect("a folder"));
    assert_refused(
        &state,
        &[
            "theirs belongs to user 12345",
            "could replace the state folder",
        ],
    );

    let state = dir.path().join("ours");
    fs::create_dir(&state).expect("made");
    fs::write(state.join("journal"), "").expect("written");
    chown(&state.join("journal"));
    let folder = taken(&state);
    let error = Journal::open(&folder).expect_err("refused");
    let said = error.to_string();
    assert!(said.contains("journal: it belongs to user 12345"), "{said}");
}

#[test]
fn files_are_readable_by_this_user_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    // Of an earlier version.
    fs::write(at.join("lock"), "").expect("written");
    set_mode(&at.join("lock"), 0o666);
    let folder = taken(at);
    let (mut journal, _): (Journal, _) = Journal::open(&folder).expect("opened");
    let key = Key {
        group: ControlGroup::new("a").expect("a group"),
        knob: Knob::CpuQuota,
    };
    let record = Record::Set(
        key,
        Held {
            pod: "a/b".to_owned(),
            class: heddle_model::Class::Online,
            why: "x".to_owned(),
            since_s: 1,
            inode: 2,
            original: Value::Max,
            ours: vec![Value::Amount(1)],
        },
    );
    journal.append(&record).expect("written");
    replace(&at.join("remarks"), b"{}").expect("written");
    for name in ["lock", "journal", "remarks"] {
        assert_eq!(mode(&at.join(name)), 0o600, "{name}");
    }
    drop((folder, journal));
    set_mode(&at.join("journal"), 0o622);
    let folder = taken(at);
    let error = Journal::open(&folder).expect_err("refused");
    let said = error.to_string();
    assert!(
        said.contains("journal: other users can write to it"),
        "{said}"
    );
}

#[test]
fn no_link_is_followed_and_what_is_in_the_way_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let victim = at.join("victim");
    fs::write(&victim, "precious").expect("written");
    symlink(&victim, at.join("remarks.next")).expect("made");
    let error = replace(&at.join("remarks"), b"{}").expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("remarks.next: it is no file: move it away"),
        "{error}"
    );
    symlink(&victim, at.join("remarks")).expect("made");
    read(&at.join("remarks"), 100).expect_err("refused");
    assert_eq!(fs::read(&victim).expect("kept"), b"precious");

    for name in ["lock", "journal"] {
        let state = at.join(format!("state-{name}"));
        fs::create_dir_all(state.join(name)).expect("made");
        let opened = StateFolder::open(&state);
        let opened = opened.and_then(|folder| Journal::open(&folder).map(drop));
        let said = opened.expect_err("refused").to_string();
        let wanted = format!("{}/{name}: it is no file: move it away", state.display());
        assert_eq!(said, wanted);
    }
}

#[test]
fn a_file_that_cannot_be_replaced_is_as_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("threads");
    replace(&path, b"one").expect("written");
    // What cannot be renamed leaves nothing.
    let folder = dir.path().join("folder");
    fs::create_dir_all(folder.join("x")).expect("made");
    let error = replace(&folder, b"two").expect_err("refused");
    assert!(error.to_string().contains("/folder: "), "{error}");
    assert!(!dir.path().join("folder.next").exists());
    assert_eq!(
        read(&path, 100).expect("read").as_deref(),
        Some(&b"one"[..])
    );
    file::remove(&path).expect("removed");
    assert_eq!(read(&path, 100).expect("none"), None);
}

#[test]
fn copies_of_damaged_journals_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(damaged(dir.path()).expect("read").is_empty());
    let kept = dir.path().join("network.damaged");
    fs::write(&kept, "x").expect("written");
    fs::write(dir.path().join("network"), "").expect("written");
    assert_eq!(damaged(dir.path()).expect("read"), [kept]);
    let missing = damaged(&dir.path().join("x")).expect_err("missing");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

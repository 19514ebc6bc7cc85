use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use heddle_model::Class;

use super::{Journal, Record, StateFolder, Store};
use crate::arbiter::{Held, Key};
use crate::cgroup::{ControlGroup, Knob, Value};

fn key(group: &str) -> Key {
    Key {
        group: ControlGroup::new(group).expect("a group"),
        knob: Knob::CpuQuota,
    }
}

fn held(us: u64) -> Held {
    Held {
        pod: "a/b".to_owned(),
        class: Class::Online,
        why: "x".to_owned(),
        since_s: 1,
        inode: 2,
        original: Value::Max,
        ours: vec![Value::Amount(us)],
    }
}

fn open(folder: &Path) -> io::Result<(Journal, BTreeMap<Key, Held>)> {
    Journal::open(&StateFolder::open(folder)?)
}

#[test]
fn records_are_there_after_a_kill_and_a_line_that_was_cut_off_says_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("qos");
    let (mut journal, none) = open(&folder).expect("opened");
    assert!(none.is_empty());
    for record in [
        Record::Set(key("a"), held(1)),
        Record::Set(key("b"), held(2)),
        Record::Set(key("a"), held(3)),
        Record::Drop(key("b")),
    ] {
        journal.append(&record).expect("written");
    }
    assert!(StateFolder::is_in_use(&folder).expect("looked"));
    let busy = open(&folder).expect_err("one process alone");
    assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
    drop(journal);
    assert!(!StateFolder::is_in_use(&folder).expect("looked"));

    let file = folder.join("journal");
    let mut cut = fs::read(&file).expect("read");
    cut.extend_from_slice(b"{\"set\":[{\"group\":\"c\"");
    fs::write(&file, cut).expect("written");
    let wanted = BTreeMap::from([(key("a"), held(3))]);
    assert_eq!(Journal::look(&folder).expect("read").held, wanted);
    let (mut journal, found) = open(&folder).expect("opened");
    assert_eq!(found, wanted);
    // What follows is not appended to the line that was cut off.
    journal
        .append(&Record::Set(key("d"), held(4)))
        .expect("written");
    assert_eq!(Journal::look(&folder).expect("read").held.len(), 2);
}

#[test]
fn a_line_that_cannot_be_read_is_said_and_kept_and_hides_no_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = open(dir.path()).expect("opened");
    for name in ["a", "b", "c"] {
        let record = Record::Set(key(name), held(1));
        journal.append(&record).expect("written");
    }
    assert_eq!(journal.damage(), None);
    drop(journal);
    let file = dir.path().join("journal");
    let whole = fs::read_to_string(&file).expect("read");
    let mut lines: Vec<&str> = whole.lines().collect();
    lines[2] = "gar{bage";
    let text = format!("{}\n", lines.join("\n"));
    fs::write(&file, &text).expect("written");
    assert_eq!(Journal::look(dir.path()).expect("read").damaged, [3]);

    let (journal, found) = open(dir.path()).expect("opened");
    assert_eq!(found.keys().count(), 2);
    let said = journal.damage().expect("damaged");
    assert!(
        said.contains("line 3") && said.contains("journal.damaged"),
        "{said}"
    );
    let kept = fs::read_to_string(dir.path().join("journal.damaged"));
    assert_eq!(kept.expect("kept"), text);
    drop(journal);
    let (journal, found) = open(dir.path()).expect("opened");
    assert_eq!((found.len(), journal.damage()), (2, None));
    drop(journal);

    // A line longer than any of ours hides what follows, which is said.
    let long = format!("{}\n{}\n{}\n", lines[0], "x".repeat(20_000), lines[3]);
    fs::write(&file, long).expect("written");
    let (journal, found) = open(dir.path()).expect("opened");
    assert!(found.is_empty() && journal.damage().is_some());
}

#[test]
fn a_whole_journal_is_opened_without_a_write() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = open(dir.path()).expect("opened");
    let record = Record::Set(key("a"), held(1));
    journal.append(&record).expect("written");
    drop(journal);
    // Writing it anew would fail, as on a full disk.
    fs::create_dir(dir.path().join("journal.next")).expect("made");
    let (_, found) = open(dir.path()).expect("opened");
    assert_eq!(found.len(), 1);
}

#[test]
fn the_file_does_not_grow_without_bound() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = open(dir.path()).expect("opened");
    let mut all = BTreeMap::new();
    for us in 0..3_000 {
        journal
            .append(&Record::Set(key("a"), held(us)))
            .expect("written");
        all.insert(key("a"), held(us));
        if journal.is_long(all.len()) {
            journal.replace(&all).expect("written");
        }
    }
    let bytes = fs::metadata(dir.path().join("journal"))
        .expect("there")
        .len();
    assert!(bytes < 400_000, "{bytes}");
    assert_eq!(Journal::look(dir.path()).expect("read").held, all);
}

#[test]
fn records_of_an_earlier_boot_and_other_versions_are_not_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("journal");
    let (mut journal, _) = open(dir.path()).expect("opened");
    journal
        .append(&Record::Set(key("a"), held(1)))
        .expect("written");
    drop(journal);
    let text = fs::read_to_string(&file).expect("read");
    let (_, records) = text.split_once('\n').expect("a header");
    let write = |header: &str| fs::write(&file, format!("{header}\n{records}")).expect("written");

    write(r#"{"version":1,"boot":"another"}"#);
    assert!(Journal::look(dir.path()).expect("read").held.is_empty());
    write(r#"{"version":2,"boot":"another"}"#);
    let error = open(dir.path()).map(drop).expect_err("refused");
    assert!(error.to_string().contains("version 2"), "{error}");
    write("nonsense");
    let error = Journal::look(dir.path()).expect_err("refused").to_string();
    assert!(error.contains("move the file away to go on"), "{error}");
    fs::write(&file, "abc").expect("written");
    let cut = open(dir.path()).map(drop);
    assert_eq!(cut.expect_err("refused").kind(), io::ErrorKind::InvalidData);
    assert_eq!(fs::read(&file).expect("kept"), b"abc");
    fs::write(&file, "").expect("written");
    assert!(Journal::look(dir.path()).expect("read").held.is_empty());
}

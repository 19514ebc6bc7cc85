use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;

use heddle_model::Class;

use super::{Journal, Record, Store};
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

#[test]
fn records_are_there_after_a_kill_and_a_line_that_was_cut_off_says_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("qos");
    let (mut journal, none) = Journal::open(&folder).expect("opened");
    assert!(none.is_empty());
    for record in [
        Record::Set(key("a"), held(1)),
        Record::Set(key("b"), held(2)),
        Record::Set(key("a"), held(3)),
        Record::Drop(key("b")),
    ] {
        journal.append(&record).expect("written");
    }
    assert!(Journal::is_in_use(&folder).expect("looked"));
    let busy = Journal::open(&folder).expect_err("one process alone");
    assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
    drop(journal);
    assert!(!Journal::is_in_use(&folder).expect("looked"));

    let file = folder.join("journal");
    let mut cut = fs::read(&file).expect("read");
    cut.extend_from_slice(b"{\"set\":[{\"group\":\"c\"");
    fs::write(&file, cut).expect("written");
    let wanted = BTreeMap::from([(key("a"), held(3))]);
    assert_eq!(Journal::look(&folder).expect("read"), wanted);
    let (mut journal, found) = Journal::open(&folder).expect("opened");
    assert_eq!(found, wanted);
    // What follows is not appended to the line that was cut off.
    journal
        .append(&Record::Set(key("d"), held(4)))
        .expect("written");
    assert_eq!(Journal::look(&folder).expect("read").len(), 2);
}

#[test]
fn the_file_does_not_grow_without_bound() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = Journal::open(dir.path()).expect("opened");
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
    assert_eq!(Journal::look(dir.path()).expect("read"), all);
}

#[test]
fn records_of_an_earlier_boot_and_other_versions_are_not_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("journal");
    let (mut journal, _) = Journal::open(dir.path()).expect("opened");
    journal
        .append(&Record::Set(key("a"), held(1)))
        .expect("written");
    drop(journal);
    let text = fs::read_to_string(&file).expect("read");
    let (_, records) = text.split_once('\n').expect("a header");
    let write = |header: &str| fs::write(&file, format!("{header}\n{records}")).expect("written");

    write(r#"{"version":1,"boot":"another"}"#);
    assert!(Journal::look(dir.path()).expect("read").is_empty());
    write(r#"{"version":2,"boot":"another"}"#);
    let error = Journal::open(dir.path()).map(drop).expect_err("refused");
    assert!(error.to_string().contains("version 2"), "{error}");
    write("nonsense");
    assert!(Journal::look(dir.path()).is_err());
    fs::write(&file, "").expect("written");
    assert!(Journal::look(dir.path()).expect("read").is_empty());
}

#[test]
fn a_folder_of_others_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(dir.path(), open).expect("set");
    let error = Journal::open(dir.path()).map(drop).expect_err("refused");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

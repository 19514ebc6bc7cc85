use std::fs;
use std::io;

use super::{Evicted, NotDone, Remarks};
use crate::controllers::eviction::{Advice, Cause};

#[test]
fn remarks_are_read_as_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let look = || Remarks::look(folder.path());
    assert_eq!(look().expect("none"), None);
    let remarks = Remarks {
        advice: vec![Advice {
            pod: "jobs/a".to_owned(),
            cause: Cause::Memory,
            why: "it is large".to_owned(),
            since_s: 1_800_000_000,
        }],
        evicted: Some(Evicted {
            pod: "jobs/b".to_owned(),
            why: "it was large".to_owned(),
            at_s: 1_800_000_000,
        }),
        not_done: vec![NotDone {
            setting: "qos.io".to_owned(),
            why: "no disk uses it".to_owned(),
        }],
    };
    remarks.write(folder.path()).expect("written");
    assert_eq!(look().expect("read"), Some(remarks));
    Remarks::remove(folder.path()).expect("removed");
    Remarks::remove(folder.path()).expect("removed before");
    assert_eq!(look().expect("none"), None);
}

#[test]
fn what_is_not_understood_is_an_error_and_what_is_missing_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |text: &[u8]| {
        fs::write(folder.path().join("remarks"), text).expect("written");
        Remarks::look(folder.path())
    };
    // Of another version of this program.
    let other = of(b"{\"more\": 1}").expect("read");
    assert_eq!(other, Some(Remarks::default()));
    let long = [b' '; 300_000];
    for wrong in [&b""[..], b"{", b"[1]", b"{\"not_done\": 1}", &long] {
        let error = of(wrong).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

#[test]
fn long_texts_are_cut_so_that_all_of_them_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = NotDone {
        setting: "qos.io".to_owned(),
        why: "\u{1}".repeat(50_000),
    };
    let remarks = Remarks {
        not_done: vec![long; 21],
        ..Remarks::default()
    };
    remarks.write(folder.path()).expect("written");
    let read = Remarks::look(folder.path()).expect("read").expect("there");
    assert_eq!(read.not_done.len(), 21);
    assert_eq!(read.not_done[0].why.chars().count(), 301);
}

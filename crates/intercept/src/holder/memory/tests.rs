use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn pod(name: &str, netns: &Path) -> Remembered {
    Remembered {
        workload: WorkloadName::parse(&format!("shop/{name}")).unwrap(),
        netns: netns.to_owned(),
        inode: Some(7),
        fate: Fate::Refuse,
        exclude: Exclude::default(),
        filtered: None,
    }
}

fn open(path: &Path) -> Memory {
    let memory = Memory::open(path.to_owned());
    memory.unwrap_or_else(|error| panic!("{error}"))
}

fn remembered(path: &Path) -> Vec<Remembered> {
    understood(&read(path).unwrap()).unwrap()
}

fn lose(memory: &mut Memory, pod: &Remembered, why: &str, now: Instant) -> bool {
    memory.lose(pod.clone(), why.to_owned(), now)
}

#[test]
fn lost_pods_are_tried_again_ever_more_seldom_and_remembered_until_they_are_enrolled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    let mut memory = open(&path);
    assert_eq!(memory.due(), None);
    // Something exists at the path of its namespace.
    let lost = pod("vault", folder.path());
    let began = Instant::now();
    let mut now = began;
    assert!(lose(&mut memory, &lost, "it is busy", now));
    let mut waits = Vec::new();
    for _ in 0..7 {
        let due = memory.due().unwrap();
        waits.push((due - now).as_secs());
        assert!(memory.to_try(now).is_empty());
        now = due;
        assert_eq!(memory.to_try(now), std::slice::from_ref(&lost));
        assert!(!lose(&mut memory, &lost, "it is busy", now));
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert!(lose(&mut memory, &lost, "it is gone", now), "that is news");
    let said: Vec<_> = memory.lost().collect();
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].state, PodState::Lost);
    assert_eq!(said[0].reason.as_deref(), Some("it is gone"));

    memory.keep(std::iter::empty()).unwrap();
    assert_eq!(remembered(&path), std::slice::from_ref(&lost));
    // Its path exists, so it is not forgotten, however long it takes.
    assert!(memory.forget_gone(now).is_empty());
    assert_eq!(memory.recovered(&lost.workload), Some(lost.clone()));
    assert_eq!(memory.recovered(&lost.workload), None);
    assert_eq!(memory.due(), None);
    memory.keep(std::iter::empty()).unwrap();
    drop(memory);
    assert!(open(&path).recalled().is_empty());
}

#[test]
fn who_is_lost_with_its_namespace_is_forgotten_some_time_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = open(&folder.path().join("node.pods.json"));
    let gone = pod("gone", &folder.path().join("gone"));
    let began = Instant::now();
    for second in [0, 30, 599] {
        let now = began + Duration::from_secs(second);
        lose(&mut memory, &gone, "there is no such file", now);
        assert!(memory.forget_gone(now).is_empty(), "{second}");
    }
    let forgotten = memory.forget_gone(began + FORGOTTEN_AFTER);
    assert_eq!(forgotten, [gone.workload]);
    assert_eq!(memory.lost().count(), 0);
}

#[test]
fn a_file_that_is_not_ours_is_not_taken_for_one_and_what_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    for (text, said) in [
        ("{", "remove it, and enroll the pods of this node again"),
        ("[{\"workload\": \"vault\"}]", "remove it"),
        ("[{\"surprise\": 1}]", "unknown field"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Memory::open(path.clone()).err().unwrap().to_string();
        assert!(error.contains(said), "{text}: {error}");
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }
    let length = MAX_BYTES + 1;
    File::create(&path).unwrap().set_len(length).unwrap();
    let error = Memory::open(path).err().unwrap().to_string();
    assert!(error.contains("too large to be ours"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("node.pods.json");
    let mut memory = open(&gone);
    drop(folder);
    let error = memory.keep(std::iter::empty()).unwrap_err().to_string();
    let expected = format!("cannot write {}: ", gone.display());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn the_disk_is_not_waited_for_where_nothing_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    let lost = pod("vault", folder.path());
    let mut memory = open(&path);
    lose(&mut memory, &lost, "it is busy", Instant::now());
    memory.keep(std::iter::empty()).unwrap();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = number(&path);
    // The next holder does not write it again either.
    let mut next = open(&path);
    lose(&mut next, &lost, "it is busy", Instant::now());
    next.keep(std::iter::empty()).unwrap();
    assert_eq!(number(&path), before);
    // A file that was removed is written again.
    fs::remove_file(&path).unwrap();
    next.keep(std::iter::empty()).unwrap();
    assert_eq!(remembered(&path), [lost]);
}

#[test]
fn what_another_user_could_have_written_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    replace(&path, b"[]").unwrap();
    assert_eq!(remembered(&path), []);
    fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
    assert!(
        read(&path)
            .unwrap_err()
            .to_string()
            .contains("another user")
    );
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let link = folder.path().join("link.pods.json");
    symlink(&path, &link).unwrap();
    read(&link).unwrap_err();
}

#[test]
fn nothing_is_written_through_what_lies_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    let secret = folder.path().join("shadow");
    fs::write(&secret, "of root").unwrap();
    symlink(&secret, folder.path().join("node.pods.json.next")).unwrap();
    replace(&path, b"[]").unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"of root");
    assert_eq!(remembered(&path), []);
}

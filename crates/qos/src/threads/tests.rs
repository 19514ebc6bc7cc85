use std::fs;
use std::sync::mpsc;
use std::thread;

use super::OfflineThreads;
use super::proc::{cpu_group, field};
use crate::cgroup::{ControlGroup, Mounts, Version};

#[test]
fn proc_is_read() {
    assert_eq!(field("Name:\theddle\nTgid:\t77\n", "Tgid"), Some("77"));
    let groups = "9:memory:/a\n4:cpu,cpuacct:/kubepods/pod1\n0::/b\n";
    assert_eq!(cpu_group(groups), Some("/kubepods/pod1"));
    for wrong in ["", "0::/b", "4:cpuset:/x", "cpu"] {
        assert_eq!(cpu_group(wrong), None, "{wrong}");
    }
}

/// Starts a thread of this name, which ends when the sender is dropped. Returns its ID.
fn thread_named(name: &str) -> (i32, mpsc::SyncSender<()>) {
    let (sender, until) = mpsc::sync_channel::<()>(1);
    let (say, id) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(name.to_owned());
    let run = move || {
        say.send(rustix::thread::gettid().as_raw_nonzero().get())
            .expect("the test waits");
        let _ended = until.recv();
    };
    thread.spawn(run).expect("a thread");
    (id.recv().expect("it runs"), sender)
}

#[test]
fn threads_for_offline_callers_yield_and_are_put_back() {
    let mounts = Mounts::find().expect("control groups");
    let is_v1 = mounts.cpu_of(Version::V1).is_some();
    if !is_v1 || !rustix::process::geteuid().is_root() {
        heddle_skips::skipped("needs root and control groups of version 1");
        return;
    }
    let state = tempfile::tempdir().expect("a folder");
    let name = format!("heddle-test-threads-{}", std::process::id());
    let group = ControlGroup::new(&name).expect("a path");
    let folder = mounts.cpu_of(Version::V1).expect("version 1").join(&name);
    let (batch, _keep) = thread_named("offline-7");
    let (other, _keep_too) = thread_named("worker-0");
    let home = |id: i32| {
        let groups = fs::read_to_string(format!("/proc/self/task/{id}/cgroup")).expect("it runs");
        cpu_group(&groups).expect("a group").to_owned()
    };
    let before = home(batch);
    let us = std::process::id().cast_signed();

    let mut threads = OfflineThreads::new(&mounts, group.clone(), state.path()).expect("version 1");
    let mut place = |ids: &[i32], process| threads.place(ids, process).expect("placed");
    assert_eq!(place(&[], us), 0);
    assert_eq!(place(&[batch], us + 1), 0, "of another process");
    assert!(!folder.exists(), "it is made for the first");
    assert_eq!(place(&[batch, other, us, -1], us), 1);
    assert_eq!(place(&[batch, other], us), 0);
    assert_eq!(
        (home(batch), home(other)),
        (format!("/{name}"), before.clone())
    );
    let idle = fs::read_to_string(folder.join("cpu.idle")).expect("a group");
    assert_eq!(idle.trim(), "1");

    // Another program moves the thread away and removes the group, which is made anew.
    let away = mounts.cpu_of(Version::V1).expect("version 1");
    let away = away.join(before.trim_start_matches('/')).join("tasks");
    fs::write(away, batch.to_string()).expect("moved");
    fs::remove_dir(&folder).expect("removed");
    assert_eq!(threads.place(&[batch], us).expect("placed"), 1);
    assert_eq!(home(batch), format!("/{name}"));

    // The process is killed; the next one finds what it has left.
    drop(threads);
    let left = OfflineThreads::left(&mounts, state.path()).expect("read");
    let mut left = left.expect("something");
    assert!(left.is_there());
    // A group that another program has made in it is named.
    fs::create_dir(folder.join("below")).expect("a group");
    let refused = left.restore().expect_err("it is not empty").to_string();
    let named = format!("in it is the group {}/below: remove it", folder.display());
    assert!(refused.contains(&named), "{refused}");
    fs::remove_dir(folder.join("below")).expect("removed");
    assert_eq!(home(batch), before);
    left.restore().expect("removed");
    assert_eq!(home(batch), before);
    assert!(!folder.exists());
    let left = OfflineThreads::left(&mounts, state.path()).expect("read");
    assert!(left.is_none());

    // A group of this name that another program has made stays as it is.
    fs::create_dir(&folder).expect("a group");
    let mut threads = OfflineThreads::new(&mounts, group, state.path()).expect("version 1");
    let refused = threads
        .place(&[batch], us)
        .expect_err("it is there")
        .to_string();
    threads.restore().expect("nothing to do");
    let is_there = folder.exists();
    fs::remove_dir(&folder).expect("removed");
    assert!(is_there && refused.contains("qos.proxy_group"), "{refused}");
}

#[test]
fn a_disk_that_refuses_leaves_no_file_and_an_empty_one_says_nothing() {
    let mounts = Mounts::find().expect("control groups");
    if mounts.cpu_of(Version::V1).is_none() || !rustix::process::geteuid().is_root() {
        heddle_skips::skipped("needs root and control groups of version 1");
        return;
    }
    let state = tempfile::tempdir().expect("a folder");
    let file = state.path().join("threads");
    let group = format!("heddle-test-refused-{}", std::process::id());
    let group = ControlGroup::new(&group).expect("a path");
    let (batch, _keep) = thread_named("offline-8");
    let mut threads = OfflineThreads::new(&mounts, group, state.path()).expect("version 1");
    fs::create_dir(state.path().join("threads.next")).expect("in the way");
    let refused = threads.place(&[batch], std::process::id().cast_signed());
    let refused = refused.expect_err("refused").to_string();
    assert!(refused.contains("threads.next"), "{refused}");
    assert!(!file.exists() && !threads.is_there());

    fs::write(&file, "").expect("written");
    let left = OfflineThreads::left(&mounts, state.path()).expect("read");
    assert!(left.is_none());
    fs::write(&file, "../x").expect("written");
    let wrong = OfflineThreads::left(&mounts, state.path()).expect_err("wrong");
    let wrong = wrong.to_string();
    assert!(
        wrong.contains("/threads: ") && wrong.contains("move the file away"),
        "{wrong}"
    );
}

use std::fs;
use std::sync::mpsc;
use std::thread;

use super::{OfflineThreads, cpu_group, field};
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

    let mut threads = OfflineThreads::new(&mounts, group.clone(), state.path()).expect("version 1");
    assert_eq!(threads.place(&[]).expect("nothing to do"), 0);
    assert!(!folder.exists(), "it is made for the first");
    assert_eq!(threads.place(&[batch, other, -1]).expect("placed"), 1);
    assert_eq!(threads.place(&[batch, other]).expect("placed"), 0);
    assert_eq!(
        (home(batch), home(other)),
        (format!("/{name}"), before.clone())
    );
    let idle = fs::read_to_string(folder.join("cpu.idle")).expect("a group");
    assert_eq!(idle.trim(), "1");

    // The process is killed; the next one finds what it has left.
    drop(threads);
    let left = OfflineThreads::left(&mounts, state.path()).expect("read");
    left.expect("something").restore().expect("put back");
    assert_eq!(home(batch), before);
    assert!(!folder.exists());
    let left = OfflineThreads::left(&mounts, state.path()).expect("read");
    assert!(left.is_none());

    // A group of this name that another program has made stays as it is.
    fs::create_dir(&folder).expect("a group");
    let mut threads = OfflineThreads::new(&mounts, group, state.path()).expect("version 1");
    let refused = threads
        .place(&[batch])
        .expect_err("it is there")
        .to_string();
    threads.restore().expect("nothing to do");
    let is_there = folder.exists();
    fs::remove_dir(&folder).expect("removed");
    assert!(is_there && refused.contains("qos.proxy_group"), "{refused}");
}

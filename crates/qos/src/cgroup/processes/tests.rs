use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use heddle_model::mountinfo::Mount;
use heddle_skips::skipped;
use rustix::process::{Signal, getpid};

use super::{names, refuse_foreign};
use crate::cgroup::{ControlGroup, Mounts, System, Version};

fn group(path: &str) -> ControlGroup {
    ControlGroup::new(path).expect("a group")
}

#[test]
fn the_agent_and_the_first_process_are_never_ended() {
    let group = group("jobs/a");
    let refused = |ids: &[i32]| {
        let ids: BTreeSet<i32> = ids.iter().copied().collect();
        refuse_foreign(&group, &ids).is_err()
    };
    let ours = getpid().as_raw_nonzero().get();
    assert!(refused(&[7, ours]) && refused(&[1]) && refused(&[0, 7]));
    assert!(!refused(&[]) && !refused(&[ours + 1, 2]));

    for ours in ["0::/jobs/a\n", "4:cpu:/\n0::/x/jobs/a/b"] {
        assert!(names(ours, &group), "{ours}");
    }
    for other in ["", "0::/", "0::/jobs/ab", "0::/jobs\n1:cpu:/a"] {
        assert!(!names(other, &group), "{other}");
    }
}

/// Folders and files as those of groups, which the kernel does not watch. The processes of `jobs/a` cannot be read.
fn unreadable(at: &Path, version: Version) -> System {
    fs::create_dir_all(at.join("jobs/a/cgroup.procs")).expect("made");
    fs::write(at.join("jobs/cgroup.procs"), "").expect("written");
    fs::write(at.join("jobs/a/cgroup.kill"), "").expect("written");
    System::new(Mounts::all_at(at, version))
}

#[test]
fn a_group_whose_processes_cannot_be_read_may_have_some_until_it_is_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let system = unreadable(dir.path(), Version::V2);
    assert!(system.may_have_process(&group("jobs/a")));
    assert!(
        system.may_have_process(&group("jobs")),
        "one below it cannot be read"
    );
    assert!(system.all_processes(&group("jobs")).is_err());
    assert!(!system.may_have_process(&group("jobs/gone")));
    fs::remove_dir_all(dir.path().join("jobs/a")).expect("removed");
    assert!(!system.may_have_process(&group("jobs/a")));
    assert!(!system.may_have_process(&group("jobs")));
    fs::write(dir.path().join("jobs/cgroup.procs"), "7\n").expect("written");
    assert!(system.may_have_process(&group("jobs")));
}

#[test]
fn the_kernel_kills_what_cannot_be_listed_with_version_2_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = group("jobs/a");
    let written = || fs::read_to_string(dir.path().join("jobs/a/cgroup.kill")).expect("read");
    let v1 = unreadable(dir.path(), Version::V1);
    let refused = v1.kill_all(&a).expect_err("version 1");
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    let rehearsing = System::rehearsing(Mounts::all_at(dir.path(), Version::V2));
    assert!(rehearsing.kill_all(&a).is_err());
    assert_eq!(written(), "");
    let v2 = System::new(Mounts::all_at(dir.path(), Version::V2));
    assert!(v2.signal(&a, Signal::KILL).is_err());
    v2.kill_all(&a).expect("written");
    assert_eq!(written(), "1");
}

/// On real groups: also where version 2 has no controllers.
#[test]
fn cgroup_kill_ends_what_is_in_a_group_below() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read");
    let mut v2 = Mount::all(&mounts).filter(|mount| mount.kind == "cgroup2");
    let name = format!("heddle-test-kill-{}", std::process::id());
    let made = v2.next().and_then(|mount| {
        let group = Made(mount.target.join(&name));
        fs::create_dir_all(group.0.join("below")).ok()?;
        Some((
            System::new(Mounts::all_at(&mount.target, Version::V2)),
            group,
        ))
    });
    let Some((system, made)) = made else {
        return skipped("no groups of version 2 can be made");
    };
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep");
    let id = sleeper.id().to_string();
    fs::write(made.0.join("below/cgroup.procs"), &id).expect("moved");
    assert!(system.may_have_process(&group(&name)));
    let killed = system.kill_all(&group(&name));
    // Whatever came of it, the process does not outlive the test.
    let _gone = killed.is_err().then(|| sleeper.kill());
    let status = sleeper.wait().expect("waited");
    killed.expect("written");
    assert_eq!(status.signal(), Some(9));
    assert!(!system.may_have_process(&group(&name)));
}

/// A group and one below it, removed at the end.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(self.0.join("below"));
        let _gone = fs::remove_dir(&self.0);
    }
}

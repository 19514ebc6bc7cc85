use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use heddle_model::Class;
use heddle_skips::skipped;

use super::{Mounts, System, Version};
use crate::arbiter::journal::Nowhere;
use crate::arbiter::{Arbiter, Change, Key, Restored, Step};
use crate::cgroup::{Below, ControlGroup, CpuCounters, Groups, Knob, Value};

fn group(path: &str) -> ControlGroup {
    ControlGroup::new(path).expect("a group")
}

/// A folder with the files of a group of version 2. Only the kernel's checks are missing.
fn version_2(at: &Path) -> System {
    let folder = at.join("pods/a");
    fs::create_dir_all(folder.join("container")).expect("made");
    for (file, text) in [
        ("cpu.idle", "0\n"),
        ("cpu.weight", "79\n"),
        ("cpu.max", "max 100000\n"),
        ("cpu.max.burst", "0\n"),
        ("memory.high", "max\n"),
        ("io.weight", "default 100\n8:16 50\n"),
        ("io.bfq.weight", "default 70\n"),
        (
            "cpu.stat",
            "usage_usec 50\nuser_usec 1\nnr_throttled 7\nthrottled_usec 90\n",
        ),
    ] {
        fs::write(folder.join(file), text).expect("written");
    }
    System::new(Mounts::all_at(at, Version::V2))
}

#[test]
fn groups_below_are_listed_again_when_they_have_changed() {
    let mut below = Below::default();
    let made = Mounts::find().ok().and_then(|mounts| {
        let root = mounts.cpu.as_ref()?.at.clone();
        let name = format!("heddle-test-below-{}", std::process::id());
        fs::create_dir(root.join(&name)).ok()?;
        Some((System::new(mounts), root, name))
    });
    let Some((system, root, name)) = made else {
        return skipped("control groups cannot be made");
    };
    let parent = group(&name);
    let folder = root.join(&name);
    let mut of = || {
        below
            .of(&parent, &system)
            .map(<[_]>::to_vec)
            .expect("there")
    };
    let named = |names: &[&str]| -> Vec<ControlGroup> {
        let all = names.iter().map(|one| group(&format!("{name}/{one}")));
        all.collect()
    };
    assert_eq!(of(), []);
    fs::create_dir(folder.join("a")).expect("made");
    assert_eq!(of(), named(&["a"]));
    assert_eq!(of(), named(&["a"]));
    fs::create_dir(folder.join("b")).expect("made");
    assert_eq!(of(), named(&["a", "b"]));
    // As many as before.
    fs::remove_dir(folder.join("a")).expect("removed");
    fs::create_dir(folder.join("c")).expect("made");
    assert_eq!(of(), named(&["b", "c"]));
    for one in ["b", "c", ""] {
        fs::remove_dir(folder.join(one)).expect("removed");
    }
    let gone = below.of(&parent, &system).expect_err("gone").kind();
    assert_eq!(gone, io::ErrorKind::NotFound);
}

#[test]
fn files_of_version_2_are_read_and_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut system = version_2(dir.path());
    let a = group("pods/a");
    let text = |file: &str| fs::read_to_string(dir.path().join("pods/a").join(file)).expect("read");
    assert_eq!(
        system.read(&a, Knob::CpuShare).expect("read"),
        Value::Amount(79)
    );
    assert_eq!(system.read(&a, Knob::CpuQuota).expect("read"), Value::Max);
    assert_eq!(system.read(&a, Knob::Memory).expect("read"), Value::Max);
    for (knob, weight) in [(Knob::IoWeight, 100), (Knob::BfqWeight, 70)] {
        let value = system.read(&a, knob).expect("read");
        assert_eq!(value, Value::Amount(weight));
        assert_eq!(system.least_weight(knob), Value::Amount(1));
    }
    assert_eq!(system.cpu_period_us(&a).expect("read"), 100_000);
    let counters = CpuCounters {
        used_us: 50,
        throttled: 7,
        throttled_us: 90,
    };
    let files = system.cpu_files(&a).expect("opened");
    assert_eq!(files.read().expect("read"), counters);
    let stat = dir.path().join("pods/a/cpu.stat");
    fs::write(&stat, "usage_usec 60\nnr_throttled 8\nthrottled_usec 90\n").expect("written");
    assert_eq!(files.read().expect("read").used_us, 60);
    fs::write(&stat, "usage_usec many\n").expect("written");
    assert!(files.read().is_err());
    assert_eq!(
        system.children(&group("pods")).expect("read"),
        std::slice::from_ref(&a)
    );

    for (knob, value, file, wanted) in [
        (Knob::CpuShare, Value::Idle, "cpu.idle", "1"),
        (Knob::CpuQuota, Value::Amount(150_000), "cpu.max", "150000"),
        (Knob::CpuQuota, Value::Max, "cpu.max", "max"),
        (Knob::CpuBurst, Value::Amount(9), "cpu.max.burst", "9"),
        (Knob::Memory, Value::Amount(4096), "memory.high", "4096"),
        (Knob::IoWeight, Value::Amount(1), "io.weight", "1"),
        (Knob::BfqWeight, Value::Amount(1), "io.bfq.weight", "1"),
    ] {
        fs::write(dir.path().join("pods/a").join(file), "").expect("written");
        system.write(&a, knob, value).expect("written");
        assert_eq!(text(file), wanted);
    }
    // A weight ends idleness first.
    system
        .write(&a, Knob::CpuShare, Value::Amount(80))
        .expect("written");
    assert_eq!(
        (text("cpu.idle").as_str(), text("cpu.weight").trim_end()),
        ("0", "80")
    );
}

#[test]
fn a_missing_group_is_told_from_a_missing_file_and_from_nonsense() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut system = version_2(dir.path());
    let kind = |system: &System, path: &str, knob| {
        let error = system.read(&group(path), knob).expect_err("an error");
        error.kind()
    };
    assert_eq!(
        kind(&system, "pods/b", Knob::CpuQuota),
        io::ErrorKind::NotFound
    );
    let file = dir.path().join("pods/a/cpu.max.burst");
    fs::remove_file(&file).expect("removed");
    assert_eq!(
        kind(&system, "pods/a", Knob::CpuBurst),
        io::ErrorKind::Unsupported
    );
    let a = group("pods/a");
    assert!(system.write(&a, Knob::CpuBurst, Value::Amount(1)).is_err());
    assert!(!file.exists(), "no file is made");
    fs::write(dir.path().join("pods/a/cpu.max"), "many\n").expect("written");
    assert_eq!(
        kind(&system, "pods/a", Knob::CpuQuota),
        io::ErrorKind::InvalidData
    );
    let never = system
        .write(&a, Knob::CpuQuota, Value::Idle)
        .expect_err("refused");
    assert_eq!(never.kind(), io::ErrorKind::InvalidInput);
}

/// A group of this machine, removed at the end.
struct Made(System, ControlGroup);

/// Its folder in each hierarchy.
fn folders(system: &System, group: &ControlGroup) -> Vec<std::path::PathBuf> {
    let mounts = [
        &system.mounts.cpu,
        &system.mounts.cpuacct,
        &system.mounts.memory,
        &system.mounts.io,
    ];
    let mounts = mounts.into_iter().flatten();
    mounts.map(|mount| mount.at.join(group.as_str())).collect()
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in folders(&self.0, &self.1) {
            let _gone = fs::remove_dir(folder);
        }
    }
}

fn made(name: &str) -> io::Result<Made> {
    let made = Made(
        System::new(Mounts::find()?),
        group(&format!("heddle-test-{}-{name}", std::process::id())),
    );
    for folder in folders(&made.0, &made.1) {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(made)
}

#[test]
fn groups_of_this_machine_keep_what_is_written() {
    let mut made = match made("system") {
        Ok(made) => made,
        Err(error) => return skipped(&format!("no control groups: {error}")),
    };
    let (system, group) = (&mut made.0, &made.1);
    let value = |system: &System, knob| system.read(group, knob).expect("read");
    system
        .write(group, Knob::CpuShare, Value::Amount(200))
        .expect("written");
    system
        .write(group, Knob::CpuShare, Value::Idle)
        .expect("written");
    assert_eq!(value(system, Knob::CpuShare), Value::Idle);
    // The kernel has forgotten the weight.
    let cpu = system.cpu().expect("a hierarchy");
    let idle = cpu.at.join(group.as_str()).join("cpu.idle");
    fs::write(idle, "0").expect("written");
    assert_eq!(value(system, Knob::CpuShare), system.weight_after_idle());
    system
        .write(group, Knob::CpuShare, Value::Idle)
        .expect("written");
    system
        .write(group, Knob::CpuShare, Value::Amount(200))
        .expect("written");
    assert_eq!(value(system, Knob::CpuShare), Value::Amount(200));

    assert_eq!(value(system, Knob::CpuQuota), Value::Max);
    for quota in [Value::Amount(50_000), Value::Max, Value::Amount(30_000)] {
        system.write(group, Knob::CpuQuota, quota).expect("written");
        assert_eq!(value(system, Knob::CpuQuota), quota);
    }
    system
        .write(group, Knob::CpuBurst, Value::Amount(30_000))
        .expect("written");
    let more = system.write(group, Knob::CpuBurst, Value::Amount(30_001));
    assert!(more.is_err(), "more than the quota");
    assert_eq!(value(system, Knob::Memory), Value::Max);
    system
        .write(group, Knob::Memory, Value::Amount(1 << 24))
        .expect("written");
    assert_eq!(value(system, Knob::Memory), Value::Amount(1 << 24));
    let odd = (1 << 24) + 5_000;
    system
        .write(group, Knob::Memory, Value::Amount(odd))
        .expect("written");
    assert_eq!(value(system, Knob::Memory), Value::whole_pages(odd));
    let mut weights = 0;
    for knob in [Knob::IoWeight, Knob::BfqWeight] {
        let Ok(found) = system.read(group, knob) else {
            continue;
        };
        weights += 1;
        let least = system.least_weight(knob);
        system.write(group, knob, least).expect("written");
        assert_eq!(value(system, knob), least);
        let less = Value::Amount(least.amount().expect("an amount") - 1);
        assert!(system.write(group, knob, less).is_err(), "{less}");
        assert_eq!(value(system, knob), least);
        system.write(group, knob, found).expect("written");
        assert_eq!(value(system, knob), found);
    }
    if weights == 0 {
        skipped("no weights of disks: this kernel has neither bfq nor io.cost here");
    }
    assert_eq!(
        system
            .cpu_files(group)
            .and_then(|files| files.read())
            .expect("read"),
        CpuCounters::default()
    );
    assert_eq!(system.cpu_period_us(group).expect("read"), 100_000);
}

#[test]
fn open_files_of_a_group_that_is_gone_are_not_those_of_the_next_one() {
    let made = match made("files") {
        Ok(made) => made,
        Err(error) => return skipped(&format!("no control groups: {error}")),
    };
    let (system, group) = (&made.0, &made.1);
    let files = system.cpu_files(group).expect("opened");
    assert_eq!(files.read().expect("read"), CpuCounters::default());
    for folder in folders(system, group) {
        // One hierarchy may have all controllers.
        let _gone = fs::remove_dir(&folder);
    }
    assert!(files.read().is_err());
    for folder in folders(system, group) {
        let _there = fs::create_dir(&folder);
    }
    assert!(files.read().is_err());
    assert!(
        system
            .cpu_files(group)
            .and_then(|files| files.read())
            .is_ok()
    );
}

/// With version 2 the files of a controller go when the group above gives it up, and come back with the kernel's values.
#[test]
fn a_file_that_the_kernel_took_away_needs_no_restoring() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut arbiter = Arbiter::new(version_2(dir.path()), Nowhere, BTreeMap::new());
    let key = Key {
        group: group("pods/a"),
        knob: Knob::IoWeight,
    };
    let change = Change {
        pod: "jobs/a".to_owned(),
        class: Class::Offline,
        why: "a test".to_owned(),
        steps: vec![Step {
            key: key.clone(),
            value: Value::Amount(1),
        }],
    };
    arbiter.apply(&change, 0).expect("applied");
    fs::remove_file(dir.path().join("pods/a/io.weight")).expect("removed");
    assert!(matches!(arbiter.restore(&key), Restored::Gone));
    assert!(arbiter.held().is_empty());
}

use super::*;

const V1: &str = "\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
";
const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n";

#[test]
fn a_v1_controller_is_found_beside_an_empty_v2_mount() {
    let found = hierarchy(V1, |_| false);
    assert_eq!(
        found,
        Some((PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"), Version::V1))
    );
}

#[test]
fn a_v2_mount_counts_if_it_hands_cpu_down() {
    assert_eq!(
        hierarchy(V2, |_| true),
        Some((PathBuf::from("/sys/fs/cgroup"), Version::V2))
    );
    assert_eq!(hierarchy(V2, |_| false), None);
    assert_eq!(hierarchy("", |_| true), None);
}

#[test]
fn a_quota_is_written_in_the_terms_of_its_version() {
    let dir = tempfile::tempdir().expect("folder");
    for (version, held, lifted) in [
        (Version::V1, "10000", "-1"),
        (Version::V2, "10000 20000", "max 20000"),
    ] {
        let inside = dir.path().join(format!("{version:?}"));
        fs::create_dir(&inside).expect("group");
        let file = inside.join(if version == Version::V1 {
            "cpu.cfs_quota_us"
        } else {
            "cpu.max"
        });
        // Not dropped: a folder of ordinary files is not removed like a group.
        let group = std::mem::ManuallyDrop::new(QuotaGroup {
            dir: inside,
            version,
        });
        group.hold(Some(0.5)).expect("hold");
        assert_eq!(fs::read_to_string(&file).expect("quota"), held);
        group.hold(None).expect("lift");
        assert_eq!(fs::read_to_string(&file).expect("quota"), lifted);
    }
}

#[test]
fn only_groups_of_labs_that_are_gone_are_swept() {
    let root = tempfile::tempdir().expect("folder");
    let own = format!("{PREFIX}{}-nginx", std::process::id());
    // No process has this id: the kernel's highest is 2^22.
    let gone = format!("{PREFIX}4194305-nginx");
    for name in [own.as_str(), gone.as_str(), "system.slice", "heddle-lab-x"] {
        fs::create_dir(root.path().join(name)).expect("folder");
    }
    sweep(root.path());
    let left = |name: &str| root.path().join(name).exists();
    assert!(left(&own) && left("system.slice") && left("heddle-lab-x") && !left(&gone));
}

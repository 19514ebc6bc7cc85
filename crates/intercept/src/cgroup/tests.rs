use std::path::{Path, PathBuf};

use super::{beneath, mount};

#[test]
fn the_group_is_found_wherever_it_is_mounted() {
    let hybrid = "25 1 8:1 / / rw - ext4 /dev/root rw\n\
                  33 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  34 25 0:29 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
    let unified =
        "30 23 0:26 /kubepods/pod\\0401 /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n";
    for (mounts, path, expected) in [
        (hybrid, "/", "/sys/fs/cgroup/unified"),
        (
            hybrid,
            "/system.slice/heddle.service",
            "/sys/fs/cgroup/unified/system.slice/heddle.service",
        ),
        (unified, "/kubepods/pod 1", "/sys/fs/cgroup"),
        (unified, "/kubepods/pod 1/inner", "/sys/fs/cgroup/inner"),
        (unified, "/", "/sys/fs/cgroup"),
    ] {
        let (root, at) = mount(mounts).unwrap();
        assert_eq!(beneath(&at, &root, path), PathBuf::from(expected), "{path}");
    }
    assert!(mount("25 1 8:1 / / rw - ext4 /dev/root rw\nnonsense\n").is_none());
    assert_eq!(mount(unified).unwrap().0, Path::new("/kubepods/pod 1"));
}

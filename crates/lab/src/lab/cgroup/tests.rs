use super::*;

const V1: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:4 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const TOGETHER: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw
";
const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn hierarchies_are_found_where_they_are_mounted() {
    for (mounts, unified, controllers) in [
        (
            V1,
            "/sys/fs/cgroup/unified",
            &[
                ("cpu", "/sys/fs/cgroup/cpu"),
                ("cpuacct", "/sys/fs/cgroup/cpuacct"),
                ("memory", "/sys/fs/cgroup/memory"),
            ][..],
        ),
        (
            TOGETHER,
            "/sys/fs/cgroup/unified",
            &[("cpu", "/sys/fs/cgroup/cpu,cpuacct")],
        ),
        (V2, "/sys/fs/cgroup", &[]),
    ] {
        let found = Hierarchies::of(mounts).unwrap();
        assert_eq!(found.unified, Path::new(unified));
        let roots = found.controllers.iter();
        let roots: Vec<(&str, &str)> = roots
            .map(|(name, root)| (*name, root.to_str().unwrap()))
            .collect();
        assert_eq!(roots, controllers);
    }
    assert_eq!(Hierarchies::of(""), None);
}

#[test]
fn a_group_has_a_door_in_every_hierarchy() {
    let lab = LabName::parse("shop").unwrap();
    let group = Hierarchies::of(V1)
        .unwrap()
        .lab(&lab)
        .child("node-one")
        .child("pods");
    let below = "heddle-lab-shop/node-one/pods";
    let roots = ["cpu", "cpuacct", "memory", "unified"];
    let expected =
        roots.map(|root| PathBuf::from(format!("/sys/fs/cgroup/{root}/{below}/cgroup.procs")));
    assert_eq!(group.doors(), expected);
    assert_eq!(
        group.unified(),
        Path::new("/sys/fs/cgroup/unified").join(below)
    );
}

#[test]
fn another_lab_s_processes_are_not_held() {
    let lab = LabName::parse("shop").unwrap();
    let group = Hierarchies::of(V2).unwrap().lab(&lab);
    assert!(!group.holds(i32::try_from(std::process::id()).unwrap()));
    assert!(!group.holds(i32::MAX));
}

#[test]
fn of_version_2_a_group_is_handed_its_controllers_by_those_above_it_but_the_host_s_own() {
    let root = tempfile::tempdir().unwrap();
    let hierarchies = Hierarchies {
        unified: root.path().to_owned(),
        controllers: Vec::new(),
    };
    let lab = hierarchies.lab(&LabName::parse("shop").unwrap());
    let pod = lab.child("node-one/pods/shop.web");
    pod.create().unwrap();
    pod.hold(0.5).unwrap();
    let has = |path: &str| root.path().join(path).exists();
    for (group, hands_down) in [
        ("", false),
        ("heddle-lab-shop/", true),
        ("heddle-lab-shop/node-one/", true),
        ("heddle-lab-shop/node-one/pods/", true),
        ("heddle-lab-shop/node-one/pods/shop.web/", false),
    ] {
        let file = format!("{group}cgroup.subtree_control");
        assert_eq!(has(&file), hands_down, "{group}");
    }
    let held = fs::read_to_string(pod.unified().join("cpu.max")).unwrap();
    assert_eq!(held, "50000 100000");
}

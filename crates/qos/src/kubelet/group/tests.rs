use proptest::prelude::*;

use super::{Driver, Layout, PodQos, Uid};

const UID: &str = "1b2c3d4e-0000-4a5b-8c9d-aabbccddeeff";

fn layout(driver: Driver, root: &str) -> Layout {
    Layout::new(driver, root).expect(root)
}

#[test]
fn groups_have_the_names_that_a_kubelet_gives_them() {
    let uid = Uid::new(UID).expect("a UID");
    let slice = "kubepods.slice/kubepods-burstable.slice/\
                 kubepods-burstable-pod1b2c3d4e_0000_4a5b_8c9d_aabbccddeeff.slice";
    let of_root = "a.slice/a-b_c.slice/a-b_c-kubepods.slice/\
                   a-b_c-kubepods-pod1b2c3d4e_0000_4a5b_8c9d_aabbccddeeff.slice";
    for (driver, root, qos, path) in [
        (
            Driver::Cgroupfs,
            "/",
            PodQos::Guaranteed,
            format!("kubepods/pod{UID}"),
        ),
        (
            Driver::Cgroupfs,
            "",
            PodQos::BestEffort,
            format!("kubepods/besteffort/pod{UID}"),
        ),
        (
            Driver::Cgroupfs,
            "/a/b_c/",
            PodQos::Burstable,
            format!("a/b_c/kubepods/burstable/pod{UID}"),
        ),
        (Driver::Systemd, "/", PodQos::Burstable, slice.to_owned()),
        (
            Driver::Systemd,
            "/a/b-c",
            PodQos::Guaranteed,
            of_root.to_owned(),
        ),
    ] {
        let group = layout(driver, root).pod(&uid, qos).group;
        assert_eq!(group.as_str(), path);
    }
    for wrong in ["/a/../b", "a//b", "a\n"] {
        assert!(Layout::new(Driver::Cgroupfs, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn other_folders_are_no_pods() {
    let cgroupfs = layout(Driver::Cgroupfs, "/");
    let systemd = layout(Driver::Systemd, "/");
    for name in [
        "",
        "pod",
        "burstable",
        "pod/../x",
        "pod a",
        "Pod1",
        "podé",
        "pod1_2",
        "crio-1",
    ] {
        assert_eq!(cgroupfs.uid_of(name, PodQos::Guaranteed), None, "{name}");
    }
    for name in [
        "pod1.slice",
        "kubepods-burstable.slice",
        "kubepods-pod.slice",
        "kubepods-pod1",
        "kubepods-pod1.scope",
        "kubepods-pod1-2.slice",
        "x-kubepods-pod1.slice",
        "kubepods-burstable-pod1.slice",
    ] {
        assert_eq!(systemd.uid_of(name, PodQos::Guaranteed), None, "{name}");
    }
    assert_eq!(Uid::new(&"a".repeat(129)), None);
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let driver = prop_oneof![Just(Driver::Cgroupfs), Just(Driver::Systemd)];
    (driver, "(/[a-z][a-z0-9-]{0,6}){0,3}").prop_map(|(driver, root)| layout(driver, &root))
}

fn any_qos() -> impl Strategy<Value = PodQos> {
    prop::sample::select(PodQos::ALL.to_vec())
}

proptest! {
    #[test]
    fn a_name_is_read_back(layout in any_layout(), qos in any_qos(), uid in "[a-zA-Z0-9-]{1,128}") {
        let uid = Uid::new(&uid).expect("a UID");
        let group = layout.pod(&uid, qos).group;
        let (parent, name) = group.as_str().rsplit_once('/').expect("below another");
        let above = layout.parent(qos);
        prop_assert_eq!(parent, above.as_str());
        prop_assert_eq!(layout.uid_of(name, qos), Some(uid));
    }

    #[test]
    fn any_name_is_a_pod_of_just_this_name_or_none(
        layout in any_layout(),
        qos in any_qos(),
        name in "(kubepods-)?(burstable-)?pod[a-z0-9_-]{0,12}(\\.slice)?|\\PC{0,40}",
    ) {
        if let Some(uid) = layout.uid_of(&name, qos) {
            let group = layout.pod(&uid, qos).group;
            let end = format!("/{name}");
            prop_assert!(group.as_str().ends_with(&end), "{group} {name}");
        }
    }
}

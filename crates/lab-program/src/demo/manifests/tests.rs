use super::{Extra, ManifestFolder, addresses, with_weights};

#[test]
fn every_workload_is_on_a_node_and_nothing_else_changes() {
    let manifests = ManifestFolder::write().unwrap();
    let text = std::fs::read_to_string(manifests.dir().join("workloads.yaml")).unwrap();
    let mut placed = Vec::new();
    for document in text.split("\n---\n") {
        let value = |key: &str| {
            let mut lines = document.lines().filter_map(|line| line.split_once(key));
            let value = lines.next().map(|(_, value)| value.to_owned());
            assert_eq!(lines.next(), None, "{key} is there once in\n{document}");
            value.unwrap_or_else(|| panic!("{key} is missing in\n{document}"))
        };
        placed.push((value("  name: "), value("  nodeName: ")));
    }
    let (first, second): (Vec<_>, Vec<_>) = placed.iter().partition(|(_, node)| node == "edge-1");
    let names = |all: Vec<&(String, String)>| -> Vec<String> {
        all.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(first), ["productpage", "shopper"]);
    assert_eq!(
        names(second),
        ["details", "reviews-v1", "reviews-v2", "ratings"]
    );
    let services = std::fs::read_to_string(manifests.dir().join("services.yaml")).unwrap();
    assert!(!services.contains("nodeName"));
}

#[test]
fn files_that_are_added_leave_nothing_beside_them() {
    let manifests = ManifestFolder::write().unwrap();
    for extra in [Extra::Intruder, Extra::Policy, Extra::Reader] {
        manifests.add(extra).unwrap();
        let text = std::fs::read_to_string(manifests.dir().join(extra.file())).unwrap();
        assert!(text.contains("namespace: bookstore"), "{text}");
    }
    assert_eq!(std::fs::read_dir(manifests.dir()).unwrap().count(), 7);
}

#[test]
fn the_weights_change_and_nothing_else() {
    let manifests = ManifestFolder::write().unwrap();
    let before = std::fs::read_to_string(manifests.route()).unwrap();
    manifests.set_weights(50, 51).unwrap();
    let after = std::fs::read_to_string(manifests.route()).unwrap();
    let changed: Vec<_> = before
        .lines()
        .zip(after.lines())
        .filter(|(old, new)| old != new)
        .collect();
    let changed: Vec<_> = changed
        .iter()
        .map(|(old, new)| (old.trim(), new.trim()))
        .collect();
    assert_eq!(
        changed,
        [("weight: 90", "weight: 50"), ("weight: 10", "weight: 51")]
    );
    assert_eq!(before.lines().count(), after.lines().count());
}

#[test]
fn a_route_without_weights_is_refused() {
    assert!(with_weights("weight: 1\n", [1, 2]).is_err());
}

#[test]
fn the_services_addresses_are_found() {
    let found: Vec<String> = addresses().iter().map(ToString::to_string).collect();
    let expected: Vec<String> = (1..=5).map(|n| format!("127.1.0.{n}:9080")).collect();
    assert_eq!(found, expected);
}

#[test]
fn pods_are_on_the_same_nodes_and_latecomers_are_among_them() {
    let manifests = ManifestFolder::write_for_pods().unwrap();
    let text = std::fs::read_to_string(manifests.dir().join("workloads.yaml")).unwrap();
    let nodes: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("  nodeName: "))
        .collect();
    let [front, back] = ["edge-1", "edge-2"];
    assert_eq!(nodes, [front, back, back, back, back, front], "{text}");
    for extra in [Extra::Intruder, Extra::Reader] {
        assert!(manifests.dir().join(extra.file()).exists(), "{extra:?}");
    }
}

#[test]
fn in_the_labs_copy_latecomers_come_back_as_the_lab_has_them() {
    let mut manifests = ManifestFolder::write_for_pods().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let dir = copy.path().to_owned();
    for extra in [Extra::Intruder, Extra::Reader] {
        std::fs::write(dir.join(extra.file()), "completed").unwrap();
    }
    manifests.move_to(dir.clone()).unwrap();
    assert!(!dir.join("intruder.yaml").exists());
    manifests.add(Extra::Intruder).unwrap();
    manifests.add(Extra::Policy).unwrap();
    manifests.set_weights(1, 2).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read("intruder.yaml"), "completed");
    assert!(read("policy.yaml").contains("AuthorizationPolicy"));
    assert!(read("route.yaml").contains("weight: 2"));
}

use super::*;

const SMALL: &str = "name: shop\nnodes: [one]\nmanifests: mesh\n";

#[test]
fn what_is_left_out_has_a_default() {
    let file = File::parse(SMALL).unwrap();
    assert_eq!(file.name.as_str(), "shop");
    assert_eq!(file.carried, Carried::Node);
    let pod = PodSettings::default();
    assert_eq!(pod.families, [Family::V4, Family::V6]);
    assert!(pod.enrolled && pod.cpus.is_none());
}

#[test]
fn everything_can_be_written() {
    let text = format!(
        "{SMALL}carried: pod\npods:\n  shop/web: {{families: [ipv6], cpus: 0.5, enrolled: false}}\n"
    );
    let file = File::parse(&text).unwrap();
    assert_eq!(file.carried, Carried::Pod);
    let pod = &file.pods[&WorkloadName::parse("shop/web").unwrap()];
    assert_eq!((pod.cpus, pod.enrolled), (Some(0.5), false));
    assert_eq!(pod.families, [Family::V6]);
}

#[test]
fn a_node_is_its_name_or_has_settings_of_its_own() {
    let nodes = "[one, {name: two, settings: two.yaml}]";
    let text = format!("name: shop\nnodes: {nodes}\nmanifests: mesh\nnode_settings: all.yaml\n");
    let file = File::parse(&text).unwrap();
    let nodes: Vec<(&str, Option<&Path>)> = file
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.settings.as_deref()))
        .collect();
    assert_eq!(nodes, [("one", None), ("two", Some(Path::new("two.yaml")))]);
    assert_eq!(file.node_settings.as_deref(), Some(Path::new("all.yaml")));
    for (nodes, said) in [
        (
            "[{name: one, setting: x}]",
            "nodes[0].setting: unknown field",
        ),
        ("[{settings: x}]", "missing field `name`"),
        ("[[one]]", "the name of a node, or {name:"),
        ("[one, {name: one}]", "nodes[1]: one is written twice"),
    ] {
        let text = format!("name: shop\nnodes: {nodes}\nmanifests: mesh\n");
        let error = File::parse(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (text, said) in [
        (
            "name: Shop\nnodes: [one]\nmanifests: m\n",
            "name: \"Shop\" is not a name for a lab",
        ),
        (
            "name: shop-two\nnodes: [one]\nmanifests: m\n",
            "of a-z and 0-9",
        ),
        (
            "name: 1shop\nnodes: [one]\nmanifests: m\n",
            "first a letter",
        ),
        ("nodes: [one]\nmanifests: m\n", "name"),
        (
            "name: shop\nnodes: []\nmanifests: m\n",
            "nodes: there is none",
        ),
        (
            "name: shop\nnodes: [a, a]\nmanifests: m\n",
            "nodes[1]: a is written twice",
        ),
        ("name: shop\nnodes: [A]\nmanifests: m\n", "nodes[0]"),
        ("name: shop\nnodes: [a]\nmanifest: m\n", "manifest"),
        (
            "name: shop\nnodes: [a]\nmanifests: m\ncarried: sidecar\n",
            "carried",
        ),
        (
            "name: shop\nnodes: [a]\nmanifests: m\npods: {web: {}}\n",
            "name of the form namespace/name",
        ),
        (
            "name: shop\nnodes: [a]\nmanifests: m\npods: {s/web: {cpu: 1}}\n",
            "pods.s/web",
        ),
        (
            "name: shop\nnodes: [a]\nmanifests: m\npods: {s/web: {cpus: 0}}\n",
            "pods.s/web.cpus: 0 is not a number of processors",
        ),
        (
            "name: shop\nnodes: [a]\nmanifests: m\npods: {s/web: {cpus: .nan}}\n",
            "pods.s/web.cpus",
        ),
        (
            "name: shop\nnodes: [a]\nmanifests: m\npods: {s/web: {families: [ipv4, ipv4]}}\n",
            "pods.s/web.families: expected ipv4, ipv6 or both",
        ),
        (
            "name: shop\nnodes: [a]\nmanifests: m\npods: {s/web: {families: []}}\n",
            "pods.s/web.families",
        ),
    ] {
        let error = File::parse(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn a_lab_has_a_bounded_number_of_nodes() {
    let nodes: Vec<String> = (0..61).map(|n| format!("n{n}")).collect();
    let text = format!("name: shop\nnodes: [{}]\nmanifests: m\n", nodes.join(", "));
    let error = File::parse(&text).unwrap_err().to_string();
    assert_eq!(error, "nodes: there are 61, expected at most 60");
}

#[test]
fn a_folder_that_is_missing_is_named_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lab.yaml");
    std::fs::write(&path, SMALL).unwrap();
    let error = File::read(&path).unwrap_err().to_string();
    assert!(
        error.contains("lab.yaml: manifests: there is no folder"),
        "{error}"
    );
}

#[test]
fn settings_that_are_missing_are_named_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("mesh")).unwrap();
    let path = folder.path().join("lab.yaml");
    std::fs::write(&path, format!("{SMALL}settings: control.yaml\n")).unwrap();
    let error = File::read(&path).unwrap_err().to_string();
    assert!(
        error.contains("lab.yaml: settings: there is no file"),
        "{error}"
    );
    let settings = folder.path().join("control.yaml");
    std::fs::write(&settings, "").unwrap();
    assert_eq!(File::read(&path).unwrap().settings, Some(settings));
}

use std::fs;

use tempfile::TempDir;

use super::*;

/// A lab's file with these manifests.
fn written(manifests: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mesh")).unwrap();
    rewrite(&folder, manifests, "");
    folder
}

fn rewrite(folder: &TempDir, manifests: &str, more: &str) {
    fs::write(folder.path().join("mesh/all.yaml"), manifests).unwrap();
    let head = "name: shop\nnodes: [one, two]\nmanifests: mesh\n";
    fs::write(folder.path().join("lab.yaml"), format!("{head}{more}")).unwrap();
}

fn read(folder: &TempDir, before: Option<&Plan>) -> Plan {
    Plan::read_after(&folder.path().join("lab.yaml"), before).unwrap()
}

fn pod(name: &str, node: &str, more: &str) -> String {
    format!(
        "---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
         metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}\n\
         spec: {{nodeName: {node}{more}}}\n"
    )
}

fn service(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{selector: {{app: {name}}}, ports: [{{port: 80}}]}}\n"
    )
}

fn names(all: &[&str]) -> Vec<WorkloadName> {
    all.iter()
        .map(|name| WorkloadName::parse(name).unwrap())
        .collect()
}

#[test]
fn what_stays_keeps_its_address_and_what_is_new_gets_none_of_what_has_gone() {
    let folder =
        written(&(pod("a", "one", "") + &pod("b", "one", "") + &service("a") + &service("b")));
    let old = read(&folder, None);
    // Given a lab with a and b, when a goes and c comes before b …
    rewrite(
        &folder,
        &(pod("c", "one", "") + &pod("b", "one", "") + &service("c") + &service("b")),
        "",
    );
    let new = read(&folder, Some(&old));
    let addresses = |plan: &Plan, pod: &str| plan.pod(pod).unwrap().addresses.clone();
    assert_eq!(addresses(&new, "shop/b"), addresses(&old, "shop/b"));
    assert_eq!(addresses(&new, "shop/c")[0].to_string(), "10.1.1.3");
    let service = |plan: &Plan, name: &str| {
        let name = heddle_model::ServiceName::parse(name).unwrap();
        let found = plan.services.iter().find(|service| service.name == name);
        found.unwrap().cluster_addresses.clone()
    };
    assert_eq!(service(&new, "shop/b"), service(&old, "shop/b"));
    assert_eq!(service(&new, "shop/c")[0].to_string(), "10.96.0.3");
    // … then a is removed and c is added, and b is not changed.
    let changes = Changes::between(&old, &new, |_| true);
    assert_eq!(changes.added, names(&["shop/c"]));
    assert_eq!(changes.removed, names(&["shop/a"]));
    assert!(changes.replaced.is_empty() && changes.restarted.is_empty());
    // Without a change there is nothing to do.
    let again = read(&folder, Some(&new));
    assert!(Changes::between(&new, &again, |_| true).is_empty());
    // An unfinished pod is made.
    let unfinished = Changes::between(&new, &again, |pod| pod.workload.name.as_str() != "b");
    assert_eq!(unfinished.added, names(&["shop/b"]));
}

#[test]
fn a_pod_that_moves_is_replaced_and_one_with_another_command_started_anew() {
    let folder = written(&(pod("a", "one", "") + &pod("b", "one", ", command: [early]")));
    let old = read(&folder, None);
    rewrite(
        &folder,
        &(pod("a", "two", "") + &pod("b", "one", ", command: [late]")),
        "",
    );
    let new = read(&folder, Some(&old));
    let changes = Changes::between(&old, &new, |_| true);
    assert_eq!(changes.replaced, names(&["shop/a"]));
    assert_eq!(changes.restarted, names(&["shop/b"]));
    assert_eq!(
        changes.to_string(),
        "replaced: shop/a; program restarted: shop/b"
    );
    // A pod whose settings in the lab's file changed is replaced, too.
    rewrite(
        &folder,
        &(pod("a", "two", "") + &pod("b", "one", ", command: [late]")),
        "pods: {shop/b: {enrolled: false}}\n",
    );
    let changes = Changes::between(&new, &read(&folder, Some(&new)), |_| true);
    assert_eq!(changes.replaced, names(&["shop/b"]));
}

#[test]
fn what_cannot_change_is_named() {
    let folder = written(&pod("a", "one", ""));
    let old = read(&folder, None);
    for (more, field) in [
        ("carried: nothing\n", "carried: "),
        ("hooks: nft\n", "hooks: "),
        ("settings: lab.yaml\n", "settings: "),
        ("node_settings: lab.yaml\n", "nodes: "),
    ] {
        rewrite(&folder, &pod("a", "one", ""), more);
        let refused = check_fixed(&old, &read(&folder, Some(&old))).unwrap_err();
        assert!(refused.to_string().starts_with(field), "{refused}");
    }
    rewrite(&folder, &pod("a", "one", ""), "");
    check_fixed(&old, &read(&folder, Some(&old))).unwrap();
}

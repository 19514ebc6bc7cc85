use std::fs;

use super::*;

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
";
const POD: &str = "apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: two, ports: [{port: 80}], command: [./serve, now]}
";

/// A lab of two nodes with the manifests `text`, and `more` in its file.
fn plan(text: &str, more: &str) -> anyhow::Result<Plan> {
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("mesh"))?;
    fs::write(folder.path().join("mesh/all.yaml"), text)?;
    let file = folder.path().join("lab.yaml");
    let head = "name: shop\nnodes: [one, two]\nmanifests: mesh\n";
    fs::write(&file, format!("{head}{more}"))?;
    Plan::read(&file)
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(IpAddr::to_string).collect()
}

#[test]
fn everything_gets_its_address() {
    let plan = plan(&format!("{SERVICE}---\n{POD}"), "").unwrap();
    let pod = plan.pod("shop/web").unwrap();
    assert_eq!(pod.node.as_str(), "two");
    assert_eq!(texts(&pod.addresses), ["10.2.1.1", "fd68:6c:0:2::1"]);
    let service = &plan.services[0];
    assert_eq!(
        texts(&service.cluster_addresses),
        ["10.96.0.1", "fd68:6c:60::1"]
    );
    assert_eq!(service.pods, std::slice::from_ref(&pod.workload));
}

#[test]
fn a_program_starts_in_the_folder_of_its_manifest() {
    let plan = plan(POD, "").unwrap();
    let command = plan.pods[0].command.clone().unwrap();
    let folder = command.working_dir.unwrap();
    assert!(folder.ends_with("mesh"), "{}", folder.display());
    assert_eq!(
        Path::new(&command.argv[0]).parent(),
        Some(folder.join(".").as_path())
    );
    assert_eq!(command.argv[1], "now");
}

#[test]
fn the_copy_says_to_the_control_plane_what_the_lab_decided() {
    let mut plan = plan(&format!("{SERVICE}---\n{POD}"), "carried: pod\n").unwrap();
    let mut seen = Vec::new();
    let manifests = plan.manifests.as_mut().unwrap();
    for kind in ["LocalWorkload", "Service"] {
        let each = manifests.each(kind, |mut object| {
            let spec = object.spec()?;
            for field in ["nodeName", "address", "clusterIP"] {
                seen.extend(spec.get(field).and_then(Value::as_str).map(str::to_owned));
            }
            Ok(())
        });
        each.unwrap();
    }
    assert_eq!(seen, ["shop.web", "10.2.1.1", "10.96.0.1"]);
    assert_eq!(plan.pods[0].mesh_node.as_str(), "shop.web");
    assert_eq!(plan.pods[0].node.as_str(), "two");
}

#[test]
fn families_are_as_a_cluster_would_have_them() {
    for (spec, families) in [
        ("", &[Family::V4, Family::V6][..]),
        ("ipFamilies: [IPv4],", &[Family::V4]),
        ("ipFamilies: [IPv6],", &[Family::V6]),
        ("ipFamilies: [IPv6, IPv4],", &[Family::V6, Family::V4]),
        ("ipFamilyPolicy: SingleStack,", &[Family::V4]),
        (
            "ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6],",
            &[Family::V6, Family::V4],
        ),
    ] {
        let service = SERVICE.replace("spec: {", &format!("spec: {{{spec} "));
        let plan = plan(&format!("{service}---\n{POD}"), "").unwrap();
        assert_eq!(plan.services[0].families, families, "{spec}");
        assert_eq!(plan.services[0].cluster_addresses.len(), families.len());
    }
}

#[test]
fn a_headless_service_has_no_cluster_address() {
    let service = SERVICE.replace("spec: {", "spec: {clusterIP: None, ");
    let plan = plan(&format!("{service}---\n{POD}"), "").unwrap();
    assert!(plan.services[0].cluster_addresses.is_empty());
    assert_eq!(plan.services[0].pods.len(), 1);
}

#[test]
fn a_pod_without_a_node_is_on_the_only_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mesh")).unwrap();
    let pod = POD.replace("nodeName: two, ", "");
    fs::write(folder.path().join("mesh/all.yaml"), pod).unwrap();
    let file = folder.path().join("lab.yaml");
    fs::write(&file, "name: shop\nnodes: [only]\nmanifests: mesh\n").unwrap();
    let plan = Plan::read(&file).unwrap();
    assert_eq!(plan.pods[0].node.as_str(), "only");
}

#[test]
fn what_is_wrong_is_named() {
    let elsewhere = POD.replace("two", "three");
    let nowhere = POD.replace("nodeName: two, ", "");
    let twice = format!("{POD}---\n{POD}");
    let no_family = SERVICE.replace("spec: {", "spec: {ipFamilies: [IPv5], ");
    for (text, more, said) in [
        (
            elsewhere.as_str(),
            "",
            "spec.nodeName: the lab has no node \"three\" (it has one, two)",
        ),
        (
            &nowhere,
            "",
            "it does not say which node it is on (add one of one, two)",
        ),
        (&twice, "", "LocalWorkload shop/web is defined twice"),
        (&no_family, "", "spec.ipFamilies[0]"),
        (
            POD,
            "pods: {shop/wbe: {cpus: 1}}\n",
            "pods.shop/wbe: the manifests have no such LocalWorkload",
        ),
    ] {
        let error = format!("{:#}", plan(text, more).unwrap_err());
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_example_is_a_lab() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lab");
    let plan = Plan::read(&examples.join("bookstore.yaml")).unwrap();
    assert_eq!(
        (plan.nodes.len(), plan.pods.len(), plan.services.len()),
        (2, 7, 6)
    );
    assert_eq!(plan.warnings, Vec::<String>::new());
}

#[test]
fn a_program_cannot_have_the_ports_of_the_mesh() {
    let with_ports = |ports: &str| POD.replace("[{port: 80}]", ports);
    let refused = "[{port: 80}, {port: 15006, name: x}]";
    let why = format!("{:#}", plan(&with_ports(refused), "").unwrap_err());
    for part in [
        "LocalWorkload shop/web: spec.ports[1].port: on 15006 ",
        "pods.shop/web.enrolled: false",
    ] {
        assert!(why.contains(part), "{part:?} is not in {why}");
    }
    for (ports, more, is_right) in [
        ("[{port: 15001}]", "", false),
        ("[{port: 15001}]", "carried: pod\n", false),
        ("[{port: 15008}]", "carried: pod\n", false),
        ("[{port: 15008}]", "", true),
        ("[{port: 15001}]", "carried: nothing\n", true),
        (
            "[{port: 15001}]",
            "pods: {shop/web: {enrolled: false}}\n",
            true,
        ),
    ] {
        let outcome = plan(&with_ports(ports), more);
        assert_eq!(outcome.is_ok(), is_right, "{ports} {more}");
    }
}

/// `heddle validate` and a lab agree about the same manifests.
#[test]
fn what_a_lab_takes_is_what_is_valid_for_one() {
    let without_service = POD.to_owned();
    let both = format!("{SERVICE}---\n{POD}");
    let addressed = both.replace("spec: {nodeName", "spec: {address: 10.0.0.1, nodeName");
    let clashing = addressed.clone() + "---\n" + &addressed.replace("name: web", "name: b");
    let clash_of_services = both.clone()
        + "---\n"
        + &SERVICE
            .replace("name: web", "name: b")
            .replace("spec: {", "spec: {clusterIP: 10.96.0.9, ")
        + "---\n"
        + &SERVICE
            .replace("name: web", "name: c")
            .replace("spec: {", "spec: {clusterIP: 10.96.0.9, ");
    let broken = both.replace("port: 80", "port: 0");
    let misspelt = both.replace("selector", "selectors");
    for (text, is_taken) in [
        (without_service, true),
        (both, true),
        (addressed, true),
        (clashing, true),
        (clash_of_services, true),
        (broken, false),
        (misspelt, false),
    ] {
        let planned = plan(&text, "");
        assert_eq!(planned.is_ok(), is_taken, "{text}: {:?}", planned.err());
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("all.yaml"), &text).unwrap();
        let options = heddle_compile::Options {
            addresses: heddle_compile::Addresses::Given,
            ..heddle_compile::Options::default()
        };
        let (mesh, report) = heddle_compile::load_with(folder.path(), &options);
        assert_eq!(mesh.is_some(), is_taken, "{text}: {:?}", report.problems);
    }
}

//! Checks `docs/qos.md`: its example is read as it says.

use std::path::Path;

use heddle_model::{Class, ControlGroup, Qos};

use crate::load_text;

const PAGE: &str = include_str!("../../../../../docs/qos.md");

#[test]
fn the_example_of_the_page_is_read() {
    let example = PAGE.split("```yaml\n").nth(1).unwrap();
    // The page is about a machine whose agent needs no addresses.
    let example = example.split("```").next().unwrap();
    let example = example
        .replace(
            "spec:\n  ports: [{port: 8080}]",
            "spec:\n  address: 127.1.0.1\n  ports: [{port: 8080}]",
        )
        .replace(
            "spec:\n  ports: [{port: 8081}]",
            "spec:\n  address: 127.1.0.1\n  ports: [{port: 8081}]",
        );
    let (mesh, report) = load_text(Path::new("a.yaml"), example.as_bytes());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let workloads = mesh.unwrap().workloads;
    let qos: Vec<&Qos> = workloads.iter().map(|workload| &workload.qos).collect();
    let backup = Qos {
        class: Class::Offline,
        cgroup: ControlGroup::new("system.slice/backup.service").ok(),
        ..Qos::default()
    };
    let till = Qos {
        quota_turbo: true,
        quota_burst_us: Some(20_000),
        cgroup: ControlGroup::new("system.slice/till.service").ok(),
        ..Qos::default()
    };
    assert_eq!(qos, [&backup, &till]);
}

#[test]
fn the_example_of_an_objective_is_read() {
    let examples = PAGE.split("```yaml\n").skip(1);
    let mut examples = examples.filter_map(|text| text.split("```").next());
    let example = examples.find(|text| text.contains("latency-p99")).unwrap();
    let (mesh, report) = load_text(Path::new("a.yaml"), example.as_bytes());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let mesh = mesh.unwrap();
    assert_eq!(mesh.services.len(), 1);
    let ms = mesh.workloads.iter().map(|one| one.qos.latency_p99_ms);
    assert_eq!(ms.collect::<Vec<_>>(), [Some(5)]);
}

#[test]
fn an_objective_of_an_offline_pod_is_warned_of_and_ignored() {
    let text = "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {name: a, labels: {heddle.dev/class: offline}, \
                annotations: {heddle.dev/latency-p99: 5ms}}\nspec: {address: 127.1.0.1, ports: [{port: 80}]}\n";
    let (mesh, report) = load_text(Path::new("a.yaml"), text.as_bytes());
    assert_eq!((report.errors(), report.problems.len()), (0, 1));
    let workloads = mesh.unwrap().workloads;
    assert!(workloads.iter().all(|one| one.qos.latency_p99_ms.is_none()));
}

#[test]
fn one_class_is_not_contradicted_by_the_other_label() {
    let errors = |labels: &str| {
        let text = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: a, labels: {{{labels}}}}}\n\
             spec: {{address: 127.1.0.1, ports: [{{port: 80}}]}}\n"
        );
        let (_, report) = load_text(Path::new("a.yaml"), text.as_bytes());
        report.errors()
    };
    let preemptable = "volcano.sh/preemptable: \"true\"";
    assert_eq!(
        errors(&format!("heddle.dev/class: offline, {preemptable}")),
        0
    );
    assert_eq!(
        errors(&format!("heddle.dev/class: online, {preemptable}")),
        1
    );
    assert_eq!(
        errors("heddle.dev/class: offline, volcano.sh/preemptable: \"false\""),
        0
    );
}

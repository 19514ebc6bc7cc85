//! Unsupported fields are errors or warnings, and fields for a cluster only are ignored, as `docs/manifests.md` says of
//! each field.

use std::fs;
use std::path::Path;

use heddle_model::report::Severity;

use crate::{load, load_text};

const PAGE: &str = include_str!("../../../../../docs/manifests.md");

/// A workload, and a Service of it with `more` in its `spec`.
fn service(more: &str) -> String {
    format!(
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: web, labels: {{app: web}}}}\n\
         spec: {{address: 127.1.0.1}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n  selector: {{app: web}}\n  {more}\n"
    )
}

/// A Service of a workload, and a route to it with `more` in its `spec`.
fn route(more: &str) -> String {
    let service = service("ports: [{port: 80}]");
    format!(
        "{service}---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web}}\nspec:\n  \
         parentRefs: [{{group: '', kind: Service, name: web}}]\n  {more}\n"
    )
}

/// A workload with this probe.
fn probed(probe: &str) -> String {
    format!(
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: web}}\n\
         spec: {{address: 127.1.0.1, livenessProbe: {{{probe}}}}}\n"
    )
}

/// A workload or a Service with this label.
fn labelled(kind: &str, label: &str) -> String {
    let (version, spec) = match kind {
        "Service" => ("v1", "clusterIP: None, ports: [{port: 80}]"),
        _ => ("heddle.dev/v1alpha1", "address: 127.1.0.1"),
    };
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web, labels: {{{label}}}}}\nspec: {{{spec}}}\n"
    )
}

fn problems(text: &str) -> Vec<(Severity, String)> {
    let (_, report) = load_text(Path::new("a.yaml"), text.as_bytes());
    let problems = report.problems.into_iter();
    problems.map(|one| (one.severity, one.field)).collect()
}

#[test]
fn each_field_is_refused_warned_of_or_passed_over_as_the_page_says() {
    let ports = "ports: [{port: 80}]";
    let with = |field: &str| service(&format!("{ports}\n  {field}"));
    for (text, expected) in [
        (service("ports: [{port: 80}]"), None),
        (
            with("type: ExternalName\n  externalName: example.com"),
            Some((Severity::Error, "spec.type")),
        ),
        (
            with("sessionAffinity: ClientIP"),
            Some((Severity::Warning, "spec.sessionAffinity")),
        ),
        (with("sessionAffinity: None"), None),
        (
            with("internalTrafficPolicy: Local"),
            Some((Severity::Warning, "spec.internalTrafficPolicy")),
        ),
        (with("internalTrafficPolicy: Cluster"), None),
        (
            with("internalTrafficPolicy: local"),
            Some((Severity::Error, "spec.internalTrafficPolicy")),
        ),
        (with("externalTrafficPolicy: Local"), None),
        (with("publishNotReadyAddresses: true"), None),
        (with("trafficDistribution: PreferClose"), None),
        (with("externalIPs: [192.0.2.1]"), None),
        (
            service("ports: [{name: a, port: 80}, {name: b, port: 53, protocol: UDP}]"),
            Some((Severity::Warning, "spec.ports[1].protocol")),
        ),
        (
            service("ports: [{name: a, port: 80}, {name: b, port: 53, protocol: SCTP}]"),
            Some((Severity::Warning, "spec.ports[1].protocol")),
        ),
        (
            service("ports: [{port: 80, appProtocol: kubernetes.io/h2c}]"),
            Some((Severity::Warning, "spec.ports[0].appProtocol")),
        ),
        (
            service("ports: [{port: 80, appProtocol: grpc}]"),
            Some((Severity::Warning, "spec.ports[0].appProtocol")),
        ),
        (
            service("ports: [{port: 80, appProtocol: example.com/own}]"),
            Some((Severity::Warning, "spec.ports[0].appProtocol")),
        ),
        (
            service("ports: [{name: grpc-api, port: 80}]"),
            Some((Severity::Warning, "spec.ports[0].name")),
        ),
        (service("ports: [{port: 80, appProtocol: https}]"), None),
        (service("ports: [{port: 80, nodePort: 30080}]"), None),
        (
            route("hostnames: [example.com]\n  rules: [{backendRefs: [{name: web, port: 80}]}]"),
            Some((Severity::Warning, "spec.hostnames")),
        ),
        (
            route("rules: [{sessionPersistence: {}, backendRefs: [{name: web, port: 80}]}]"),
            Some((Severity::Error, "spec.rules[0].sessionPersistence")),
        ),
        (
            route("useDefaultGateways: All\n  rules: [{backendRefs: [{name: web, port: 80}]}]"),
            None,
        ),
        (
            probed("httpGet: {port: 80}, periodSeconds: 1, timeoutSeconds: 1"),
            None,
        ),
        (
            probed("httpGet: {port: 80, httpHeaders: [{name: a, value: b}]}"),
            None,
        ),
        (
            probed("httpGet: {port: 80, scheme: HTTPS}"),
            Some((Severity::Error, "spec.livenessProbe.httpGet.scheme")),
        ),
        (
            probed("exec: {command: [a]}"),
            Some((Severity::Error, "spec.livenessProbe.exec")),
        ),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(severity, field)| (severity, field.to_owned()))
            .collect();
        assert_eq!(problems(&text), expected, "{text}");
    }
}

#[test]
fn a_label_of_ours_that_is_not_known_is_an_error() {
    let said = |kind, label| -> Vec<String> {
        let text = labelled(kind, label);
        let (_, report) = load_text(Path::new("a.yaml"), text.as_bytes());
        let errors = report.problems.iter();
        let errors = errors.filter(|one| one.severity == Severity::Error);
        errors
            .map(|one| format!("{}: {} ({})", one.field, one.reason, one.remedy))
            .collect()
    };
    assert_eq!(
        said("LocalWorkload", "heddle.dev/mod: strict"),
        [
            "metadata.labels[heddle.dev/mod]: a LocalWorkload has no such label (did you mean heddle.dev/mode?)"
        ]
    );
    assert_eq!(said("LocalWorkload", "heddle.dev/mode: strict"), [""; 0]);
    assert_eq!(said("LocalWorkload", "heddle.dev/service: web"), [""; 0]);
    assert_eq!(
        said("Service", "heddle.dev/service: web"),
        ["metadata.labels[heddle.dev/service]: a Service has no such label (remove it)"]
    );
    assert_eq!(said("LocalWorkload", "example.com/mod: strict"), [""; 0]);
}

#[test]
fn the_example_of_a_local_workload_is_taken_as_it_stands() {
    let example = PAGE
        .split("\n## LocalWorkload ")
        .nth(1)
        .and_then(|rest| rest.split("```yaml\n").nth(1))
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), example).unwrap();
    let (mesh, report) = load(folder.path());
    assert!(mesh.is_some(), "{:?}", report.problems);
    let fields: Vec<&str> = report
        .problems
        .iter()
        .map(|one| one.field.as_str())
        .collect();
    assert_eq!(fields, ["spec.workingDir"]);
    fs::create_dir(folder.path().join("bin")).unwrap();
    let (mesh, report) = load(folder.path());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(
        mesh.unwrap().workloads[0].name.to_string(),
        "bookstore/reviews-v1"
    );
}

//! Results for a table of one-line manifests: limits that would only bloat the fixtures.

use std::fs;

use tempfile::TempDir;

use crate::load;

const BASE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{group: '', kind: Service, name: web}]
";

/// The errors of a route with these rules.
fn errors(rules: &str) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    fs::write(
        dir.path().join("a.yaml"),
        format!("{BASE}  rules: {rules}\n"),
    )
    .unwrap();
    let (_, report) = load(dir.path());
    let errors = report
        .problems
        .iter()
        .filter(|p| p.severity == heddle_model::report::Severity::Error);
    errors
        .map(|p| format!("{}: {}", p.field, p.reason))
        .collect()
}

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(", "))
}

#[test]
fn lists_hold_as_much_as_the_api_allows() {
    let backend = "{name: web, port: 80}";
    let rule =
        |matches: &str, backends: &str| format!("{{matches: {matches}, backendRefs: {backends}}}");
    let prefix = "{path: {value: /a}}";
    let sixty_four = rule(&list(prefix, 64), &list(backend, 16));
    assert_eq!(errors(&list(&sixty_four, 2)), [""; 0]);
    for (rules, field) in [
        (list(&rule("[]", "[]"), 17), "spec.rules"),
        (list(&sixty_four, 3), "spec.rules"),
        (
            list(&rule(&list(prefix, 65), "[]"), 1),
            "spec.rules[0].matches",
        ),
        (
            list(&rule("[]", &list(backend, 17)), 1),
            "spec.rules[0].backendRefs",
        ),
    ] {
        let errors = errors(&rules);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with(&format!("{field}: there are")),
            "{errors:?}"
        );
    }
    let headers: Vec<String> = (0..17)
        .map(|i| format!("{{name: h{i}, value: a}}"))
        .collect();
    let headers = headers.join(", ");
    for field in ["headers", "queryParams"] {
        let errors = errors(&format!("[{{matches: [{{{field}: [{headers}]}}]}}]"));
        assert_eq!(
            errors,
            [format!(
                "spec.rules[0].matches[0].{field}: there are 17 items"
            )]
        );
    }
    let filter = format!(
        "[{{filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{headers}]}}}}]}}]"
    );
    let at = "spec.rules[0].filters[0].requestHeaderModifier.set";
    assert_eq!(errors(&filter), [format!("{at}: there are 17 items")]);
}

/// Items above the API's limit are counted, not compared pairwise.
#[test]
fn lists_far_too_long_are_cut() {
    let many = 4_000;
    for (rules, problems) in [
        (list("{}", many), 1),
        (
            list(
                &format!("{{backendRefs: {}}}", list("{name: web, port: 80}", many)),
                1,
            ),
            1,
        ),
        (
            list(
                &format!(
                    "{{matches: [{{headers: {}}}]}}",
                    list("{name: a, value: b}", many)
                ),
                1,
            ),
            1,
        ),
        (
            list(
                &format!("{{filters: {}}}", list("{type: CORS, cors: {}}", many)),
                1,
            ),
            17,
        ),
    ] {
        assert_eq!(errors(&rules).len(), problems);
    }
}

#[test]
fn long_values_are_refused() {
    let value = |length: usize| {
        format!(
            "[{{matches: [{{headers: [{{name: a, value: {}}}]}}]}}]",
            "x".repeat(length)
        )
    };
    assert_eq!(errors(&value(4096)), [""; 0]);
    assert_eq!(errors(&value(4097)).len(), 1);
    let path = |length: usize| {
        format!(
            "[{{matches: [{{path: {{value: /{}}}}}]}}]",
            "x".repeat(length)
        )
    };
    assert_eq!(errors(&path(1023)), [""; 0]);
    assert_eq!(errors(&path(1024)).len(), 1);
}

#[test]
fn relative_programs_are_found_beside_their_manifest() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let manifest = |command: &str, rest: &str| {
        format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: web}}\n\
             spec: {{address: 127.1.0.1, command: [{command}]{rest}}}\n"
        )
    };
    let root = dir.path().to_str().unwrap();
    for (command, rest, program, place) in [
        (
            "./run",
            "",
            format!("{root}/sub/./run"),
            format!("{root}/sub/"),
        ),
        ("run", "", "run".to_owned(), format!("{root}/sub/")),
        (
            "/bin/run",
            "",
            "/bin/run".to_owned(),
            format!("{root}/sub/"),
        ),
        (
            "bin/run",
            ", workingDir: ..",
            format!("{root}/sub/../bin/run"),
            format!("{root}/sub/.."),
        ),
        (
            "bin/run",
            ", workingDir: /opt",
            "/opt/bin/run".to_owned(),
            "/opt".to_owned(),
        ),
    ] {
        fs::write(dir.path().join("sub/a.yaml"), manifest(command, rest)).unwrap();
        let (mesh, report) = load(dir.path());
        let mesh = mesh.unwrap_or_else(|| panic!("{:?}", report.problems));
        let command = mesh.workloads[0].command.clone().unwrap();
        assert_eq!(command.argv[0], program);
        assert_eq!(command.working_dir.unwrap().to_str().unwrap(), place);
    }
}

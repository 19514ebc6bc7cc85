//! Checks `docs/balancing.md`: its example is served, and its table is complete.

use std::fs;
use std::path::Path;

use heddle_model::Line;
use tempfile::TempDir;

use crate::compile::balancing::OF_SERVICES;
use crate::{load, load_text};

const PAGE: &str = include_str!("../../../../../docs/balancing.md");

#[test]
fn the_example_of_the_page_is_served() {
    let example = PAGE.split("```yaml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), example).unwrap();
    let (mesh, report) = load(folder.path());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let mesh = mesh.unwrap();
    mesh.check_invariants().unwrap();
    let hash = &mesh.services[0];
    let rooms: Vec<_> = hash.ports[0]
        .endpoints
        .iter()
        .map(|endpoint| endpoint.max_requests)
        .collect();
    assert_eq!(rooms, [Some(67), Some(133), Some(200)]);
    let line = Line {
        max_waiting: 512,
        max_wait_ms: 2_000,
    };
    assert_eq!(hash.balancing.line, line);
    assert_eq!(hash.balancing.ejection.unwrap().after, 5);
}

#[test]
fn an_endpoint_is_left_out_for_five_minutes_at_most() {
    let service = |eject_for: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    \
             heddle.dev/eject-after: \"5\"\n    heddle.dev/eject-for: {eject_for}\n\
             spec: {{clusterIP: None, ports: [{{port: 80}}]}}\n"
        )
    };
    let is_taken = |eject_for| {
        let text = service(eject_for);
        !load_text(Path::new("a.yaml"), text.as_bytes())
            .1
            .has_errors()
    };
    assert!(is_taken("5m"));
    for longer in ["5m1s", "6m", "1h"] {
        assert!(!is_taken(longer), "{longer}");
    }
}

#[test]
fn every_annotation_is_listed() {
    for annotation in OF_SERVICES {
        assert!(
            PAGE.contains(&format!("| `{annotation}` |")),
            "{annotation}"
        );
    }
}

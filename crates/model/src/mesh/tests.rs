use super::*;
use crate::Balancer;

#[test]
fn finds_a_service_by_name() {
    let service = |name: &str| Service {
        name: ServiceName::parse(name).unwrap(),
        headless: false,
        balancer: Balancer::default(),
        ports: Vec::new(),
    };
    let mesh = Mesh {
        generation: 1,
        services: vec![service("a/x"), service("b/x")],
        ..Mesh::default()
    };
    let found = mesh
        .service(&ServiceName::parse("b/x").unwrap())
        .map(|s| s.name.to_string());
    assert_eq!(found.as_deref(), Some("b/x"));
    assert!(mesh.service(&ServiceName::parse("b/y").unwrap()).is_none());
    assert!(
        mesh.workload(&WorkloadName::parse("b/x").unwrap())
            .is_none()
    );
}

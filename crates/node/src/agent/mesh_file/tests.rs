use heddle_model::{PolicyAction, PolicyName, Service, ServiceName};

use super::*;

fn mesh(generation: u64, edit: impl FnOnce(&mut Mesh)) -> MeshOf {
    let mut mesh = Mesh {
        generation,
        ..Mesh::default()
    };
    edit(&mut mesh);
    Arc::new(("epoch".to_owned(), Box::new(mesh)))
}

fn with_service(mesh: &mut Mesh) {
    let name = ServiceName::new("shop", "web").expect("a name");
    mesh.services.push(
        Service {
            name,
            headless: false,
            addresses: Vec::new(),
            balancer: heddle_model::Balancer::default(),
            balancing: heddle_model::Balancing::default(),
            ports: Vec::new(),
        }
        .into(),
    );
}

fn with_policy(mesh: &mut Mesh) {
    mesh.policies.push(Arc::new(Policy {
        name: PolicyName::parse("AuthorizationPolicy shop/web").expect("a name"),
        action: PolicyAction::Deny,
        dry_run: false,
        rules: Vec::new(),
    }));
}

#[test]
fn what_guards_is_written_at_once_and_endpoints_a_little_later() {
    let mut file = MeshFile::default();
    let began = Instant::now();
    assert!(file.put(mesh(1, |_| {}), began).is_some());
    assert_eq!(file.again_in(began), None);
    let second = Duration::from_secs(1);
    for number in 0..4 {
        let now = began + second * number;
        assert!(
            file.put(mesh(2 + u64::from(number), with_service), now)
                .is_none()
        );
        assert!(file.due(now).is_none());
    }
    // The newest one is written, at the time of the first.
    assert_eq!(file.again_in(began + second), Some(LATER - second));
    let due = file.due(began + LATER).expect("due");
    assert_eq!(due.1.generation, 5);
    assert!(file.due(began + LATER).is_none());

    // A policy replaces what waits.
    assert!(file.put(mesh(6, with_service), began).is_none());
    let at_once = file.put(mesh(7, with_policy), began).expect("at once");
    assert_eq!(at_once.1.generation, 7);
    assert_eq!(file.again_in(began), None);
}

#[test]
fn a_file_with_other_guards_goes_when_the_mesh_in_force_cannot_be_written() {
    let now = Instant::now();
    let mut file = MeshFile::default();
    // Nothing is known of the file before one is found or written.
    assert!(file.failed(&mesh(1, |_| {}).1));
    file.holds(&mesh(1, |_| {}).1);
    assert!(!file.failed(&mesh(2, with_service).1));
    assert!(
        file.put(mesh(3, with_service), now).is_some(),
        "written at once"
    );
    assert!(file.failed(&mesh(4, with_policy).1));
    // Its removal may have failed: also when the policy is taken back.
    assert!(file.failed(&mesh(5, |_| {}).1));
    file.holds(&mesh(6, with_policy).1);
    assert!(!file.failed(&mesh(7, with_policy).1));
    let elsewhere = |mesh: &mut Mesh| {
        with_policy(mesh);
        mesh.trust_domain = TrustDomain::parse("other.test").expect("a name");
    };
    assert!(file.failed(&mesh(8, elsewhere).1));
}

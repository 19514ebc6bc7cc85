use std::net::IpAddr;

use heddle_model::{Endpoint, Mode, Policy, PolicyAction, Proxy, Qos};

use super::*;

fn policy() -> PolicyName {
    PolicyName::parse("AuthorizationPolicy shop/p").expect("a name")
}

fn mesh(is_endpoint: bool, policies: &[PolicyName]) -> Arc<Mesh> {
    let name = WorkloadName::new("shop", "guarded").expect("a name");
    let account = ServiceAccountName::new("shop", "guarded").expect("a name");
    let address: IpAddr = [10, 0, 0, 1].into();
    let endpoint = Endpoint {
        address: (address, 8_080).into(),
        weight: 1,
        max_requests: None,
        workload: Some(name.clone()),
        remote_workload: None,
        account: Some(account.clone()),
        node: None,
        has_envoy: true,
    };
    let service = Service {
        name: ServiceName::new("shop", "api").expect("a name"),
        headless: false,
        addresses: vec![[10, 96, 0, 1].into()],
        balancer: Default::default(),
        balancing: Default::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: is_endpoint.then_some(endpoint).into_iter().collect(),
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    };
    let workload = Workload {
        name,
        labels: Default::default(),
        service_account: account,
        address,
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: policies.to_vec(),
        probes: Vec::new(),
        qos: Qos::default(),
        proxy: Proxy::Envoy { lazy: false },
        command: None,
    };
    let mut mesh = Mesh {
        generation: 1,
        services: vec![Shared::from(service)],
        policies: vec![Arc::new(Policy {
            name: policy(),
            action: PolicyAction::Allow,
            dry_run: false,
            rules: Vec::new(),
        })],
        ..Mesh::default()
    };
    mesh.put_workload(Shared::from(workload));
    Arc::new(mesh)
}

#[test]
fn a_gateway_judges_anew_when_the_policies_of_endpoints_are_others() {
    let all = [policy()];
    let mut catalog = Catalog::default();
    let mut is_judged_otherwise = |mesh: Arc<Mesh>| {
        let before = catalog.judged();
        catalog.follow(mesh);
        catalog.judged() > before
    };
    assert!(is_judged_otherwise(mesh(false, &all)));
    assert!(!is_judged_otherwise(mesh(false, &all)), "nothing differs");
    // A workload that is there already becomes an endpoint.
    assert!(is_judged_otherwise(mesh(true, &all)));
    assert!(!is_judged_otherwise(mesh(true, &all)), "nothing differs");
    assert!(
        is_judged_otherwise(mesh(true, &[])),
        "no policy selects it any more"
    );
}

#[test]
fn an_address_is_that_of_its_service_until_that_is_gone() {
    let mut catalog = Catalog::default();
    let at: IpAddr = [10, 96, 0, 1].into();
    assert!(catalog.is_empty());
    catalog.follow(mesh(true, &[]));
    assert_eq!(catalog.service_at(at).map(|name| &**name), Some("shop/api"));
    assert_eq!(catalog.cost("shop/api").0, 2);
    catalog.follow(Arc::new(Mesh::default()));
    assert_eq!(catalog.service_at(at), None);
    assert_eq!(catalog.cost("shop/api"), (0, 0));
}

mod generate;
mod hostile;
mod joining;
mod names;

use std::sync::Arc;

use heddle_model::{
    Backend, BackendTarget, Endpoint, RouteRule, Service, ServiceAccountName, ServicePort,
    WorkloadName,
};
use proptest::prelude::*;

use super::*;

/// Checks that a resource is the same on the other side.
fn arrived(resource: &Resource) -> Resource {
    let (kind, name, content) = (resource.kind(), resource.name(), resource.encode());
    let arrived = Resource::decode(kind, &name, &content)
        .unwrap_or_else(|error| panic!("{kind:?} {name}: {error}\n{resource:#?}"));
    assert_eq!(&arrived, resource);
    assert_eq!(arrived.encode(), content, "equal resources, unequal bytes");
    arrived
}

/// For each rule the index of the first rule with the same action.
fn sharing(service: &Service) -> Vec<usize> {
    let rules: Vec<&RouteRule> = service
        .ports
        .iter()
        .flat_map(ServicePort::all_rules)
        .collect();
    let first = |rule: &&RouteRule| {
        let mut all = rules.iter();
        all.position(|other| Arc::ptr_eq(&other.action, &rule.action))
            .unwrap()
    };
    rules.iter().map(first).collect()
}

/// The check of the object's own invariants.
fn check(resource: &Resource) -> Result<(), String> {
    match resource {
        Resource::MeshSettings(_) | Resource::Address(_) => Ok(()),
        Resource::Node(node) => node.check_invariants(),
        Resource::Policy(policy) => policy.check_invariants(),
        Resource::Workload(workload) => workload.check_invariants(),
        Resource::Service(service) => service.check_invariants(),
        Resource::Endpoint(of) => of.endpoint.check_invariants(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_encoded_is_what_arrives(resource in generate::resource()) {
        prop_assert_eq!(check(&resource), Ok(()));
        arrived(&resource);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rules_share_actions_as_before(service in generate::service()) {
        let before = sharing(&service);
        let Resource::Service(service) = arrived(&Resource::Service(service)) else {
            panic!("another type arrived");
        };
        prop_assert_eq!(sharing(&service), before);
    }
}

fn typical_endpoint() -> EndpointOf {
    EndpointOf {
        service: ServiceName::parse("bookstore/catalog").unwrap(),
        port: 8080,
        endpoint: Endpoint {
            address: "10.244.17.203:8080".parse().unwrap(),
            weight: 1,
            max_requests: None,
            workload: Some(WorkloadName::parse("bookstore/catalog-7d4b9c6f8c-x2x9p").unwrap()),
            remote_workload: None,
            account: Some(ServiceAccountName::parse("bookstore/catalog").unwrap()),
            node: Some(NodeName::parse("ip-10-0-17-203.eu-central-1.compute.internal").unwrap()),
            has_envoy: false,
        },
    }
}

#[test]
fn an_endpoint_is_small() {
    let resource = Resource::Endpoint(typical_endpoint());
    arrived(&resource);
    let (content, name) = (resource.encode().len(), resource.name().len());
    println!("a typical Endpoint: {content} bytes of content, {name} bytes of name");
    assert!(content <= 300 && name <= 100);
}

#[test]
fn the_numbers_of_fields_stay() {
    let mut of = typical_endpoint();
    of.endpoint.workload = Some(WorkloadName::parse("a/w").unwrap());
    of.endpoint.account = Some(ServiceAccountName::parse("a/s").unwrap());
    of.endpoint.node = Some(NodeName::parse("n").unwrap());
    of.endpoint.max_requests = Some(300);
    let expected = b"\x08\x01\x10\xac\x02\x1a\x03a/w\x22\x03a/s\x2a\x01n";
    assert_eq!(Resource::Endpoint(of).encode(), expected[..]);
}

#[test]
fn types_have_urls() {
    for kind in Type::ALL {
        assert_eq!(Type::from_url(kind.type_url()), Some(kind));
        let message = kind.message_name();
        assert_eq!(message, format!("heddle.v1.{kind:?}"));
        assert_eq!(Type::from_url(message), None);
    }
    assert!(Type::ALL.is_sorted());
    assert_eq!(Type::from_url("type.googleapis.com/heddle.v1.Mesh"), None);
}

/// An endpoint on another node carries its workload in the same field.
#[test]
fn an_endpoint_is_the_same_for_every_node() {
    let mut remote = typical_endpoint();
    remote.endpoint.remote_workload = remote.endpoint.workload.take();
    let resource = Resource::Endpoint(remote);
    assert_eq!(
        resource.encode(),
        Resource::Endpoint(typical_endpoint()).encode()
    );
}

#[test]
fn a_backend_keeps_why_it_is_unresolved() {
    let target = BackendTarget::Unresolved {
        reason: String::new(),
    };
    let backend = Backend {
        weight: 0,
        target,
        filters: Default::default(),
    };
    let sent = proto::Backend::from(&backend);
    assert_eq!(Backend::try_from(sent), Ok(backend));
}

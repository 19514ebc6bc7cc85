use super::*;

#[test]
fn an_id_shows_as_it_is_parsed() {
    for text in [
        "spiffe://cluster.local/ns/shop/sa/reviews",
        "spiffe://cluster.local/ns/shop/sa/reviews.v2",
        "spiffe://a/heddle/node/edge-1.site",
        "spiffe://a/heddle/control",
    ] {
        let id = SpiffeId::parse(text).unwrap();
        assert_eq!(id.to_string(), text);
        let name = id.server_name().unwrap();
        assert_eq!(
            SpiffeId::from_server_name(&id.trust_domain, &name),
            Some(id),
            "{name}"
        );
    }
}

#[test]
fn an_envoy_has_an_id_and_no_client_can_ask_for_it() {
    let text = "spiffe://cluster.local/heddle/envoy/shop/web.v2";
    let id = SpiffeId::parse(text).unwrap();
    let workload = WorkloadName::new("shop", "web.v2").unwrap();
    assert_eq!(id, SpiffeId::envoy(TrustDomain::default(), workload));
    assert_eq!(id.to_string(), text);
    assert_eq!((id.server_name(), id.service_account()), (None, None));
}

#[test]
fn what_could_be_another_id_is_none() {
    for text in [
        "",
        "spiffe://",
        "spiffe://cluster.local",
        "spiffe://cluster.local/",
        "SPIFFE://cluster.local/ns/shop/sa/reviews",
        "https://cluster.local/ns/shop/sa/reviews",
        "spiffe://Cluster.local/ns/shop/sa/reviews",
        "spiffe://cluster.local:443/ns/shop/sa/reviews",
        "spiffe://user@cluster.local/ns/shop/sa/reviews",
        "spiffe:///ns/shop/sa/reviews",
        "spiffe://cluster.local/ns/shop/sa/",
        "spiffe://cluster.local/ns/shop/sa/reviews/",
        "spiffe://cluster.local//ns/shop/sa/reviews",
        "spiffe://cluster.local/ns//sa/reviews",
        "spiffe://cluster.local/ns/a.b/sa/reviews",
        "spiffe://cluster.local/ns/shop/sa/../admin",
        "spiffe://cluster.local/ns/shop/sa/reviews?x",
        "spiffe://cluster.local/ns/shop/sa/reviews#x",
        "spiffe://cluster.local/ns/shop/sa/re%76iews",
        "spiffe://cluster.local/ns/shop/sa/a/sa/b",
        "spiffe://cluster.local/heddle/node/",
        "spiffe://cluster.local/heddle/node/a/b",
        "spiffe://cluster.local/heddle/control/",
        "spiffe://cluster.local/heddle/envoy/",
        "spiffe://cluster.local/heddle/envoy/shop",
        "spiffe://cluster.local/heddle/envoy/shop/web/1",
        "spiffe://cluster.local/ns/shop/sa/reviews\0",
    ] {
        assert!(SpiffeId::parse(text).is_err(), "{text:?}");
    }
    let long = format!("spiffe://cluster.local/ns/shop/sa/{}", "a".repeat(3000));
    assert!(SpiffeId::parse(&long).is_err());
}

#[test]
fn a_server_name_of_another_domain_or_form_asks_for_no_identity() {
    let domain = TrustDomain::parse("mesh.example").unwrap();
    for name in [
        "",
        "mesh.example",
        ".mesh.example",
        "reviews.shop.sa.mesh.example.org",
        "reviews.shop.sa.xmesh.example",
        "shop.sa.mesh.example",
        "sa.mesh.example",
        "node.mesh.example",
        "x.control.mesh.example",
        "reviews.shop.other.mesh.example",
        "Reviews.shop.sa.mesh.example",
    ] {
        assert_eq!(SpiffeId::from_server_name(&domain, name), None, "{name:?}");
    }
}

#[test]
fn names_that_tls_cannot_carry_are_known() {
    let domain = TrustDomain::parse("mesh.example").unwrap();
    let label = "a".repeat(63);
    let account = ServiceAccountName::new("shop", &[&*label; 3].join(".")).unwrap();
    assert!(
        SpiffeId::workload(domain.clone(), account)
            .server_name()
            .is_some()
    );
    let account = ServiceAccountName::new(&label, &[&*label; 3].join(".")).unwrap();
    assert_eq!(SpiffeId::workload(domain, account).server_name(), None);
}

#[test]
fn a_node_and_a_workload_are_never_the_same_server() {
    let domain = TrustDomain::parse("d").unwrap();
    let node = SpiffeId::node(domain.clone(), NodeName::parse("x.y.sa").unwrap());
    let name = node.server_name().unwrap();
    assert_eq!(SpiffeId::from_server_name(&domain, &name), Some(node));
}

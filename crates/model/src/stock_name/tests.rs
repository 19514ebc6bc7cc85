use proptest::prelude::*;

use super::*;

fn named(service: &str, port: u16, account: &str) -> StockName {
    StockName {
        service: ServiceName::parse(service).unwrap(),
        port,
        account: ServiceAccountName::parse(account).unwrap(),
    }
}

fn sni(service: &str, port: u16, account: &str) -> Option<String> {
    named(service, port, account).to_sni(&TrustDomain::default())
}

#[test]
fn a_name_has_the_port_the_service_and_the_identity() {
    let domain = TrustDomain::default();
    let text = "80.reviews.v2.shop.svc.rev.iews.ops.sa.cluster.local";
    let name = named("shop/reviews.v2", 80, "ops/rev.iews");
    assert_eq!(name.to_sni(&domain).as_deref(), Some(text));
    assert_eq!(StockName::parse(&domain, text), Some(name.clone()));
    let id = SpiffeId::workload(domain, name.account);
    assert_eq!(StockName::identity_of(text), id.server_name().as_deref());
}

#[test]
fn what_is_no_such_name_is_none() {
    let domain = TrustDomain::default();
    for text in [
        "",
        "reviews.shop.sa.cluster.local",
        "reviews.shop.svc.reviews.shop.sa.cluster.local",
        "80.shop.svc.reviews.shop.sa.cluster.local",
        "0.reviews.shop.svc.reviews.shop.sa.cluster.local",
        "080.reviews.shop.svc.reviews.shop.sa.cluster.local",
        "+80.reviews.shop.svc.reviews.shop.sa.cluster.local",
        "65536.reviews.shop.svc.reviews.shop.sa.cluster.local",
        "80.Reviews.shop.svc.reviews.shop.sa.cluster.local",
        "80.reviews.shop.SVC.reviews.shop.sa.cluster.local",
        "80.reviews.shop.svc.reviews.shop.sa.other.local",
        "80.reviews.shop.svc.reviews.shop.sa.cluster.local.",
        "80.reviews.shop.svc.edge-1.node.cluster.local",
        "80.reviews.shop.svc.control.cluster.local",
        "80..shop.svc.reviews.shop.sa.cluster.local",
        "80.reviews.shop.svc.cluster.local",
        "80.reviews.shop.svc.svc.reviews.shop.cluster.local",
    ] {
        assert_eq!(StockName::parse(&domain, text), None, "{text:?}");
    }
}

#[test]
fn what_would_be_read_as_another_name_has_none() {
    for service in [
        "shop/svc",
        "shop/svc.a",
        "shop/a.svc",
        "shop/a.svc.b",
        "svc/web",
    ] {
        assert_eq!(sni(service, 80, "shop/web"), None, "{service}");
    }
    // In the account it does no harm: the first one counts.
    assert!(sni("shop/web", 80, "shop/a.svc.b").is_some());
    assert_eq!(sni("shop/web", 0, "shop/web"), None);
    // Labels are never longer than in the names, and the whole must fit into a DNS name.
    let long = format!("shop/{}", ["a".repeat(63).as_str(); 3].join("."));
    assert_eq!(sni(&long, 80, &long), None);
    assert!(sni(&long, 80, "s/a").is_some());
}

/// Names of one to three labels, among them the one that has a meaning of its own.
fn name() -> impl Strategy<Value = String> {
    let label =
        prop_oneof![4 => "[a-z0-9]{1,8}", 1 => Just("svc".to_owned()), 1 => Just("sa".to_owned())];
    proptest::collection::vec(label, 1..4).prop_map(|labels| labels.join("."))
}

fn namespace() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z0-9]{1,8}", 1 => Just("svc".to_owned()), 1 => Just("sa".to_owned())]
}

proptest! {
    #[test]
    fn every_name_in_tls_means_what_it_was_made_of(
        (service_in, service) in (namespace(), name()),
        (account_in, account) in (namespace(), name()),
        port: u16,
    ) {
        let domain = TrustDomain::default();
        let name = named(&format!("{service_in}/{service}"), port, &format!("{account_in}/{account}"));
        let sni = name.to_sni(&domain);
        let has_mark = format!("{service}.{service_in}").split('.').any(|label| label == "svc");
        prop_assert_eq!(sni.is_some(), port != 0 && !has_mark);
        if let Some(sni) = sni {
            prop_assert_eq!(StockName::parse(&domain, &sni), Some(name));
        }
    }

    #[test]
    fn what_is_read_is_written_the_same(
        port in "[0-9]{1,6}",
        labels in proptest::collection::vec(namespace(), 2..9),
    ) {
        let domain = TrustDomain::default();
        let text = format!("{port}.{}.sa.cluster.local", labels.join("."));
        if let Some(name) = StockName::parse(&domain, &text) {
            prop_assert_eq!(name.to_sni(&domain), Some(text));
        }
    }
}

#[test]
fn a_gateway_is_asked_for_by_its_account() {
    let domain = TrustDomain::default();
    let account = ServiceAccountName::parse("mesh/gate.way").unwrap();
    let text = "gateway.svc.gate.way.mesh.sa.cluster.local";
    let sni = StockDestination::gateway(&domain, &account);
    assert_eq!(sni.as_deref(), Some(text));
    let read = StockDestination::parse(&domain, text);
    assert_eq!(read, Some(StockDestination::Gateway(account)));
    let port = "80.web.shop.svc.web.shop.sa.cluster.local";
    let name = StockName::parse(&domain, port).unwrap();
    let read = StockDestination::parse(&domain, port);
    assert_eq!(read, Some(StockDestination::Port(name)));
    for text in [
        "gateway.svc.cluster.local",
        "gateway.svc.edge-1.node.cluster.local",
        "gateway.svc.gateway.mesh.sa.other.local",
        "gateway.svc.Gateway.mesh.sa.cluster.local",
        "Gateway.svc.gateway.mesh.sa.cluster.local",
        "gateway.gateway.mesh.sa.cluster.local",
        "gateway.mesh.svc.gateway.mesh.sa.cluster.local",
    ] {
        assert_eq!(StockDestination::parse(&domain, text), None, "{text:?}");
    }
    let long = ServiceAccountName::parse(&format!("mesh/{}", ["a"; 120].join("."))).unwrap();
    assert_eq!(StockDestination::gateway(&domain, &long), None);
}

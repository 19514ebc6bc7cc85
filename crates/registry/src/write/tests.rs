use heddle_compile::registered::sockets;

use super::*;

fn provider() -> Provider {
    Provider {
        key: ProviderKey::new("shop", "reviews", "a").expect("a key"),
        address: "10.0.0.5:9080".parse().expect("an address"),
        port_name: Some("http".to_owned()),
        weight: Some(3),
        max_requests: Some(200),
        service_account: Some("reviews".to_owned()),
        node: Some("edge-1".to_owned()),
        labels: BTreeMap::from([("app".to_owned(), "reviews".to_owned())]),
    }
}

#[test]
fn what_is_written_is_right() {
    assert_eq!(provider().check(), Ok(()));
    let value = provider().value();
    assert_eq!(
        value,
        r#"{"apiVersion":"heddle.dev/v1alpha1","kind":"LocalWorkload","metadata":{"annotations":{"heddle.dev/max-requests":"200"},"labels":{"app":"reviews"}},"spec":{"address":"10.0.0.5","nodeName":"edge-1","ports":[{"name":"http","port":9080}],"serviceAccountName":"reviews","weight":3}}"#
    );
    let plain = Provider {
        port_name: None,
        weight: None,
        max_requests: None,
        service_account: None,
        node: None,
        labels: BTreeMap::new(),
        ..provider()
    };
    assert_eq!(plain.check(), Ok(()));
    let listens = (plain.address.ip(), plain.address.port());
    assert_eq!(sockets(&plain.key, plain.value().as_bytes()), [listens]);
}

#[test]
fn what_would_be_refused_is_refused_before_it_is_written() {
    let label = BTreeMap::from([("heddle.dev/mode".to_owned(), "strict".to_owned())]);
    for wrong in [
        Provider {
            weight: Some(0),
            ..provider()
        },
        Provider {
            max_requests: Some(0),
            ..provider()
        },
        Provider {
            node: Some("A B".to_owned()),
            ..provider()
        },
        Provider {
            service_account: Some("A B".to_owned()),
            ..provider()
        },
        Provider {
            port_name: Some("A B".to_owned()),
            ..provider()
        },
        Provider {
            address: "0.0.0.0:80".parse().expect("an address"),
            ..provider()
        },
        Provider {
            labels: label,
            ..provider()
        },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

#[test]
fn every_address_makes_a_name_of_its_own() {
    let name = |address: &str| Provider::name_of(address.parse().expect("an address"));
    assert_eq!(name("10.0.0.5:9080"), "10-0-0-5-9080");
    assert_eq!(name("[::1]:80"), "v6-0-0-0-0-0-0-0-1-80");
    let longest = name("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
    assert!(heddle_model::is_dns_label(&longest), "{longest}");
}

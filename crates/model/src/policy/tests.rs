use super::*;

#[test]
fn a_policys_name_shows_as_it_is_parsed() {
    for text in ["AuthorizationPolicy shop/web", "TrafficTarget a/b.c"] {
        let name = PolicyName::parse(text).unwrap();
        assert_eq!(name.to_string(), text);
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(serde_json::from_str::<PolicyName>(&json).unwrap(), name);
    }
    for text in [
        "",
        "shop/web",
        "HTTPRoute shop/web",
        "TrafficTarget web",
        "TrafficTarget a/B",
        "TrafficTarget  a/b",
    ] {
        assert!(PolicyName::parse(text).is_err(), "{text}");
    }
}

#[test]
fn sources_are_identities_and_namespaces() {
    let id = |text: &str| SpiffeId::parse(text).unwrap();
    let sources = Sources {
        identities: vec![
            id("spiffe://a.b/ns/n/sa/one"),
            id("spiffe://c.d/ns/n/sa/two"),
        ],
        namespaces: vec![SourceNamespace {
            trust_domain: TrustDomain::parse("a.b").unwrap(),
            namespace: Namespace::parse("all").unwrap(),
        }],
    };
    for (caller, expected) in [
        ("spiffe://a.b/ns/n/sa/one", true),
        ("spiffe://a.b/ns/n/sa/two", false),
        ("spiffe://c.d/ns/n/sa/two", true),
        ("spiffe://a.b/ns/all/sa/any", true),
        ("spiffe://c.d/ns/all/sa/any", false),
        ("spiffe://a.b/heddle/node/all", false),
    ] {
        assert_eq!(sources.contains(Some(&id(caller))), expected, "{caller}");
    }
    assert!(!sources.contains(None));
    assert!(!Sources::default().contains(Some(&id("spiffe://a.b/ns/n/sa/one"))));
}

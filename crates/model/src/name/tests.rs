use super::*;

#[test]
fn labels_and_subdomains() {
    let long = "a".repeat(63);
    let too_long = "a".repeat(64);
    for (text, label, subdomain) in [
        ("reviews", true, true),
        ("reviews-v2", true, true),
        ("2048", true, true),
        (long.as_str(), true, true),
        ("reviews.v2", false, true),
        ("", false, false),
        (too_long.as_str(), false, false),
        ("-a", false, false),
        ("a-", false, false),
        ("a..b", false, false),
        (".a", false, false),
        ("Reviews", false, false),
        ("a_b", false, false),
        ("a/b", false, false),
        ("é", false, false),
    ] {
        assert_eq!(is_dns_label(text), label, "label {text:?}");
        assert_eq!(is_dns_subdomain(text), subdomain, "subdomain {text:?}");
    }
}

#[test]
fn a_namespaced_name_shows_as_it_is_parsed() {
    let name = ServiceName::parse("shop/reviews").unwrap();
    assert_eq!(name, ServiceName::new("shop", "reviews").unwrap());
    assert_eq!(name.to_string(), "shop/reviews");
    assert_eq!(serde_json::to_string(&name).unwrap(), "\"shop/reviews\"");
    assert!(ServiceName::parse("reviews").is_err());
    assert!(ServiceName::parse("a/b/c").is_err());
    assert_eq!(
        WorkloadName::new("Shop", "x").unwrap_err().to_string(),
        "\"Shop\" is no DNS label (a-z, 0-9 and '-', at most 63 characters)"
    );
}

#[test]
fn names_order_by_namespace_first() {
    let mut names = ["b/a", "a/z", "a/b"].map(|n| ServiceName::parse(n).unwrap());
    names.sort();
    assert_eq!(names.map(|n| n.to_string()), ["a/b", "a/z", "b/a"]);
}

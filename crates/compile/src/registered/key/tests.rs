use super::*;

#[test]
fn a_prefix_has_one_slash_at_its_end() {
    for text in ["/heddle/v1", "/heddle/v1/"] {
        assert_eq!(Layout::parse(text), Ok(Layout::default()));
    }
    let long = format!("/{}", "x".repeat(127));
    for text in [
        "", "/", "//", "heddle/", "/a//b", "/a b/", "/ä/", "/a\n", &long,
    ] {
        assert!(Layout::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_key_is_read_as_it_was_written() {
    let layout = Layout::default();
    let key = ProviderKey::new("shop", "reviews", "10-0-0-5-9080").expect("a key");
    let text = layout.key(&key);
    assert_eq!(text, "/heddle/v1/providers/shop/reviews/10-0-0-5-9080");
    assert_eq!(layout.provider(text.as_bytes()), Ok(key.clone()));
    assert_eq!(key.workload(), "reviews.10-0-0-5-9080");
}

#[test]
fn other_keys_say_what_is_wrong() {
    let layout = Layout::default();
    for (key, expected) in [
        (
            &b"/heddle/v1/providers/shop/reviews"[..],
            "SERVICE/PROVIDER",
        ),
        (b"/heddle/v1/providers/shop/reviews/a/b", "SERVICE/PROVIDER"),
        (
            b"/heddle/v1/providers/shop/reviews/",
            "\"\" is no provider's name",
        ),
        (
            b"/heddle/v1/providers/shop/Reviews/a",
            "\"Reviews\" is no Service's name",
        ),
        (b"/heddle/v1/providers/sh.op/reviews/a", "\"sh.op\" is no"),
        (
            b"/heddle/v1/providers/shop/re.views/a",
            "is no Service's name",
        ),
        (b"/heddle/v2/providers/shop/reviews/a", "SERVICE/PROVIDER"),
        (b"\xff\xfe", "SERVICE/PROVIDER"),
        (b"", "SERVICE/PROVIDER"),
    ] {
        let said = layout.provider(key).expect_err("no key").to_string();
        assert!(said.contains(expected), "{said}");
    }
}

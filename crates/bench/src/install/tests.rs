use super::*;

#[test]
fn only_a_clear_yes_or_just_enter_agrees() {
    for yes in ["\n", "y\n", "Yes\n", " Y \n"] {
        assert!(means_yes(yes), "{yes:?}");
    }
    for no in ["n\n", "no\n", "why\n"] {
        assert!(!means_yes(no), "{no:?}");
    }
}

#[test]
fn programs_are_found_where_they_are() {
    assert!(find("sh").is_some());
    assert!(find("no-such-program-anywhere").is_none());
}

#[test]
fn only_a_release_of_envoy_with_boringssl_is_a_peer() {
    assert!(is_release(
        "/opt/envoy  version: 9e558093/1.40.0/Clean/RELEASE/BoringSSL\n"
    ));
    for other in [
        "envoy  version: 9e558093/1.40.0/Clean/DEBUG/BoringSSL",
        "envoy  version: 9e558093/1.40.0/Clean/RELEASE/OpenSSL",
        "",
    ] {
        assert!(!is_release(other), "{other}");
    }
}

use super::*;

#[test]
fn prefixes_match_whole_elements() {
    for (prefix, path, expected) in [
        ("", "/", true),
        ("", "/a", true),
        ("", "*", true),
        ("/a", "/a", true),
        ("/a", "/a/", true),
        ("/a", "/a/b", true),
        ("/a", "/ab", false),
        ("/a", "/", false),
        ("/a/b", "/a", false),
        ("/a", "/A", false),
    ] {
        assert_eq!(
            PathMatch::Prefix(prefix.into()).matches(path),
            expected,
            "{prefix} {path}"
        );
    }
    assert!(PathMatch::Exact("/a".into()).matches("/a"));
    assert!(!PathMatch::Exact("/a".into()).matches("/a/"));
}

/// The table in the Gateway API's documentation of `replacePrefixMatch`.
#[test]
fn a_replaced_prefix_is_what_the_specification_tabulates() {
    for (path, prefix, replacement, expected) in [
        ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
        ("/foo/", "/foo", "/xyz", "/xyz/"),
        ("/foo", "/foo", "/xyz", "/xyz"),
        ("/foo/bar", "/foo", "", "/bar"),
        ("/foo/", "/foo", "", "/"),
        ("/foo", "/foo", "", "/"),
        ("/bar", "", "/xyz", "/xyz/bar"),
    ] {
        let rewrite = PathRewrite::ReplacePrefix(replacement.into());
        let matched = PathMatch::Prefix(prefix.into());
        assert_eq!(rewritten(&rewrite, &matched, path), expected, "{path}");
    }
    let full = PathRewrite::ReplaceFull("/new".into());
    let matched = PathMatch::Exact("/old".into());
    assert_eq!(rewritten(&full, &matched, "/old"), "/new");
}

fn rewritten(rewrite: &PathRewrite, matched: &PathMatch, path: &str) -> String {
    let mut out = Vec::new();
    rewrite.write_to(matched, path.as_bytes(), &mut out);
    String::from_utf8(out).unwrap()
}

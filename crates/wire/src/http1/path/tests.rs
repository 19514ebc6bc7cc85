use proptest::prelude::*;

use super::{Canonical, canonicalise, clean_prefix, is_usual};

/// The canonical path, or the reason code of the refusal.
fn canonical(raw: &[u8], strict: bool) -> Result<String, &'static str> {
    let mut out = b"left over".to_vec();
    match canonicalise(raw, &mut out, strict) {
        Ok(Canonical::Verbatim) => Ok(String::from_utf8(raw.to_vec()).unwrap()),
        Ok(Canonical::Rewritten) => Ok(String::from_utf8(out).unwrap()),
        Err(reject) => Err(reject.code),
    }
}

#[test]
fn a_canonical_path_stays_where_it_is() {
    for path in [
        "/",
        "/a",
        "/a/b.c/-_~!$&'()*+,;=:@",
        "/%2A/%C3%A9",
        "/a..b/.c",
        "/...",
    ] {
        for strict in [false, true] {
            let mut out = Vec::new();
            assert_eq!(
                canonicalise(path.as_bytes(), &mut out, strict),
                Ok(Canonical::Verbatim)
            );
        }
    }
}

#[test]
fn one_form_with_and_without_a_path_rule() {
    type Expected = Result<&'static str, &'static str>;
    let cases: &[(&str, Expected, Expected)] = &[
        // Input; expected without a rule; expected with a rule.
        ("", Ok("/"), Ok("/")),
        ("/%41%7a%30%2d%5F%7e%2E", Ok("/Az0-_~."), Ok("/Az0-_~.")),
        ("/%c3%a9", Ok("/%C3%A9"), Ok("/%C3%A9")),
        ("/%3f%23%25", Ok("/%3F%23%25"), Ok("/%3F%23%25")),
        (
            "/{}|^`\"<>[]",
            Ok("/%7B%7D%7C%5E%60%22%3C%3E%5B%5D"),
            Ok("/%7B%7D%7C%5E%60%22%3C%3E%5B%5D"),
        ),
        ("//a//b/", Ok("//a//b/"), Ok("/a/b/")),
        ("/a%2fb", Ok("/a%2Fb"), Err("encoded_separator")),
        ("/a%5cb", Ok("/a%5Cb"), Err("encoded_separator")),
        ("/a/../b", Ok("/a/../b"), Err("dot_segment")),
        ("/a/%2e%2e", Ok("/a/.."), Err("dot_segment")),
        ("/a/.;x/b", Ok("/a/.;x/b"), Err("dot_segment")),
        ("/a//../b", Ok("/a//../b"), Err("dot_segment")),
        ("/a/..%3bx/b", Ok("/a/..%3Bx/b"), Err("dot_segment")),
        ("/a/.%3B", Ok("/a/.%3B"), Err("dot_segment")),
        ("/;x/a", Ok("/;x/a"), Err("dot_segment")),
        ("/a/%3b/b", Ok("/a/%3B/b"), Err("dot_segment")),
        ("/;/;/", Ok("/;/;/"), Err("dot_segment")),
        // Parameters after a name, or after the trailing slash of a directory, are harmless.
        ("/a;x/b%3by", Ok("/a;x/b%3By"), Ok("/a;x/b%3By")),
        ("/a/;session=1", Ok("/a/;session=1"), Ok("/a/;session=1")),
        ("/a\\b", Err("backslash"), Err("backslash")),
        ("/%", Err("malformed_percent"), Err("malformed_percent")),
        ("/%a", Err("malformed_percent"), Err("malformed_percent")),
        ("/%g0", Err("malformed_percent"), Err("malformed_percent")),
        ("/%0A", Err("encoded_control"), Err("encoded_control")),
        ("/%7f", Err("encoded_control"), Err("encoded_control")),
        ("/a\x01", Err("control_character"), Err("control_character")),
        ("/a b\u{e9}", Ok("/a%20b%C3%A9"), Ok("/a%20b%C3%A9")),
        ("a", Err("path_not_absolute"), Err("path_not_absolute")),
        ("*", Err("path_not_absolute"), Err("path_not_absolute")),
    ];
    for (raw, loose, strict) in cases {
        assert_eq!(
            canonical(raw.as_bytes(), false),
            loose.map(String::from),
            "{raw}"
        );
        assert_eq!(
            canonical(raw.as_bytes(), true),
            strict.map(String::from),
            "{raw}"
        );
    }
}

/// Paths of all lengths up to a few steps, with each byte at each place after each other byte.
#[test]
fn what_is_usual_is_clean() {
    for length in 1..40 {
        for at in 1..length {
            for byte in 0..=255 {
                for before in [b'a', b'/', b'.', b'-'] {
                    let mut path = vec![b'a'; length];
                    path[at - 1] = before;
                    path[0] = b'/';
                    path[at] = byte;
                    if is_usual(&path) {
                        assert_eq!(clean_prefix(&path, true), None, "{}", path.escape_ascii());
                    }
                }
            }
        }
    }
    assert!(is_usual(b"/api/v1.2/some_items/7-a/x.html"));
    assert!(!is_usual(b"api/v1.2/some_items/7-a/x.html"));
}

/// Decodes all percent-encodings: the meaning of the path.
fn meaning(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).unwrap();
            out.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &rest[2..];
        } else {
            out.push(*byte);
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_canonical_form_is_one_and_means_the_same(
        raw in "/([a-c./;{]|%[0-9a-fA-F]{2}|%2[eEfF]|/){0,12}",
        strict in any::<bool>(),
    ) {
        if let Ok(first) = canonical(raw.as_bytes(), strict) {
            prop_assert_eq!(canonical(first.as_bytes(), strict), Ok(first.clone()), "a fixed point");
            if !strict {
                prop_assert_eq!(meaning(raw.as_bytes()), meaning(first.as_bytes()));
            } else {
                prop_assert!(!first.contains("//") && !first.contains("%2F"));
                prop_assert!(!first.split('/').any(|segment| segment == "." || segment == ".."));
            }
        }
    }

    #[test]
    fn two_spellings_of_one_path_become_one(path in "/[a-z._~/-]{0,12}", encode in any::<u64>()) {
        let spelt: String = path
            .char_indices()
            .map(|(at, letter)| match letter {
                '/' => letter.to_string(),
                _ if encode >> at & 1 == 0 => letter.to_string(),
                _ if encode >> (at + 20) & 1 == 0 => format!("%{:02x}", letter as u32),
                _ => format!("%{:02X}", letter as u32),
            })
            .collect();
        for strict in [false, true] {
            prop_assert_eq!(canonical(spelt.as_bytes(), strict), canonical(path.as_bytes(), strict));
        }
    }
}

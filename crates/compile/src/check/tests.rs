use heddle_wire::http1::path::{Canonical, canonicalise};
use proptest::prelude::*;

use super::*;

/// Pairs of good values and results, and of bad values and part of the reason.
fn table<T: std::fmt::Debug + PartialEq>(
    check: impl Fn(&str) -> Result<T, Flaw>,
    good: &[(&str, T)],
    bad: &[(&str, &str)],
) {
    for (text, expected) in good {
        assert_eq!(check(text).as_ref(), Ok(expected), "{text:?}");
    }
    for (text, reason) in bad {
        match check(text) {
            Ok(value) => panic!("{text:?} was taken as {value:?}"),
            Err(flaw) => assert!(flaw.reason.contains(reason), "{text:?}: {}", flaw.reason),
        }
    }
}

#[test]
fn durations() {
    table(
        duration_ms,
        &[
            ("0s", 0),
            ("10s", 10_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1h1m1s1ms", 3_661_001),
            ("99999h", 359_996_400_000),
            ("1s1s", 2_000),
        ],
        &[
            ("", "no duration"),
            ("10", "no duration"),
            ("s", "no duration"),
            ("1.5s", "no duration"),
            ("-1s", "no duration"),
            ("100000s", "no duration"),
            ("1s1s1s1s1s", "no duration"),
            ("1 s", "no duration"),
            ("1d", "no duration"),
            ("1S", "no duration"),
            ("é1s", "no duration"),
            ("1µs", "no duration"),
        ],
    );
}

#[test]
fn timestamps() {
    table(
        timestamp,
        &[
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696),
            ("2024-05-01T12:00:00Z", 1_714_564_800),
            ("2024-05-01T14:00:00+02:00", 1_714_564_800),
            ("2024-05-01T10:30:00-01:30", 1_714_564_800),
            ("2024-05-01T12:00:00.123456Z", 1_714_564_800),
            ("1969-12-31T23:59:59Z", -1),
        ],
        &[
            ("", "no time"),
            ("2024-05-01", "no time"),
            ("2023-02-29T00:00:00Z", "no time"),
            ("2024-13-01T00:00:00Z", "no time"),
            ("2024-00-01T00:00:00Z", "no time"),
            ("2024-05-01T24:00:00Z", "no time"),
            ("2024-05-01T12:00:00", "no time"),
            ("2024-05-01T12:00:00.Z", "no time"),
            ("2024-05-01T12:00:00+0200", "no time"),
            ("2024-05-01T12:00:00+é9:0", "no time"),
            ("+024-05-01T12:00:00Z", "no time"),
        ],
    );
}

#[test]
fn prefixes() {
    let prefix = str::to_owned;
    table(
        path_prefix,
        &[
            ("/", prefix("")),
            ("/a", prefix("/a")),
            ("/a/", prefix("/a")),
            ("/%7Euser", prefix("/~user")),
            ("/a%3ab", prefix("/a%3Ab")),
            ("/a:b@c", prefix("/a:b@c")),
            ("/...", prefix("/...")),
        ],
        &[
            ("", "no absolute path"),
            ("a", "no absolute path"),
            ("//", "'//'"),
            ("/a//b", "'//'"),
            ("/a/./b", "'..'"),
            ("/a/..", "'..'"),
            ("/a/%2e%2E/b", "'..'"),
            ("/a%2fb", "escaped slash"),
            ("/a/..%3bx", "'..'"),
            ("/;x/", "only parameters"),
            ("/a/%3Bx/b", "only parameters"),
            ("/a%00", "control"),
            ("/a%1f", "control"),
            ("/a%5cb", "backslash"),
            ("/a/..;x/b", "'..'"),
            ("/a?b", "more than a path"),
            ("/a#b", "more than a path"),
            ("/a b", "character"),
            ("/é", "character"),
            ("/%", "character"),
            ("/%g0", "character"),
            ("/%+1", "character"),
            ("/a\nb", "character"),
        ],
    );
    assert!(path_prefix(&format!("/{}", "a".repeat(1024))).is_err());
    assert_eq!(replacement_prefix(""), Ok(String::new()));
    assert_eq!(replacement_prefix("/"), Ok(String::new()));
    assert_eq!(replacement_prefix("/x/"), Ok("/x".to_owned()));
    assert!(replacement_prefix("x").is_err());
    assert_eq!(exact_path("/a/"), Ok("/a/".to_owned()));
    assert_eq!(full_path("/"), Ok("/".to_owned()));
}

#[test]
fn names_of_edited_headers() {
    let request = |name: &str| edit_name(name, Direction::Request);
    table(
        request,
        &[("x-version", ()), ("X-Version", ()), ("set-cookie", ())],
        &[
            ("", "no name of a header"),
            ("x version", "no name of a header"),
            ("x:y", "no name of a header"),
            (":path", "no name of a header"),
            ("x\r\ny", "no name of a header"),
            ("Connection", "belongs to the connection"),
            ("transfer-encoding", "belongs to the connection"),
            ("Content-Length", "belongs to the connection"),
            ("Content_Length", "belongs to the connection"),
            ("TE", "belongs to the connection"),
            ("Host", "Host"),
            ("X-Forwarded-For", "where a request came from"),
            ("X.Forwarded_For", "where a request came from"),
            ("X-Heddle-Caller", "proxies tell each other"),
            ("x_heddle.caller", "proxies tell each other"),
            ("x-heddle-original-dst", "proxies tell each other"),
        ],
    );
    assert!(edit_name("x-forwarded-for", Direction::Response).is_ok());
    assert!(edit_name("upgrade", Direction::Response).is_err());
    assert!(edit_name("x-heddle-caller", Direction::Response).is_err());
    assert!(policy_header("X_Heddle_Caller").is_err());
    assert!(policy_header("x-heddle-callers").is_ok());
}

#[test]
fn values_of_headers() {
    table(
        edit_value,
        &[("a", ()), ("a b\tc", ()), ("~!", ())],
        &[
            ("", "empty"),
            ("a\r\nb: c", "character"),
            ("a\0", "character"),
            ("\u{7f}", "character"),
            ("é", "character"),
            (" a", "space"),
            ("a\t", "space"),
        ],
    );
    assert!(edit_value(&"a".repeat(4097)).is_err());
}

#[test]
fn hosts_and_addresses() {
    table(
        hostname,
        &[
            ("example.com", "example.com".to_owned()),
            ("a", "a".to_owned()),
        ],
        &[
            ("1.2.3.4", "IP address"),
            ("::1", "IP address"),
            ("*.example.com", "no host name"),
            ("Example.com", "no host name"),
            ("example.com:80", "no host name"),
            ("", "no host name"),
        ],
    );
    let address = |text: &str| endpoint_address(text).map(|address| address.to_string());
    table(
        address,
        &[
            ("127.1.0.1", "127.1.0.1".to_owned()),
            ("::1", "::1".to_owned()),
        ],
        &[
            ("localhost", "no IP address"),
            ("127.0.0.1:80", "no IP address"),
            ("0.0.0.0", "a single host"),
            ("::", "a single host"),
            ("224.0.0.1", "a single host"),
            ("255.255.255.255", "a single host"),
            ("127.1", "no IP address"),
        ],
    );
    assert_eq!(port(65_535), Ok(65_535));
    assert!(port(0).is_err() && port(65_536).is_err() && port(-1).is_err());
}

/// Paths made of pieces that path rules have to handle.
fn path_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "//", ".", "..", "a", "~", "%7e", "%7E", "%2f", "%2e", "%5c", "%00", "%1F", "%7f",
        "%c3%A9", "%", "%4", ";x", ";", "%3b", "%3B", "\\", "?", "#", " ", "é", "\0", "@", ":",
        "%25", "%252e",
    ]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// A mesh that requires a canonical path.
fn asks_for(path: String) -> heddle_model::Mesh {
    let probe = heddle_model::Probe {
        port: 80,
        path: Some(path),
        query: String::new(),
    };
    let workload = heddle_model::Workload {
        qos: Default::default(),
        name: heddle_model::WorkloadName::parse("a/w").unwrap(),
        labels: Default::default(),
        service_account: heddle_model::ServiceAccountName::parse("a/default").unwrap(),
        address: [127, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: heddle_model::Mode::Strict,
        policies: Vec::new(),
        probes: vec![probe],
        proxy: heddle_model::Proxy::Node,
        command: None,
    };
    heddle_model::Mesh {
        workloads: [workload.into()].into(),
        ..Default::default()
    }
}

proptest! {
    /// A rule's path is in the canonical form of request paths. Otherwise the rule could never match, or would match a
    /// path that the server interprets differently.
    #[test]
    fn a_rules_path_is_canonical(text in path_text()) {
        if let Ok(path) = exact_path(&text) {
            let canonical = canonicalise(path.as_bytes(), &mut Vec::new(), true);
            prop_assert!(matches!(canonical, Ok(Canonical::Verbatim)), "{text} {path} {canonical:?}");
            prop_assert_eq!(asks_for(path).check_invariants(), Ok(()), "{}", text);
        }
    }
}

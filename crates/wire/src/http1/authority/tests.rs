use super::{Authority, canonicalise};

fn canonical(raw: &str) -> Result<(String, Authority), &'static str> {
    let mut out = b"left over".to_vec();
    let authority = canonicalise(raw.as_bytes(), 80, &mut out).map_err(|reject| reject.code)?;
    Ok((String::from_utf8(out).unwrap(), authority))
}

#[test]
fn every_spelling_becomes_one() {
    for (raw, text, host, port) in [
        ("shop", "shop", "shop", None),
        ("SHOP", "shop", "shop", None),
        ("shop.", "shop", "shop", None),
        ("shop:80", "shop", "shop", None),
        ("Shop.:8080", "shop:8080", "shop", Some(8080)),
        (
            "my_shop-2.ns.svc.cluster.local",
            "my_shop-2.ns.svc.cluster.local",
            "my_shop-2.ns.svc.cluster.local",
            None,
        ),
        ("10.0.0.1:1", "10.0.0.1:1", "10.0.0.1", Some(1)),
        ("10.0.0.1.", "10.0.0.1", "10.0.0.1", None),
        ("shop:65535", "shop:65535", "shop", Some(65535)),
        ("[::1]", "[::1]", "[::1]", None),
        ("[0:0::0:1]:80", "[::1]", "[::1]", None),
        ("[FE80::A]:81", "[fe80::a]:81", "[fe80::a]", Some(81)),
        (
            "[::ffff:10.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[::ffff:10.0.0.1]",
            None,
        ),
        ("1shop", "1shop", "1shop", None),
        ("0xyz", "0xyz", "0xyz", None),
        ("7.shop", "7.shop", "7.shop", None),
    ] {
        let (out, authority) = canonical(raw).unwrap_or_else(|code| panic!("{raw}: {code}"));
        assert_eq!(
            (out.as_str(), &out[..authority.host_len]),
            (text, host),
            "{raw}"
        );
        assert_eq!(
            (authority.port, authority.changed),
            (port, raw != text),
            "{raw}"
        );
        assert_eq!(
            canonical(text).map(|(out, _)| out),
            Ok(text.to_owned()),
            "a fixed point"
        );
    }
}

#[test]
fn what_has_no_clear_meaning_is_refused() {
    let long = "a".repeat(254);
    for (raw, code) in [
        ("", "empty_host"),
        (":80", "empty_host"),
        (".", "malformed_host"),
        (".shop", "malformed_host"),
        ("a..b", "malformed_host"),
        ("a b", "malformed_host"),
        ("a/b", "malformed_host"),
        ("a%41", "malformed_host"),
        ("a,b", "malformed_host"),
        ("1.2.3", "malformed_host"),
        ("1.2.3.4.5", "malformed_host"),
        ("1.2.3.256", "malformed_host"),
        ("01.2.3.4", "malformed_host"),
        ("a.0x1", "malformed_host"),
        ("a.12", "malformed_host"),
        (&long, "malformed_host"),
        ("[::1", "malformed_host"),
        ("[::1]x", "malformed_host"),
        ("[::1]@a", "userinfo"),
        ("[]", "malformed_host"),
        ("[1.2.3.4]", "malformed_host"),
        ("[v1.x]", "malformed_host"),
        ("[fe80::1%eth0]", "malformed_host"),
        ("::1", "malformed_port"),
        ("a@b", "userinfo"),
        ("a:1@b", "userinfo"),
        ("a:", "malformed_port"),
        ("a:0", "malformed_port"),
        ("a:+1", "malformed_port"),
        ("a:01", "malformed_port"),
        ("a:65536", "malformed_port"),
        ("a:123456", "malformed_port"),
        ("a:1:2", "malformed_port"),
        ("[::1]:", "malformed_port"),
    ] {
        assert_eq!(canonical(raw).map(|(out, _)| out), Err(code), "{raw}");
    }
}

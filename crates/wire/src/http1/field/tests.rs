use super::{FieldKind, same_name};

#[test]
fn every_name_is_known_in_any_case() {
    let known: &[(&str, FieldKind)] = &[
        ("Authorization", FieldKind::Authorization),
        ("Connection", FieldKind::Connection),
        ("Content-Length", FieldKind::ContentLength),
        ("Cookie", FieldKind::Cookie),
        ("Expect", FieldKind::Expect),
        ("Forwarded", FieldKind::Forwarded),
        ("Heddle-Reason", FieldKind::HeddleReason),
        ("Host", FieldKind::Host),
        ("X-Heddle-Caller", FieldKind::HeddleCaller),
        ("X_Heddle_Caller", FieldKind::HeddleCaller),
        ("HTTP2-Settings", FieldKind::Http2Settings),
        ("Keep-Alive", FieldKind::KeepAlive),
        ("Proxy-Authenticate", FieldKind::ProxyAuthenticate),
        (
            "Proxy-Authentication-Info",
            FieldKind::ProxyAuthenticationInfo,
        ),
        ("Proxy-Authorization", FieldKind::ProxyAuthorization),
        ("Proxy-Connection", FieldKind::ProxyConnection),
        ("Set-Cookie", FieldKind::SetCookie),
        ("TE", FieldKind::Te),
        ("Trailer", FieldKind::Trailer),
        ("Transfer-Encoding", FieldKind::TransferEncoding),
        ("Upgrade", FieldKind::Upgrade),
        ("X-Forwarded-Client-Cert", FieldKind::XForwardedClientCert),
        ("X-Forwarded-For", FieldKind::XForwardedFor),
        ("X-Forwarded-Host", FieldKind::XForwardedHost),
        ("X-Forwarded-Port", FieldKind::XForwardedPort),
        ("X-Forwarded-Prefix", FieldKind::XForwardedOther),
        ("X-Forwarded-Proto", FieldKind::XForwardedProto),
        ("X-Real-IP", FieldKind::XRealIp),
        ("X_Forwarded_For", FieldKind::XForwardedFor),
        ("X_Real_IP", FieldKind::XRealIp),
        ("X.Real.IP", FieldKind::XRealIp),
        ("X.Forwarded.For", FieldKind::XForwardedFor),
        ("X~Forwarded_Prefix", FieldKind::XForwardedOther),
        ("X-Forwarded-Client.Cert", FieldKind::XForwardedClientCert),
        ("Heddle_Reason", FieldKind::HeddleReason),
        ("Keep_Alive", FieldKind::KeepAlive),
        ("Set.Cookie", FieldKind::SetCookie),
        ("Content_Length", FieldKind::FramingAlias),
        ("Content.Length", FieldKind::FramingAlias),
        ("Transfer_Encoding", FieldKind::FramingAlias),
        ("Transfer.Encoding", FieldKind::FramingAlias),
        ("Transfer~Encoding", FieldKind::FramingAlias),
    ];
    for (name, kind) in known {
        assert_eq!(FieldKind::of(name.as_bytes()), *kind, "{name}");
        assert_eq!(
            FieldKind::of(name.to_lowercase().as_bytes()),
            *kind,
            "{name}"
        );
        assert_eq!(
            FieldKind::of(name.to_uppercase().as_bytes()),
            *kind,
            "{name}"
        );
    }
}

#[test]
fn a_near_miss_is_just_another_field() {
    for name in [
        "",
        "T",
        "Hosts",
        "Hoss",
        "xost",
        "Content-Lengths",
        "Content-Lengtg",
        "XContent-Length",
        "X-Forwarded",
        "X-Forwarded-",
        "X-Forwardedxfor",
        "Keep9Alive",
        "ContentxLength",
        "ETag",
        "Accept",
        "X-Request-Id",
        "X-Forward-For-Me",
        "X-Custom-Field-Name",
    ] {
        assert_eq!(FieldKind::of(name.as_bytes()), FieldKind::Other, "{name}");
    }
}

#[test]
fn names_are_the_same_whatever_stands_between_their_words() {
    for (one, other) in [("x-role", "X_Role"), ("x.role", "X-ROLE"), ("a1", "A1")] {
        assert!(same_name(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
    for (one, other) in [
        ("x-role", "xrole"),
        ("x-role", "x-rule"),
        ("x-role", "x-role-"),
    ] {
        assert!(
            !same_name(one.as_bytes(), other.as_bytes()),
            "{one} {other}"
        );
    }
}

#[test]
fn what_connection_may_not_name_is_so_in_every_spelling() {
    assert!(FieldKind::of(b"x_forwarded_for").is_protected());
    assert!(!FieldKind::Te.is_protected());
}

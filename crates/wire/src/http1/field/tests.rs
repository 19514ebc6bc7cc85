use super::FieldKind;

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
        ("Content_Length", FieldKind::FramingAlias),
        ("Transfer_Encoding", FieldKind::FramingAlias),
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
        "Keep_Alive",
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
fn protected_fields_are_forbidden_as_trailers() {
    assert!(FieldKind::ContentLength.is_forbidden_trailer());
    assert!(FieldKind::XForwardedFor.is_forbidden_trailer());
    assert!(FieldKind::Trailer.is_forbidden_trailer());
    assert!(!FieldKind::Other.is_forbidden_trailer());
    assert!(!FieldKind::Te.is_protected());
}

//! A canonical authority is its own canonical form, and the standard library parses it to the same address.

use std::net::IpAddr;

use heddle_wire::http1::authority::canonicalise;

/// Checks one input.
pub fn check(raw: &[u8]) {
    let mut out = Vec::new();
    let Ok(authority) = canonicalise(raw, 80, &mut out) else {
        return;
    };
    assert_eq!(authority.changed, out != raw);
    let text = std::str::from_utf8(&out).expect("ASCII");
    assert!(
        text.bytes()
            .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
    );
    let (host, port) = text.split_at(authority.host_len);
    assert_eq!(
        port,
        authority
            .port
            .map(|port| format!(":{port}"))
            .unwrap_or_default()
    );
    assert_ne!(authority.port, Some(80));
    match host.strip_prefix('[') {
        Some(inner) => {
            let address: IpAddr = inner
                .strip_suffix(']')
                .unwrap()
                .parse()
                .expect("an address");
            assert!(address.is_ipv6());
        }
        None => {
            let last = host.rsplit('.').next().unwrap();
            if last.bytes().all(|byte| byte.is_ascii_digit()) {
                assert!(
                    host.parse::<IpAddr>()
                        .is_ok_and(|address| address.is_ipv4())
                );
            }
            assert!(!host.split('.').any(str::is_empty));
        }
    }
    let mut again = Vec::new();
    let second = canonicalise(&out, 80, &mut again).expect("canonical");
    assert_eq!((second.changed, &again), (false, &out));
}

//! Whose address the proxy may speak with towards a pod's program.

use std::net::{IpAddr, SocketAddr};

use crate::Family;

/// The first port that is anybody's. Whoever speaks from a lower one is some host's root to old protocols
/// (RFC 1282), and honest programs are content with another.
const FIRST_PORT: u16 = 1_024;

/// Whether an address may be that of a client on another host. Loopback and link-local addresses (RFC 3927,
/// RFC 4291) mean this host or this link, groups and broadcasts nobody who calls, and IPv4 within IPv6 is what
/// the other family is for.
fn is_of_another_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            // "This network" (RFC 1122, section 3.2.1.3), of which 0.0.0.0 is one.
            address.octets()[0] != 0
                && !address.is_loopback()
                && !address.is_link_local()
                && !address.is_multicast()
                && !address.is_broadcast()
        }
        // `::` and `::1` are among those that look like IPv4.
        IpAddr::V6(address) => {
            address.to_ipv4().is_none()
                && !address.is_unicast_link_local()
                && !address.is_multicast()
        }
    }
}

/// Whether a socket in the namespace of a pod with these addresses may speak with `source`: with a client's
/// address that is not the pod's, and a port of it, or any (0).
pub(crate) fn may_speak_as(source: SocketAddr, family: Family, own: &[IpAddr]) -> bool {
    let port = source.port();
    Family::of(source) == family
        && (port == 0 || port >= FIRST_PORT)
        && is_of_another_host(source.ip())
        && !own.contains(&source.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_speaks_as_clients_and_as_nobody_else() {
        let own = ["10.1.0.2".parse().unwrap(), "fd10::2".parse().unwrap()];
        for (source, family, is_right) in [
            ("10.1.0.3:40000", Family::V4, true),
            ("10.1.0.3:0", Family::V4, true),
            ("203.0.113.7:1024", Family::V4, true),
            ("[fd10::3]:40000", Family::V6, true),
            ("[2001:db8::1]:0", Family::V6, true),
            ("10.1.0.3:1023", Family::V4, false),
            ("10.1.0.3:22", Family::V4, false),
            ("10.1.0.3:40000", Family::V6, false),
            ("[fd10::3]:40000", Family::V4, false),
            ("10.1.0.2:40000", Family::V4, false),
            ("[fd10::2]:40000", Family::V6, false),
            ("127.0.0.1:40000", Family::V4, false),
            ("127.8.0.1:0", Family::V4, false),
            ("0.0.0.0:40000", Family::V4, false),
            ("0.1.2.3:40000", Family::V4, false),
            ("169.254.0.1:40000", Family::V4, false),
            ("224.0.0.1:40000", Family::V4, false),
            ("239.255.255.255:40000", Family::V4, false),
            ("255.255.255.255:40000", Family::V4, false),
            ("[::]:40000", Family::V6, false),
            ("[::1]:40000", Family::V6, false),
            ("[::ffff:10.1.0.3]:40000", Family::V6, false),
            ("[::ffff:127.0.0.1]:40000", Family::V6, false),
            ("[::ffff:10.1.0.3]:40000", Family::V4, false),
            ("[fe80::1]:40000", Family::V6, false),
            ("[ff02::1]:40000", Family::V6, false),
        ] {
            let source: SocketAddr = source.parse().unwrap();
            assert_eq!(may_speak_as(source, family, &own), is_right, "{source}");
        }
    }
}

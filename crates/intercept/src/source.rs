//! Whose address the proxy may speak with towards a pod's program, and what a program sees where it is no client's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, getsockname, ipproto, socket_with,
};

use crate::Family;

/// The first port that any user may take. Old protocols take a client with a lower one for its host's root
/// (RFC 1282), and honest programs are content with another.
const FIRST_PORT: u16 = 1_024;

/// Addresses that no host has: the dummy address of IPv4 (RFC 7600, section 4.8), and one of the prefix for what is
/// thrown away (RFC 6666).
const DUMMY: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 0, 8),
    Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1),
);
/// Any port will do to ask for a route: nothing is sent.
const DISCARD: u16 = 9;

/// Whether an address may be that of a client on another host. Loopback and link-local addresses (RFC 3927,
/// RFC 4291) mean this host or this link, groups and broadcasts no caller, and IPv4 within IPv6 is what
/// the other family is for.
pub fn is_of_another_host(address: IpAddr) -> bool {
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

/// The address with which this node itself would speak to a pod that has the address `to`, as the kernel chooses it;
/// `None` where it has none of that family that means anything within the pod.
pub fn node_address(to: IpAddr) -> Option<IpAddr> {
    let chosen = route_source(to).inspect_err(|error| {
        tracing::debug!(%to, %error, "this node has no address of that family");
    });
    let chosen = chosen.ok()?;
    // What calls itself is the pod: this is its own namespace.
    Some(chosen).filter(|chosen| *chosen != to && is_of_another_host(*chosen))
}

/// An address of the family of `to` that is neither the pod's nor of any host: for a program that must not take a
/// client for its own machine where nothing better is known.
pub fn dummy_address(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(_) => DUMMY.0.into(),
        IpAddr::V6(_) => DUMMY.1.into(),
    }
}

/// Connecting a datagram socket sends nothing, and has the kernel choose.
fn route_source(to: IpAddr) -> io::Result<IpAddr> {
    let family = match to {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    connect(&socket, &SocketAddr::new(to, DISCARD))?;
    Ok(SocketAddr::try_from(getsockname(&socket)?)?.ip())
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
    fn a_proxy_speaks_with_the_addresses_of_clients_and_no_others() {
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

    #[test]
    fn a_node_is_seen_by_an_address_of_its_own_or_not_at_all() {
        // This machine is the pod.
        for own in ["127.0.0.1", "127.30.0.9", "::1"] {
            assert_eq!(node_address(own.parse().unwrap()), None, "{own}");
        }
        for family in ["10.1.0.2", "fd10::2"] {
            let to: IpAddr = family.parse().unwrap();
            let dummy = dummy_address(to);
            assert!(is_of_another_host(dummy), "{dummy}");
            assert_eq!(dummy.is_ipv4(), to.is_ipv4());
            let node = node_address(to);
            assert!(node.is_none_or(is_of_another_host), "{node:?}");
        }
    }
}

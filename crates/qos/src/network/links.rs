//! Interfaces: by name, by the pod at their other end, and what they have carried.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::kernel::{Link, LinkBytes};
use super::netlink::{Netlink, Request, attribute, long, number, text};

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_NAMESPACE_ID: u16 = 88;
const GET_NAMESPACE_ID: u16 = 90;
const NEW_STATISTICS: u16 = 92;
const GET_STATISTICS: u16 = 94;

/// Bytes of `struct ifinfomsg`.
const INFO: usize = 16;
/// Attributes of an interface (include/uapi/linux/if_link.h).
const NAME: u16 = 3;
const ABOUT: u16 = 18;
const ABOUT_KIND: u16 = 1;
const EXTENSIONS: u16 = 29;
const PEER_NAMESPACE: u16 = 37;
/// Answers without counters, which make them long.
const NO_COUNTERS: u32 = 1 << 3;
/// Attributes of the id of a namespace (include/uapi/linux/net_namespace.h).
const ID: u16 = 1;
const DESCRIPTOR: u16 = 3;
/// Counters of 64 bits, as a bit of the question and as an attribute of the answer.
const COUNTERS: u16 = 1;
const WITH_COUNTERS: u32 = 1;
/// Where in `struct rtnl_link_stats64` the bytes are.
const BYTES_RECEIVED: usize = 16;
const BYTES_SENT: usize = 24;

/// The interface of a name.
///
/// # Errors
/// `NotFound`, or what the kernel says.
pub(super) fn by_name(netlink: &mut Netlink, name: &str) -> io::Result<Link> {
    let request = Request::new(GET_LINK, 0, &[0; INFO])
        .with_text(NAME, name)
        .with(EXTENSIONS, &NO_COUNTERS.to_ne_bytes());
    netlink.get(request, NEW_LINK, link)
}

/// The ends in this namespace of veth pairs whose other ends are in another one, with the id of that.
///
/// # Errors
/// What the kernel says.
pub(super) fn pairs(netlink: &mut Netlink) -> io::Result<Vec<(u32, Link)>> {
    let mut found = Vec::new();
    let request =
        Request::new(GET_LINK, 0, &[0; INFO]).with(EXTENSIONS, &NO_COUNTERS.to_ne_bytes());
    netlink.all(request, |body| {
        let attributes = body.get(INFO..).unwrap_or_default();
        let about = attribute(attributes, ABOUT).unwrap_or_default();
        let is_veth = attribute(about, ABOUT_KIND).map(text).as_deref() == Some("veth");
        let peer = attribute(attributes, PEER_NAMESPACE).and_then(|value| number(value, 0));
        if is_veth && let Some(peer) = peer {
            found.extend(link(body).map(|link| (peer, link)));
        }
    })?;
    Ok(found)
}

/// The id by which this namespace calls another one; none if no interface here has its other end there, since the kernel
/// numbers a namespace when it tells of the first.
///
/// # Errors
/// What the kernel says.
pub(super) fn namespace_id(
    netlink: &mut Netlink,
    other: BorrowedFd<'_>,
) -> io::Result<Option<u32>> {
    let descriptor = other.as_raw_fd().to_ne_bytes();
    let request = Request::new(GET_NAMESPACE_ID, 0, &[0; 4]).with(DESCRIPTOR, &descriptor);
    let id = netlink.get(request, NEW_NAMESPACE_ID, |body| {
        number(attribute(body.get(4..)?, ID)?, 0)
    })?;
    Ok((id.cast_signed() >= 0).then_some(id))
}

/// What an interface has carried.
///
/// # Errors
/// `NotFound`, or what the kernel says.
pub(super) fn bytes(netlink: &mut Netlink, index: u32) -> io::Result<LinkBytes> {
    let mut fixed = [0; 12];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..].copy_from_slice(&WITH_COUNTERS.to_ne_bytes());
    let request = Request::new(GET_STATISTICS, 0, &fixed);
    netlink.get(request, NEW_STATISTICS, |body| {
        let counters = attribute(body.get(12..)?, COUNTERS)?;
        Some(LinkBytes {
            received: long(counters, BYTES_RECEIVED)?,
            sent: long(counters, BYTES_SENT)?,
        })
    })
}

fn link(body: &[u8]) -> Option<Link> {
    Some(Link {
        index: number(body, 4)?,
        name: text(attribute(body.get(INFO..)?, NAME)?),
    })
}

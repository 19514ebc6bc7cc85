//! Routing inside a pod's namespace that brings replies to a client's address back to the proxy.
//!
//! The proxy connects to a pod's program from the address of the program's client (`IP_TRANSPARENT`), and marks
//! its packets with [`MARK`]. The kernel copies the mark to the program's replies (`tcp_fwmark_accept`, and
//! `fwmark_reflect` for replies that no socket sends). A routing rule sends marked packets to a table in which every
//! address is local: they go over the loopback interface back to the proxy.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::namespace::within;

/// Packet mark of sockets with a client's source address (`SO_MARK`).
pub const MARK: u32 = 0x4844_4c45;
/// Packet mark of the proxy's other sockets in pods. The packet filter tells them from the pod's own by it; the
/// routing rules ignore it.
pub const OWN_MARK: u32 = 0x4844_4c46;
/// The routing table in which every address is local.
pub const TABLE: u32 = 0x4844;
/// Priority of the routing rule: before the main table.
const PRIORITY: u32 = 18_500;
/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;
/// Settings of a namespace that are turned on.
const SWITCHES: [&str; 3] = [
    "/proc/sys/net/ipv4/tcp_fwmark_accept",
    "/proc/sys/net/ipv4/fwmark_reflect",
    IPV6_REFLECT,
];
const IPV6_REFLECT: &str = "/proc/sys/net/ipv6/fwmark_reflect";

/// A change in a namespace that failed.
#[derive(Debug)]
pub struct RouteError {
    what: String,
    error: io::Error,
}

impl RouteError {
    fn new(what: impl Into<String>) -> impl FnOnce(io::Error) -> RouteError {
        let what = what.into();
        move |error| RouteError { what, error }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for RouteError {}

impl From<RouteError> for io::Error {
    fn from(error: RouteError) -> io::Error {
        error.error
    }
}

/// Brings up the loopback interface of a pod's namespace, over which all steered traffic goes.
///
/// # Errors
/// Without CAP_NET_ADMIN in the namespace.
pub fn turn_on_loopback(netns: BorrowedFd<'_>) -> Result<(), RouteError> {
    let done = within(netns, || {
        let mut netlink = Netlink::open().map_err(RouteError::new("cannot speak to the kernel"))?;
        let up = netlink.ask(RouteNetlinkMessage::SetLink(loopback()));
        up.map_err(RouteError::new("cannot turn on the loopback interface"))
    });
    done.map_err(RouteError::new("cannot enter the network namespace"))?
}

/// Prepares a pod's namespace, whose loopback interface is up, for sockets with a client's source address. Existing
/// rules and routes stay. This costs some 5 KiB of kernel memory, so it is done only when the first such socket is
/// requested.
///
/// # Errors
/// Without CAP_NET_ADMIN in the namespace, or where `/proc/sys` cannot be written.
pub fn prepare(netns: BorrowedFd<'_>) -> Result<(), RouteError> {
    change(netns, true).map(drop)
}

/// Undoes [`prepare`]. The settings are turned off, as in a new namespace. Returns whether there were rules or
/// routes.
///
/// # Errors
/// As [`prepare`].
pub fn undo(netns: BorrowedFd<'_>) -> Result<bool, RouteError> {
    change(netns, false)
}

/// Returns whether rules or routes were changed.
fn change(netns: BorrowedFd<'_>, is_there: bool) -> Result<bool, RouteError> {
    let enter = RouteError::new("cannot enter the network namespace");
    within(netns, || {
        for path in SWITCHES {
            // Without IPv6 the setting does not exist.
            if path != IPV6_REFLECT || Path::new(path).exists() {
                switch(path, is_there)?;
            }
        }
        let mut netlink = Netlink::open().map_err(RouteError::new("cannot speak to the kernel"))?;
        let mut is_changed = netlink.family(AddressFamily::Inet, is_there)?;
        if Path::new(IPV6_REFLECT).exists() && !(is_there && is_without_ipv6()) {
            is_changed |= netlink.family(AddressFamily::Inet6, is_there)?;
        }
        Ok(is_changed)
    })
    .map_err(enter)?
}

/// Whether IPv6 is disabled in this namespace: a route cannot be added then, and is not needed.
fn is_without_ipv6() -> bool {
    fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6").is_ok_and(|off| off.trim() == "1")
}

fn switch(path: &str, is_on: bool) -> Result<(), RouteError> {
    let value = if is_on { "1" } else { "0" };
    // Usually the value is right already; then no permission to write is needed.
    if fs::read_to_string(path).is_ok_and(|now| now.trim() == value) {
        return Ok(());
    }
    fs::write(path, value).map_err(RouteError::new(format!("cannot write {value} to {path}")))
}

/// A netlink socket for routing, in the namespace in which it was opened.
struct Netlink(Socket);

impl Netlink {
    fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink(socket))
    }

    /// Adds or removes route and rule of a family. The route is added before the rule and removed after it, so that
    /// no packet is sent to an empty table.
    fn family(&mut self, family: AddressFamily, is_there: bool) -> Result<bool, RouteError> {
        let (route, rule) = (route(family), rule(family));
        let steps = match is_there {
            true => [
                (
                    "add a route to the table of local addresses",
                    RouteNetlinkMessage::NewRoute(route),
                ),
                (
                    "add a rule for marked packets",
                    RouteNetlinkMessage::NewRule(rule),
                ),
            ],
            false => [
                (
                    "remove the rule for marked packets",
                    RouteNetlinkMessage::DelRule(rule),
                ),
                (
                    "remove the route from the table of local addresses",
                    RouteNetlinkMessage::DelRoute(route),
                ),
            ],
        };
        let mut is_changed = false;
        for (what, message) in steps {
            match self.ask(message) {
                Err(error) if is_done(&error) => {}
                done => {
                    done.map_err(RouteError::new(format!("cannot {what}")))?;
                    is_changed = true;
                }
            }
        }
        Ok(is_changed)
    }

    /// Sends one request and waits for the kernel's acknowledgement.
    fn ask(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        let is_new = matches!(
            message,
            RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::NewRule(_)
        );
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        if is_new {
            request.header.flags |= NLM_F_CREATE | NLM_F_EXCL;
        }
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match answer.payload {
            NetlinkPayload::Error(said) if said.code.is_none() => Ok(()),
            NetlinkPayload::Error(said) => Err(said.to_io()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Whether the error means that the entry exists already, or is gone already.
fn is_done(error: &io::Error) -> bool {
    let gone = [libc::ENOENT, libc::ESRCH].map(Some);
    error.kind() == io::ErrorKind::AlreadyExists || gone.contains(&error.raw_os_error())
}

/// `link set lo up`.
fn loopback() -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = LOOPBACK;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

/// `local default dev lo table TABLE`.
fn route(family: AddressFamily) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family;
    // The number does not fit into the byte of the header, so it is in the attribute.
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Host;
    route.header.kind = RouteType::Local;
    route.attributes = vec![RouteAttribute::Table(TABLE), RouteAttribute::Oif(LOOPBACK)];
    route
}

/// `fwmark MARK lookup TABLE`.
fn rule(family: AddressFamily) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::FwMark(MARK),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(TABLE),
        RuleAttribute::Priority(PRIORITY),
    ];
    rule
}

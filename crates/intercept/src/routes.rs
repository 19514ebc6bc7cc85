//! How replies to an address that is not ours come back to us, inside a pod's namespace.
//!
//! A socket of ours that speaks to a pod's program with the address of the program's client
//! (`IP_TRANSPARENT`) marks what it sends with [`MARK`]. The kernel gives that mark to what the program
//! answers (`tcp_fwmark_accept`, and `fwmark_reflect` for answers that no socket gives), and a rule sends
//! what is marked to a table in which every address is a local one: over the loopback interface, back to us.

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

/// What our sockets that speak with a client's address mark their packets with (`SO_MARK`).
pub const MARK: u32 = 0x4844_4c45;
/// What our other sockets in pods do, so that packet filters tell them from the pod's own. Routes do not.
pub const OWN_MARK: u32 = 0x4844_4c46;
/// The table in which every address is local.
pub const TABLE: u32 = 0x4844;
/// The rule's place among others: before the main table.
const PRIORITY: u32 = 18_500;
/// The loopback interface of every namespace.
const LOOPBACK: u32 = 1;
/// Switches of a namespace that are turned on.
const SWITCHES: [&str; 3] = [
    "/proc/sys/net/ipv4/tcp_fwmark_accept",
    "/proc/sys/net/ipv4/fwmark_reflect",
    IPV6_REFLECT,
];
const IPV6_REFLECT: &str = "/proc/sys/net/ipv6/fwmark_reflect";

/// What could not be changed in a namespace.
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

/// Turns on the loopback interface of a pod's namespace, over which everything goes.
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

/// Prepares a pod's namespace, whose loopback interface is on, for sockets that speak with other addresses. What is
/// there already stays. The kernel keeps some 5 KiB for it, so it is done for the first of them.
///
/// # Errors
/// Without CAP_NET_ADMIN in the namespace, or where `/proc/sys` cannot be written.
pub fn prepare(netns: BorrowedFd<'_>) -> Result<(), RouteError> {
    change(netns, true).map(drop)
}

/// Takes back what [`prepare`] did. The switches are turned off, which they are in a new namespace.
/// Returns whether there were rules or routes.
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
            // Without IPv6 there is nothing to switch.
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

/// Whether IPv6 is turned off in this namespace: there is no route then, and nothing that would need one.
fn is_without_ipv6() -> bool {
    fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6").is_ok_and(|off| off.trim() == "1")
}

fn switch(path: &str, is_on: bool) -> Result<(), RouteError> {
    let value = if is_on { "1" } else { "0" };
    // Most of the time it is as it should be, also where we may not write.
    if fs::read_to_string(path).is_ok_and(|now| now.trim() == value) {
        return Ok(());
    }
    fs::write(path, value).map_err(RouteError::new(format!("cannot write {value} to {path}")))
}

/// The kernel's routing, of the namespace in which this was opened.
struct Netlink(Socket);

impl Netlink {
    fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink(socket))
    }

    /// The route first, so that nothing is sent to an empty table; back in the other order.
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

    /// Sends one request, and waits for the kernel's word on it.
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

/// It is there already, or gone already.
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
    // A number of more than a byte is in the attribute.
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

//! What is asked of the kernel: queueing disciplines, their classes and filters, and interfaces (`tc(8)`).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

use heddle_model::{ControlGroup, PacketMark};
use serde::{Deserialize, Serialize};

/// An interface of this network namespace. Two are the same if their indices are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// The kernel gives an index to one interface only, unless a program asks for one.
    pub index: u32,
    /// Its name, which may change.
    pub name: String,
}

impl PartialEq for Link {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for Link {}

impl PartialOrd for Link {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Link {
    fn cmp(&self, other: &Self) -> Ordering {
        self.index.cmp(&other.index)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// Its kind, such as `fq_codel`.
    pub kind: String,
    /// Its handle; 0 for one that the kernel chose itself.
    pub handle: u32,
    /// Its options, as the kernel tells them.
    pub options: Vec<u8>,
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handle {
            0 => f.write_str(&self.kind),
            handle => write!(f, "{} {:x}:", self.kind, handle >> 16),
        }
    }
}

/// Where in an interface a queueing discipline is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Its root, which queues what is sent.
    Root,
    /// `ingress` or `clsact`, which have filters and no queue.
    Ingress,
}

/// Queueing disciplines by the index of their interface and their place.
pub type Qdiscs = BTreeMap<(u32, Hook), Qdisc>;

/// A filter at [`Hook::Ingress`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Whether it sees what is sent, not what is received.
    pub is_egress: bool,
    /// Its kind, such as `bpf`.
    pub kind: String,
    /// Its priority.
    pub priority: u16,
    /// Its handle within the priority.
    pub handle: u32,
    /// The name of its program, if it has one.
    pub name: String,
}

impl Filter {
    /// Whether it is the one that [`Kernel::add_marker`] adds.
    pub fn is_ours(&self) -> bool {
        !self.is_egress
            && (self.kind.as_str(), self.priority, self.handle) == ("bpf", PRIORITY, MARKER)
            && self.name == MARKER_NAME
    }
}

/// Which packets the limited class of a root gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// Those with a mark. All others are in a class that is never limited.
    Marked(PacketMark),
    /// All.
    All,
}

/// Bytes that an interface has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkBytes {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
}

/// Bytes that both classes of our root have sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassBytes {
    /// Of the class without a limit.
    pub online: u64,
    /// Of the limited class.
    pub offline: u64,
}

/// Handle of our root: no program counts up to it, and a person knows it again in `tc qdisc`.
pub const ROOT: u32 = 0x4ed1_0000;
/// The class that is never limited.
pub const ONLINE: u32 = ROOT | 1;
/// The limited class.
pub const OFFLINE: u32 = ROOT | 2;
/// Handle of the filter that marks.
pub const MARKER: u32 = 0x4ed1;
/// Its name.
pub const MARKER_NAME: &str = "heddle_offline";
/// Its priority: before filters whose priority the kernel chose, which count down from 49,152.
pub const PRIORITY: u16 = 78;

/// The kernel's network, as far as node QoS changes it. Everything that is changed is recognised by its handle.
///
/// Methods fail with `NotFound` when an interface, or what is to be changed in it, is gone, with `AlreadyExists` when
/// another program has put something there meanwhile, and otherwise with what the kernel says.
pub trait Kernel {
    /// Number of this network namespace: that of its inode.
    fn namespace(&self) -> u64;

    /// The interface of a name.
    fn link(&mut self, name: &str) -> io::Result<Link>;

    /// Looks at all interfaces at once, and returns their queueing disciplines.
    fn look(&mut self) -> io::Result<Qdiscs>;

    /// The host's ends of a pod's interfaces, as of the last look. None for a pod of the host's network, or without a
    /// process.
    fn host_ends(&mut self, pod: &ControlGroup) -> io::Result<Vec<Link>>;

    /// The queueing discipline at a hook; none if the kernel has none to tell of.
    fn qdisc(&mut self, link: u32, hook: Hook) -> io::Result<Option<Qdisc>>;

    /// Puts our root in place of one that the kernel chose, or, if `replaces`, of any.
    fn add_root(&mut self, link: u32, limited: Limited, replaces: bool) -> io::Result<()>;

    /// Adds the classes and the filter of our root, which has none yet. `rate` is in bytes per second.
    fn fill_root(&mut self, link: u32, limited: Limited, rate: u64) -> io::Result<()>;

    /// Sets the rate of the limited class, in bytes per second.
    fn set_rate(&mut self, link: u32, rate: u64) -> io::Result<()>;

    /// Removes our root: the kernel puts one there that it chooses.
    fn delete_root(&mut self, link: u32) -> io::Result<()>;

    /// Puts back a root that ours has replaced.
    fn put_back_root(&mut self, link: u32, root: &Qdisc) -> io::Result<()>;

    /// Adds a `clsact`.
    fn add_clsact(&mut self, link: u32) -> io::Result<()>;

    /// Removes the `clsact`, with all filters.
    fn delete_clsact(&mut self, link: u32) -> io::Result<()>;

    /// The filters of `clsact` or `ingress`.
    fn filters(&mut self, link: u32) -> io::Result<Vec<Filter>>;

    /// Adds the filter that marks all packets that are received.
    fn add_marker(&mut self, link: u32, mark: PacketMark) -> io::Result<()>;

    /// Removes it.
    fn delete_marker(&mut self, link: u32) -> io::Result<()>;

    /// Bytes of an interface.
    fn link_bytes(&mut self, link: u32) -> io::Result<LinkBytes>;

    /// Bytes of the classes of our root.
    fn class_bytes(&mut self, link: u32) -> io::Result<ClassBytes>;
}

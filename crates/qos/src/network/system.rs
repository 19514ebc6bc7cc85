//! The network of this machine: traffic control over netlink.
//!
//! Kinds of messages and attributes: include/uapi/linux/rtnetlink.h, pkt_sched.h, pkt_cls.h.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use heddle_model::{ControlGroup, PacketMark};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use super::kernel::{
    ClassBytes, Filter, Hook, Kernel, Limited, Link, LinkBytes, MARKER, MARKER_NAME, OFFLINE,
    ONLINE, PRIORITY, Qdisc, Qdiscs, ROOT,
};
use super::netlink::{Attributes, Netlink, Request, attribute, long, number, text};
use super::{links, program};
use crate::cgroup;

mod htb;
#[cfg(test)]
mod tests;

const NEW_QDISC: u16 = 36;
const DELETE_QDISC: u16 = 37;
const GET_QDISC: u16 = 38;
const NEW_CLASS: u16 = 40;
const GET_CLASS: u16 = 42;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;

/// Places: a root, `ingress` or `clsact`, and the two lists of filters of that.
const AT_ROOT: u32 = 0xffff_ffff;
const AT_INGRESS: u32 = 0xffff_fff1;
const RECEIVED: u32 = 0xffff_fff2;
const SENT: u32 = 0xffff_fff3;
/// The handle of every `clsact`.
const CLSACT: u32 = 0xffff_0000;

/// Attributes of all messages of traffic control.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATISTICS: u16 = 7;
/// Within the statistics: bytes, then packets.
const BASIC: u16 = 1;

/// Attributes of a filter of kind `bpf`, and its flag that what the program returns is done.
const BPF_CLASS: u16 = 3;
const BPF_COUNT: u16 = 4;
const BPF_CODE: u16 = 5;
const BPF_PROGRAM: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_DIRECT: u32 = 1;

/// Every protocol, `ETH_P_ALL`, in the order of bytes of the network.
const EVERY_PROTOCOL: u32 = 3_u16.to_be() as u32;
/// Rate of the class without a limit, in bytes per second: the kernel has no class without a rate.
const NO_LIMIT: u64 = 1 << 40;
/// Queueing disciplines that are not put back are not copied. Those that are have options of some dozen bytes.
const LONGEST_OPTIONS: usize = 1_024;

/// The network of this machine, seen from the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct TrafficControl {
    netlink: Netlink,
    groups: cgroup::System,
    namespace: u64,
    /// The host's ends of pairs as of the last look, with the ids of the namespaces of their other ends.
    pairs: Vec<(u32, Link)>,
}

impl TrafficControl {
    /// Opens it.
    ///
    /// # Errors
    /// When no descriptors are left, or `/proc` is missing.
    pub fn open(groups: cgroup::System) -> io::Result<Self> {
        Ok(TrafficControl {
            netlink: Netlink::open()?,
            groups,
            namespace: fs::metadata("/proc/thread-self/ns/net")?.ino(),
            pairs: Vec::new(),
        })
    }

    /// Gives the class of online pods the queue that this machine has by default, such as `fq_codel`: within the class
    /// they share as they did before.
    fn add_queue_of_online(&mut self, link: u32) {
        let kind = fs::read_to_string("/proc/sys/net/core/default_qdisc").unwrap_or_default();
        let kind = kind.trim();
        // The class has a plain queue already.
        if ["", "noqueue", "pfifo", "pfifo_fast"].contains(&kind) {
            return;
        }
        let message = of(NEW_QDISC, NLM_F_CREATE | NLM_F_EXCL, link, 0, ONLINE, 0);
        if let Err(error) = self.netlink.change(message.with_text(KIND, kind)) {
            tracing::debug!("online pods have a plain queue instead of {kind}: {error}");
        }
    }

    fn set_class(&mut self, link: u32, class: u32, rate: u64, flags: u16) -> io::Result<()> {
        let order = u32::from(class == OFFLINE);
        let message = of(NEW_CLASS, flags, link, class, ROOT, 0).with_text(KIND, "htb");
        self.netlink
            .change(message.with_nested(OPTIONS, &htb::class(rate, order)))
    }

    /// The filter of our root that finds marked packets.
    fn add_recogniser(&mut self, link: u32, mark: PacketMark) -> io::Result<()> {
        let (count, code) = program::recogniser(mark);
        let options = Attributes::default()
            .with(BPF_CLASS, &OFFLINE.to_ne_bytes())
            .with(BPF_COUNT, &count.to_ne_bytes())
            .with(BPF_CODE, &code);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let message = of(NEW_FILTER, flags, link, 1, ROOT, 1 << 16 | EVERY_PROTOCOL);
        let message = message
            .with_text(KIND, "bpf")
            .with_nested(OPTIONS, &options);
        self.netlink
            .change(message)
            .map_err(without("filters of kind bpf (CONFIG_NET_CLS_BPF)"))
    }

    fn qdiscs(&mut self, is_wanted: impl Fn(u32, Hook) -> bool) -> io::Result<Qdiscs> {
        let mut found = Qdiscs::new();
        self.netlink.all(of(GET_QDISC, 0, 0, 0, 0, 0), |message| {
            let Some(about) = TcMessage::read(message) else {
                return;
            };
            let hook = match about.parent {
                AT_ROOT => Hook::Root,
                AT_INGRESS => Hook::Ingress,
                _ => return,
            };
            if !is_wanted(about.link, hook) {
                return;
            }
            let options = &about.options[..LONGEST_OPTIONS.min(about.options.len())];
            let qdisc = Qdisc {
                kind: about.kind,
                handle: about.handle,
                options: options.to_vec(),
            };
            found.insert((about.link, hook), qdisc);
        })?;
        Ok(found)
    }

    fn filters_at(&mut self, link: u32, place: u32, found: &mut Vec<Filter>) -> io::Result<()> {
        let request = of(GET_FILTER, 0, link, 0, place, 0);
        self.netlink.all(request, |message| {
            let Some(about) = TcMessage::read(message) else {
                return;
            };
            // The kernel tells of each priority, too, with the handle 0.
            if about.handle == 0 {
                return;
            }
            found.push(Filter {
                is_egress: place == SENT,
                kind: about.kind,
                // The upper half.
                priority: (about.info >> 16) as u16,
                handle: about.handle,
                name: attribute(about.options, BPF_NAME)
                    .map(text)
                    .unwrap_or_default(),
            });
        })
    }
}

impl Kernel for TrafficControl {
    fn namespace(&self) -> u64 {
        self.namespace
    }

    fn link(&mut self, name: &str) -> io::Result<Link> {
        links::by_name(&mut self.netlink, name)
    }

    fn host_ends(&mut self, pod: &ControlGroup) -> io::Result<Vec<Link>> {
        let Some(namespace) = self.groups.network_of(pod)? else {
            return Ok(Vec::new());
        };
        if File::metadata(&namespace)?.ino() == self.namespace {
            return Ok(Vec::new());
        }
        let id = links::namespace_id(&mut self.netlink, namespace.as_fd())?;
        let ends = self.pairs.iter().filter(|(peer, _)| Some(*peer) == id);
        Ok(ends.map(|(_, link)| link.clone()).collect())
    }

    fn look(&mut self) -> io::Result<Qdiscs> {
        self.pairs = links::pairs(&mut self.netlink)?;
        self.qdiscs(|_, _| true)
    }

    fn qdisc(&mut self, link: u32, hook: Hook) -> io::Result<Option<Qdisc>> {
        // The kernel tells of all interfaces, whichever is named.
        let mut found = self.qdiscs(|of, at| (of, at) == (link, hook))?;
        Ok(found.remove(&(link, hook)))
    }

    fn add_root(&mut self, link: u32, limited: Limited, replaces: bool) -> io::Result<()> {
        // Packets of a class that is not there yet are not limited.
        let default = match limited {
            Limited::Marked(_) => ONLINE,
            Limited::All => OFFLINE,
        };
        // The kernel takes a root that it chose itself as none.
        let flags = match replaces {
            true => NLM_F_CREATE | NLM_F_REPLACE,
            false => NLM_F_CREATE | NLM_F_EXCL,
        };
        let message = of(NEW_QDISC, flags, link, ROOT, AT_ROOT, 0).with_text(KIND, "htb");
        self.netlink
            .change(message.with_nested(OPTIONS, &htb::root(default)))
            .map_err(without("the queueing discipline htb (CONFIG_NET_SCH_HTB)"))
    }

    fn fill_root(&mut self, link: u32, limited: Limited, rate: u64) -> io::Result<()> {
        match limited {
            Limited::Marked(mark) => {
                self.set_class(link, ONLINE, NO_LIMIT, NLM_F_CREATE)?;
                self.add_queue_of_online(link);
                self.set_class(link, OFFLINE, rate, NLM_F_CREATE)?;
                self.add_recogniser(link, mark)
            }
            Limited::All => self.set_class(link, OFFLINE, rate, NLM_F_CREATE),
        }
    }

    fn set_rate(&mut self, link: u32, rate: u64) -> io::Result<()> {
        self.set_class(link, OFFLINE, rate, 0)
    }

    fn delete_root(&mut self, link: u32) -> io::Result<()> {
        // The kernel refuses if the root has another handle by now.
        self.netlink
            .change(of(DELETE_QDISC, 0, link, ROOT, AT_ROOT, 0))
    }

    fn put_back_root(&mut self, link: u32, root: &Qdisc) -> io::Result<()> {
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        let message =
            of(NEW_QDISC, flags, link, root.handle, AT_ROOT, 0).with_text(KIND, &root.kind);
        let message = match root.options.is_empty() {
            true => message,
            false => message.with(OPTIONS, &root.options),
        };
        self.netlink.change(message)
    }

    fn add_clsact(&mut self, link: u32) -> io::Result<()> {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let message = of(NEW_QDISC, flags, link, CLSACT, AT_INGRESS, 0);
        self.netlink
            .change(message.with_text(KIND, "clsact"))
            .map_err(without(
                "the queueing discipline clsact (CONFIG_NET_SCH_INGRESS)",
            ))
    }

    fn delete_clsact(&mut self, link: u32) -> io::Result<()> {
        self.netlink
            .change(of(DELETE_QDISC, 0, link, CLSACT, AT_INGRESS, 0))
    }

    fn filters(&mut self, link: u32) -> io::Result<Vec<Filter>> {
        let mut found = Vec::new();
        for place in [RECEIVED, SENT] {
            self.filters_at(link, place, &mut found)?;
        }
        Ok(found)
    }

    fn add_marker(&mut self, link: u32, mark: PacketMark) -> io::Result<()> {
        let program = program::load_marker(mark)?;
        let options = Attributes::default()
            .with(BPF_PROGRAM, &program.as_raw_fd().to_ne_bytes())
            .with(BPF_NAME, &[MARKER_NAME.as_bytes(), b"\0"].concat())
            .with(BPF_FLAGS, &BPF_DIRECT.to_ne_bytes());
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let message = of(NEW_FILTER, flags, link, MARKER, RECEIVED, MARKER_INFO);
        let message = message
            .with_text(KIND, "bpf")
            .with_nested(OPTIONS, &options);
        self.netlink
            .change(message)
            .map_err(without("filters of kind bpf (CONFIG_NET_CLS_BPF)"))
    }

    fn delete_marker(&mut self, link: u32) -> io::Result<()> {
        let message = of(DELETE_FILTER, 0, link, MARKER, RECEIVED, MARKER_INFO);
        self.netlink.change(message.with_text(KIND, "bpf"))
    }

    fn link_bytes(&mut self, link: u32) -> io::Result<LinkBytes> {
        links::bytes(&mut self.netlink, link)
    }

    fn class_bytes(&mut self, link: u32) -> io::Result<ClassBytes> {
        let mut bytes = ClassBytes::default();
        let mut seen = 0;
        self.netlink
            .all(of(GET_CLASS, 0, link, 0, 0, 0), |message| {
                let Some(handle) = number(message, 8) else {
                    return;
                };
                let statistics = attribute(message.get(TC..).unwrap_or_default(), STATISTICS);
                let basic = statistics.and_then(|all| attribute(all, BASIC));
                let Some(sent) = basic.and_then(|basic| long(basic, 0)) else {
                    return;
                };
                match handle {
                    ONLINE => bytes.online = sent,
                    OFFLINE => bytes.offline = sent,
                    _ => return,
                }
                seen += 1;
            })?;
        match seen {
            // An interface that is gone has no classes, and neither has one whose root is another's.
            0 => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(bytes),
        }
    }
}

const MARKER_INFO: u32 = (PRIORITY as u32) << 16 | EVERY_PROTOCOL;

/// Bytes of `struct tcmsg`.
const TC: usize = 20;

/// A message of traffic control (`struct tcmsg`).
fn of(kind: u16, flags: u16, link: u32, handle: u32, parent: u32, info: u32) -> Request {
    let mut fixed = [0; TC];
    for (at, number) in [(4, link), (8, handle), (12, parent), (16, info)] {
        fixed[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    Request::new(kind, flags, &fixed)
}

/// A message of traffic control, as it is read.
struct TcMessage<'a> {
    link: u32,
    handle: u32,
    parent: u32,
    info: u32,
    kind: String,
    options: &'a [u8],
}

impl<'a> TcMessage<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let attributes = message.get(TC..)?;
        Some(TcMessage {
            link: number(message, 4)?,
            handle: number(message, 8)?,
            parent: number(message, 12)?,
            info: number(message, 16)?,
            kind: text(attribute(attributes, KIND)?),
            options: attribute(attributes, OPTIONS).unwrap_or_default(),
        })
    }
}

/// Adds what a kernel may lack.
fn without(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => {
            let said = format!("{error}: the interface is gone, or the kernel lacks {what}");
            io::Error::new(io::ErrorKind::NotFound, said)
        }
        _ => error,
    }
}

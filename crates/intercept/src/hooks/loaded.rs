//! The programs, loaded: which there are, where each is attached, and what the kernel says when it lacks one.

use std::error::Error;
use std::os::fd::BorrowedFd;

use aya::maps::{Map, MapError, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::tc::{TcAttachOptions, TcError};
use aya::programs::{CgroupAttachMode, LinkOrder, Program, ProgramError, TcAttachType};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::HookError;

/// Compiled by the build script from `bpf/`.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/intercept.o"));

/// At the pods' cgroup, and what each is for.
pub(super) const AT_PODS: [(&str, &str); 7] = [
    // First what brings destinations to their listener: a rewritten connection without it would be refused.
    ("client", "sockops, which follows handshakes"),
    ("getpeername4", "cgroup/getpeername4, which names peers"),
    ("getpeername6", "cgroup/getpeername6, which names peers"),
    ("sendmsg4", "cgroup/sendmsg4, which refuses datagrams"),
    ("sendmsg6", "cgroup/sendmsg6, which refuses datagrams"),
    ("connect4", "cgroup/connect4, which steers connections"),
    ("connect6", "cgroup/connect6, which steers connections"),
];
/// At our own.
pub(super) const AT_OWN: [(&str, &str); 2] = [
    ("server", "sockops, which follows handshakes"),
    (
        "original",
        "cgroup/getsockopt, which names original destinations",
    ),
];
/// In the namespace of each pod.
pub(super) const ARRIVE: (&str, &str) = ("arrive", "sk_lookup, which steers what arrives");
/// In the namespace of each pod that is guarded.
pub(super) const GUARD_ARRIVE: (&str, &str) = ("guard_arrive", "sk_lookup, which guards pods");
/// A program that is left when we are gone; what it yields to while we live, and the table that says so.
pub(super) type GuardProgram = (&'static str, &'static str, &'static str);
/// At the pods' cgroup, pinned.
pub(super) const GUARDS: [GuardProgram; 4] = [
    ("guard_connect4", "yield_connect4", "alive_connect4"),
    ("guard_connect6", "yield_connect6", "alive_connect6"),
    ("guard_sendmsg4", "yield_sendmsg4", "alive_sendmsg4"),
    ("guard_sendmsg6", "yield_sendmsg6", "alive_sendmsg6"),
];
/// For packets, at the pods' cgroup. What they yield to is attached nowhere else, so that a packet meets one program
/// and not two.
pub(super) const PACKET_GUARDS: [GuardProgram; 2] = [
    ("guard_egress", "egress", "alive_egress"),
    ("guard_ingress", "ingress", "alive_ingress"),
];
/// The same at an interface.
pub(super) const LINK_GUARDS: [(GuardProgram, TcAttachType); 2] = [
    (
        ("guard_link_egress", "link_egress", "alive_link_egress"),
        TcAttachType::Egress,
    ),
    (
        ("guard_link_ingress", "link_ingress", "alive_link_ingress"),
        TcAttachType::Ingress,
    ),
];
/// Stands for all programs for packets, wherever they are attached, for who only tries them.
pub(super) const AT_PACKETS: (&str, &str) = (
    PACKET_GUARDS[0].0,
    "programs for packets, which refuse datagrams",
);
/// What guards are for, said of one that cannot be.
pub(super) const GUARDS_PODS: &str = "cgroup programs, which guard pods";
/// The same of one at an interface.
pub(super) const GUARDS_LINKS: &str = "programs at interfaces (tcx), which guard pods";

/// Whether programs can be linked to interfaces.
pub(super) fn has_links_to_interfaces() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

/// A link takes no flags: it never minds what else is attached.
const MODE: CgroupAttachMode = CgroupAttachMode::Single;

/// The object with its tables, of which no program is loaded but the one that tells whether the kernel knows what it
/// asks. `own_cgroup` is the number of the control group of this process, 0 for none.
pub(super) fn object(own_cgroup: u64) -> Result<Ebpf, HookError> {
    let mut object = unloaded(own_cgroup, true)?;
    let [((_, at_link, _), _), _] = LINK_GUARDS;
    let [(_, at_cgroup, _), _] = PACKET_GUARDS;
    let (asks, what) = match has_links_to_interfaces() {
        true => (at_link, GUARDS_LINKS),
        false => (at_cgroup, GUARDS_PODS),
    };
    match load(&mut object, asks, what) {
        Ok(()) => Ok(object),
        Err(error) => {
            tracing::debug!("packets' pods are told by their addresses: {error}");
            unloaded(own_cgroup, false)
        }
    }
}

/// `knows_netns`: whether the hooks of packets can ask in which namespace a socket is.
fn unloaded(own_cgroup: u64, knows_netns: bool) -> Result<Ebpf, HookError> {
    let mut loader = loader();
    // Nothing in the programs depends on how this kernel was compiled.
    loader.btf(None);
    loader.override_global("own_cgroup", &own_cgroup, true);
    let knows_netns = u8::from(knows_netns);
    loader.override_global("knows_netns", &knows_netns, true);
    let loaded = loader.load(OBJECT);
    loaded.map_err(|error| HookError::lacking("tables for BPF programs", &error))
}

/// A loader that knows nothing of this kernel's types. Whenever one is made, the library reads and parses what the
/// kernel says of them in `/sys`, which costs 19 MiB for nothing, of which 2 are never given back. So it is made where
/// there is no `/sys`, on a thread of its own.
fn loader() -> EbpfLoader<'static> {
    let thread = std::thread::Builder::new().spawn(|| {
        if let Err(error) = leave_sys() {
            // Nothing is lost but memory.
            tracing::debug!(%error, "the kernel's types are read for nothing");
        }
        EbpfLoader::new()
    });
    let made = thread.ok().and_then(|thread| thread.join().ok());
    made.unwrap_or_default()
}

/// Takes `/sys` away, for this thread alone.
fn leave_sys() -> rustix::io::Result<()> {
    #[allow(unsafe_code, reason = "nothing else gives a thread mounts of its own")]
    // SAFETY: descriptors are not unshared, and this thread opens nothing but what the library may look for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // What is done here is not done to others.
    let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", alone)?;
    unmount("/sys", UnmountFlags::DETACH)
}

/// Loads one program, if it is not loaded.
pub(super) fn load(object: &mut Ebpf, name: &str, what: &str) -> Result<(), HookError> {
    let program = program(object, name)?;
    if program.fd().is_ok() {
        return Ok(());
    }
    match program {
        Program::CgroupSkb(program) => program.load(),
        Program::CgroupSockAddr(program) => program.load(),
        Program::CgroupSockopt(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        Program::SkLookup(program) => program.load(),
        Program::SockOps(program) => program.load(),
        _ => return Err(stranger(name)),
    }
    .map_err(|error| HookError::lacking(what, &error))
}

/// Attaches a loaded program to a control group for as long as there is the object.
pub(super) fn attach(
    object: &mut Ebpf,
    (name, what): (&str, &str),
    cgroup: BorrowedFd<'_>,
) -> Result<(), HookError> {
    match program(object, name)? {
        Program::CgroupSockAddr(program) => program.attach(cgroup, MODE).map(drop),
        Program::CgroupSockopt(program) => program.attach(cgroup, MODE).map(drop),
        Program::SockOps(program) => program.attach(cgroup, MODE).map(drop),
        _ => return Err(stranger(name)),
    }
    .map_err(|error| unattached(what, &error))
}

/// Attaches a loaded program to a control group or a network namespace until the link is dropped, if it is
/// not pinned.
pub(super) fn link(
    object: &mut Ebpf,
    (name, what): (&str, &str),
    to: BorrowedFd<'_>,
) -> Result<FdLink, HookError> {
    match program(object, name)? {
        Program::CgroupSockAddr(program) => {
            let link = program
                .attach(to, MODE)
                .and_then(|id| program.take_link(id))
                .map_err(|error| unattached(what, &error))?;
            FdLink::try_from(link).map_err(|error| HookError::lacking("BPF links", &error))
        }
        Program::CgroupSkb(program) => {
            let at = *program.expected_attach_type();
            let at = at.ok_or_else(|| stranger(name))?;
            let link = program
                .attach(to, at, MODE)
                .and_then(|id| program.take_link(id))
                .map_err(|error| unattached(what, &error))?;
            FdLink::try_from(link).map_err(|error| HookError::lacking("BPF links", &error))
        }
        Program::SkLookup(program) => {
            let link = program.attach(to).and_then(|id| program.take_link(id));
            link.map(FdLink::from)
                .map_err(|error| unattached(what, &error))
        }
        _ => Err(stranger(name)),
    }
}

/// Attaches a loaded program to an interface of the namespace that this thread is in, before all others. `None` when
/// there is no such interface any more, or the kernel has not let go of an earlier link of this program to it.
pub(super) fn link_to_interface(
    object: &mut Ebpf,
    name: &str,
    at: TcAttachType,
    interface: &str,
) -> Result<Option<FdLink>, HookError> {
    let Program::SchedClassifier(program) = program(object, name)? else {
        return Err(stranger(name));
    };
    let first = TcAttachOptions::TcxOrder(LinkOrder::first());
    let link = program
        .attach_with_options(interface, at, first)
        .and_then(|id| program.take_link(id));
    let link = match link {
        Err(error) if is_passing(&error) => return Ok(None),
        link => link.map_err(|error| unattached(GUARDS_LINKS, &error))?,
    };
    let link = FdLink::try_from(link).map_err(|error| HookError::lacking("BPF links", &error))?;
    Ok(Some(link))
}

/// Whether an interface is not there any more, or the program is there still.
fn is_passing(error: &ProgramError) -> bool {
    let error = match error {
        ProgramError::SyscallError(error) => &error.io_error,
        ProgramError::TcError(TcError::IoError(error)) => error,
        _ => return false,
    };
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NODEV | Errno::EXIST)
    )
}

fn unattached(what: &str, error: &dyn Error) -> HookError {
    HookError::lacking(format!("{what} (it cannot be attached)"), error)
}

/// Puts the program that a guard yields to where it finds it while this process lives: for as long as
/// `object` has the table open.
pub(super) fn yields(object: &mut Ebpf, (_, name, table): GuardProgram) -> Result<(), HookError> {
    let what = "tail calls of programs, which guard pods";
    load(object, name, what)?;
    let lacking = |error: &dyn Error| HookError::lacking(what, error);
    let descriptor = program(object, name)?.fd();
    let descriptor = descriptor.map_err(|error| lacking(&error))?;
    let descriptor = descriptor.try_clone().map_err(|error| lacking(&error))?;
    let table = object.map_mut(table).ok_or_else(|| stranger(table))?;
    let mut table = ProgramArray::try_from(table).map_err(|error| lacking(&error))?;
    table
        .set(0, &descriptor, 0)
        .map_err(|error| lacking(&error))
}

/// Takes a table out of the object.
pub(super) fn table<T>(object: &mut Ebpf, name: &str) -> Result<T, HookError>
where
    T: TryFrom<Map, Error = MapError>,
{
    let map = object.take_map(name).ok_or_else(|| stranger(name))?;
    T::try_from(map).map_err(|error| HookError::refused(format!("BPF object: {name}"), &error))
}

fn program<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, HookError> {
    object.program_mut(name).ok_or_else(|| stranger(name))
}

/// The object and this list do not go together: only a bug does that.
fn stranger(name: &str) -> HookError {
    HookError::Refused {
        what: format!("BPF object: {name}"),
        reason: "there is none of that name and kind in it".to_owned(),
    }
}

//! Loads and attaches the BPF programs.

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

/// The object file that the build script compiles from `bpf/`.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/intercept.o"));

/// Programs attached to the pods' cgroup, with hook and purpose for messages.
pub(super) const AT_PODS: [(&str, &str); 7] = [
    // `client` must come first: it carries destinations to the listener, which would refuse rewritten connections
    // without it.
    ("client", "sockops, which follows handshakes"),
    ("getpeername4", "cgroup/getpeername4, which names peers"),
    ("getpeername6", "cgroup/getpeername6, which names peers"),
    ("sendmsg4", "cgroup/sendmsg4, which refuses datagrams"),
    ("sendmsg6", "cgroup/sendmsg6, which refuses datagrams"),
    ("connect4", "cgroup/connect4, which steers connections"),
    ("connect6", "cgroup/connect6, which steers connections"),
];
/// Programs attached to the cgroup of this process.
pub(super) const AT_OWN: [(&str, &str); 2] = [
    ("server", "sockops, which follows handshakes"),
    (
        "original",
        "cgroup/getsockopt, which names original destinations",
    ),
];
/// Program attached to the namespace of each pod.
pub(super) const ARRIVE: (&str, &str) = ("arrive", "sk_lookup, which steers what arrives");
/// Program attached to the namespace of each guarded pod.
pub(super) const GUARD_ARRIVE: (&str, &str) = ("guard_arrive", "sk_lookup, which guards pods");
/// A guard program that outlives this process; the program to which it tail-calls while this process lives; and the
/// table for that tail call.
pub(super) type GuardProgram = (&'static str, &'static str, &'static str);
/// Guards attached to the pods' cgroup, pinned.
pub(super) const GUARDS: [GuardProgram; 4] = [
    ("guard_connect4", "yield_connect4", "alive_connect4"),
    ("guard_connect6", "yield_connect6", "alive_connect6"),
    ("guard_sendmsg4", "yield_sendmsg4", "alive_sendmsg4"),
    ("guard_sendmsg6", "yield_sendmsg6", "alive_sendmsg6"),
];
/// Packet guards for the pods' cgroup. The programs to which they tail-call are attached nowhere else, so that a
/// packet passes one program and not two.
pub(super) const PACKET_GUARDS: [GuardProgram; 2] = [
    ("guard_egress", "egress", "alive_egress"),
    ("guard_ingress", "ingress", "alive_ingress"),
];
/// Packet guards for interfaces.
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
/// Stands for all packet programs, wherever they are attached, in a trial.
pub(super) const AT_PACKETS: (&str, &str) = (
    PACKET_GUARDS[0].0,
    "programs for packets, which refuse datagrams",
);
/// Purpose of cgroup guards, for error messages.
pub(super) const GUARDS_PODS: &str = "cgroup programs, which guard pods";
/// Purpose of guards at interfaces, for error messages.
pub(super) const GUARDS_LINKS: &str = "programs at interfaces (tcx), which guard pods";

/// Whether the kernel has links to interfaces (tcx, from Linux 6.6).
pub(super) fn has_links_to_interfaces() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

/// Ignored for links, which always allow other programs at the same cgroup.
const MODE: CgroupAttachMode = CgroupAttachMode::Single;

/// Opens the object with its tables. One packet program is loaded to find out whether the kernel lets packet programs
/// ask for a socket's namespace; if not, they identify pods by address. `own_cgroup` is the ID of the control group
/// of this process, 0 for none.
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
            tracing::debug!("the pod of a packet is found by its address: {error}");
            unloaded(own_cgroup, false)
        }
    }
}

/// Opens the object without loading a program. `knows_netns`: whether packet programs can ask for a socket's
/// namespace.
fn unloaded(own_cgroup: u64, knows_netns: bool) -> Result<Ebpf, HookError> {
    let mut loader = loader();
    // The programs use no types of the kernel, so they do not need its BTF.
    loader.btf(None);
    loader.override_global("own_cgroup", &own_cgroup, true);
    let knows_netns = u8::from(knows_netns);
    loader.override_global("knows_netns", &knows_netns, true);
    let loaded = loader.load(OBJECT);
    loaded.map_err(|error| HookError::lacking("tables for BPF programs", &error))
}

/// Creates a loader without the kernel's type information. The library always reads and parses the BTF in `/sys`,
/// which needs 19 MiB for nothing, of which 2 are never freed. So the loader is created on a thread of its own, for
/// which `/sys` is unmounted.
fn loader() -> EbpfLoader<'static> {
    let thread = std::thread::Builder::new().spawn(|| {
        if let Err(error) = leave_sys() {
            // The only harm is the wasted memory.
            tracing::debug!(%error, "the kernel's types are read although they are not needed");
        }
        EbpfLoader::new()
    });
    let made = thread.ok().and_then(|thread| thread.join().ok());
    made.unwrap_or_default()
}

/// Unmounts `/sys` for this thread alone.
fn leave_sys() -> rustix::io::Result<()> {
    #[allow(unsafe_code, reason = "nothing else gives a thread mounts of its own")]
    // SAFETY: only the mount namespace is unshared, not descriptors, and this thread opens no files but those that
    // the library may look for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Do not propagate the unmount to other mount namespaces.
    let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", alone)?;
    unmount("/sys", UnmountFlags::DETACH)
}

/// Loads one program, unless it is loaded already.
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

/// Attaches a loaded program to a control group for the lifetime of the object.
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

/// Attaches a loaded program to a control group or a network namespace until the link is dropped, unless it is
/// pinned.
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

/// Attaches a loaded program to an interface in this thread's namespace, before all other programs. `None` when the
/// interface is gone, or the kernel has not yet detached an earlier link of this program to it.
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

/// Whether the error means that the interface is gone, or the program still attached to it.
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

/// Puts the program to which a guard tail-calls into the guard's table. The entry lasts while this process lives,
/// since the kernel clears the table when `object` closes it.
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

/// Takes a table out of the object. Each can be taken once.
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

/// The object and the names in this file do not match, which can only be a bug.
fn stranger(name: &str) -> HookError {
    HookError::Refused {
        what: format!("BPF object: {name}"),
        reason: "it contains no object of that name and kind".to_owned(),
    }
}

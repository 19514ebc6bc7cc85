//! Network namespaces with names, where `ip netns` looks for them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow};
use rtnetlink::Handle;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::file::LabName;

/// Where `ip netns` keeps its names.
pub(super) const FOLDER: &str = "/run/netns";
/// Marks that a lab made [`FOLDER`], which the last lab then removes.
const MARKER: &str = "/run/heddle/netns-made-by-lab";

/// A named network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
    fd: OwnedFd,
}

/// The part of a lab that a namespace is for.
pub(super) enum Role<'a> {
    Underlay,
    Node(&'a str),
    Pod(&'a str),
}

/// The prefix of a lab's namespaces; no namespace of another lab begins with it.
pub(super) fn prefix(lab: &LabName) -> String {
    format!("hl-{lab}-")
}

impl Role<'_> {
    /// The file of such a namespace.
    pub(super) fn path(&self, lab: &LabName) -> PathBuf {
        let name = match self {
            Role::Underlay => "underlay".to_owned(),
            Role::Node(node) => format!("node-{node}"),
            Role::Pod(pod) => format!("pod-{pod}"),
        };
        Path::new(FOLDER).join(prefix(lab) + &name)
    }
}

impl Namespace {
    /// Makes a namespace in which lo is up, new addresses are usable at once, and packets are forwarded if
    /// `forwards`.
    ///
    /// # Errors
    /// The kernel refuses, or the name is taken.
    pub(super) fn create(path: &Path, forwards: bool) -> anyhow::Result<Self> {
        let shown = path.display();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.context("a namespace has a name")?.to_owned();
        File::create_new(path).with_context(|| format!("cannot make {shown}"))?;
        let made: anyhow::Result<()> = apart(|| {
            unshare_network().context("unshare")?;
            rustix::mount::mount_bind("/proc/thread-self/ns/net", path).context("mount")?;
            settle(forwards)
        });
        made.with_context(|| format!("cannot make the network namespace {name}"))?;
        let namespace = Self::open(path)?;
        // The index of lo is 1 in every namespace.
        namespace.inside(async |handle| super::network::bring_up(&handle, 1).await)?;
        Ok(namespace)
    }

    /// Opens an existing namespace.
    ///
    /// # Errors It does not exist.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("no namespace {}", path.display()))?;
        let name = path.file_name().map(|name| name.to_string_lossy());
        Ok(Self {
            name: name.unwrap_or_default().into_owned(),
            fd: file.into(),
        })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Runs `work` on the links of the namespace, in a thread of its own that enters the namespace and then ends.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `work` fails.
    pub(super) fn inside<T: Send>(
        &self,
        work: impl AsyncFnOnce(Handle) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let done = apart(|| {
            let network = Some(LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(self.fd.as_fd(), network).context("setns")?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()?;
            runtime.block_on(async {
                let (connection, handle, _) = rtnetlink::new_connection()?;
                tokio::spawn(connection);
                work(handle).await
            })
        });
        done.with_context(|| format!("network namespace {}", self.name))
    }
}

/// Runs something in a thread of its own, since a thread that has entered a namespace stays in it.
fn apart<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let done = scope.spawn(work).join();
        done.unwrap_or_else(|_| Err(anyhow!("a thread of the lab panicked")))
    })
}

#[allow(
    unsafe_code,
    reason = "the call is unsafe only because it could unshare the table of descriptors as well"
)]
fn unshare_network() -> io::Result<()> {
    // SAFETY: of the flags only FILES makes descriptors of one thread unusable in another; NEWNET does not.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Writes the network settings of this thread's namespace.
fn settle(forwards: bool) -> anyhow::Result<()> {
    let forwards = if forwards { "1" } else { "0" };
    let of_v4 = [
        ("ipv4/ip_forward", forwards),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
    ];
    let of_v6 = [
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        ("ipv6/conf/all/forwarding", forwards),
        // No other host on these links could have the same address.
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
    ];
    for (name, value) in of_v4.into_iter().chain(of_v6) {
        let path = Path::new("/proc/sys/net").join(name);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))?;
    }
    // BBR, the default of many hosts, arms a pacing timer for each packet, even on a link without loss. A namespace
    // may only choose an algorithm that its host allows to everyone; Reno always is.
    let control = Path::new("/proc/sys/net/ipv4/tcp_congestion_control");
    fs::write(control, "cubic")
        .or_else(|_| fs::write(control, "reno"))
        .with_context(|| format!("cannot write reno to {}", control.display()))
}

/// Whether `/` is the root of a mount (statx(2), `STATX_ATTR_MOUNT_ROOT`). True where the kernel does not say.
fn root_is_mounted() -> bool {
    let found = rustix::fs::statx(rustix::fs::CWD, "/", AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| {
        let is_known = found
            .stx_attributes_mask
            .contains(StatxAttributes::MOUNT_ROOT);
        !is_known || found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// Makes the folder of names a shared mount of its own, as `ip netns` expects it.
///
/// # Errors
/// Not allowed.
pub(super) fn make_folder() -> anyhow::Result<()> {
    anyhow::ensure!(
        root_is_mounted(),
        "/ is no mount point here, as in a chroot: a pod could not have a view of its own. Before the chroot, bind its \
         folder to itself: mount --bind FOLDER FOLDER"
    );
    let folder = Path::new(FOLDER);
    if !folder.exists() {
        fs::create_dir_all("/run/heddle")?;
        fs::write(MARKER, "")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {FOLDER}"))?;
    }
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    if rustix::mount::mount_change(folder, shared).is_err() {
        rustix::mount::mount_bind_recursive(folder, folder)
            .and_then(|()| rustix::mount::mount_change(folder, shared))
            .with_context(|| format!("cannot make {FOLDER} a mount of its own"))?;
    }
    Ok(())
}

/// Removes the folder of names if a lab made it and it is empty.
pub(super) fn remove_folder() {
    let is_empty = || fs::read_dir(FOLDER).is_ok_and(|mut names| names.next().is_none());
    if Path::new(MARKER).exists() && is_empty() {
        // These calls rightly fail if another process has put a mount on it meanwhile.
        let gone = rustix::mount::unmount(FOLDER, UnmountFlags::empty());
        if gone.is_ok() && fs::remove_dir(FOLDER).is_ok() {
            let _left = fs::remove_file(MARKER);
        }
    }
}

/// Removes the name of a namespace; the kernel removes the namespace when its last process has ended.
///
/// # Errors
/// Not allowed.
pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    // The path is a plain file if its lab was interrupted between making the file and mounting the namespace.
    let _unmounted = rustix::mount::unmount(path, UnmountFlags::DETACH);
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// The names of a lab's namespaces, sorted.
pub(super) fn names(lab: &LabName) -> Vec<PathBuf> {
    let prefix = prefix(lab);
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    names.sort();
    names
}

//! What the kernel is told: which pods are the mesh's, and where their connections go.
//!
//! ```text
//!             enrol                serve                  died
//!   (none) ──────────▶ held ─────────────────▶ serving ──────────▶ refused, or passed on
//!              queue in the listeners             ▲                        │  its fate
//!                                                 └──────── serve ─────────┘
//!          release, from any of them ──▶ (none)
//! ```
//!
//! Held and serving are the same to the kernel: connections are steered to the pod's listeners. So is a proxy's death
//! when the next one is there in a moment; otherwise it is one store for all pods ([`Hooks::died`]).
//!
//! Two kinds do the same. [`Kind::Bpf`] is programs of ours at the hooks of sockets, for which no packet
//! is touched; [`Kind::Nft`] is rules of the packet filter in each pod's namespace, for kernels without
//! those hooks.

use std::net::{IpAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Cidr, Exclude, Fate, PodId};

mod bpf;
mod error;
mod layout;
mod loaded;
mod nft;
mod pins;
mod trial;

pub use bpf::Bpf;
pub use error::HookError;
pub use nft::Nft;
pub(crate) use pins::BPF_FS_MAGIC;
pub(crate) use trial::{GROUPS, Trial, try_nft};

/// The most addresses of one pod.
pub const MAX_ADDRESSES: usize = 32;
/// The most address ranges of a mesh.
pub const MAX_RANGES: usize = 32_768;

/// What hooks are made of.
#[derive(Debug, Clone)]
pub struct Options {
    /// The control group (v2) above those of all pods. Not its root.
    pub pods_cgroup: PathBuf,
    /// The control group of this process, in which its sockets are made, and those that its listeners
    /// accept. Not the root either, nor one that pods are in.
    pub own_cgroup: PathBuf,
    /// Where the guard of pods that are refused without a proxy outlives this process: a folder of its own
    /// on a BPF file system, which is made when it is not there. Without one there is no guard, and the log says so.
    pub bpffs: Option<PathBuf>,
    /// Which addresses are the mesh's.
    pub ranges: Vec<Range>,
    /// Which kind is wanted.
    pub kind: Kind,
}

/// Addresses that are the mesh's, or an exception to that. The longest prefix decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The addresses.
    pub network: Cidr,
    /// Whether they are the mesh's.
    pub inside: bool,
}

/// Which hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// BPF, and nft when that is not to be had.
    #[default]
    Auto,
    /// BPF programs.
    Bpf,
    /// Rules of the packet filter.
    Nft,
}

impl Kind {
    /// Its name, as `--hooks` takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Auto => "auto",
            Kind::Bpf => "bpf",
            Kind::Nft => "nft",
        }
    }
}

/// A pod, as the kernel needs to know it.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// What it is called.
    pub id: PodId,
    /// Its network namespace.
    pub netns: BorrowedFd<'a>,
    /// Its addresses, without those of its loopback interface.
    pub addresses: &'a [IpAddr],
    /// In its namespace: what it dials comes here. Speaks both families.
    pub outbound: &'a TcpListener,
    /// In its namespace: what arrives for it comes here. Speaks both families.
    pub inbound: &'a TcpListener,
    /// What is left alone.
    pub exclude: &'a Exclude,
    /// What becomes of it without a proxy, until [`Hooks::serve`] says otherwise.
    pub fate: Fate,
}

/// A network namespace that a guard refuses, and whose pod is not known by name any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// Its number (`net:[…]` of a process, namespaces(7)).
    pub inode: u64,
    /// The addresses that its pod had last, as far as the holder before knew.
    pub addresses: Vec<IpAddr>,
}

/// How often the tables of the hooks had no room for a connection, since there are hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullTables {
    /// Of what pods dial, until their listeners have it. A pod that has used up its share counts: its connection is
    /// refused.
    pub handshakes: u64,
    /// Of calls of the proxy to a pod's program with its client's address, until they are established. Such a call
    /// is taken for one that comes from the network, and comes back to the proxy.
    pub visits: u64,
}

/// The hooks of a node. When they are dropped, or the process ends, they are gone, but for the guard.
#[derive(Debug)]
pub enum Hooks {
    /// BPF programs.
    Bpf(Box<Bpf>),
    /// Rules of the packet filter, and what is in the way of programs, unless rules were wanted.
    Nft(Nft, Option<HookError>),
}

impl Hooks {
    /// Makes the hooks. No pod is concerned yet, but those that the guard of another process refuses are
    /// refused on.
    ///
    /// # Errors
    /// When the kernel lacks something, or a control group or file system is not what it should be.
    pub fn open(options: &Options) -> Result<Hooks, HookError> {
        if options.ranges.len() > MAX_RANGES {
            return Err(HookError::too_many("address ranges", MAX_RANGES));
        }
        let bpf = || Bpf::open(options).map(|bpf| Hooks::Bpf(Box::new(bpf)));
        let nft = |reason| Nft::open(options).map(|nft| Hooks::Nft(nft, reason));
        match options.kind {
            Kind::Bpf => bpf(),
            Kind::Nft => nft(None),
            Kind::Auto => match bpf() {
                Err(reason @ HookError::Lacking { .. }) => nft(Some(reason)),
                other => other,
            },
        }
    }

    /// Which kind they are, never [`Kind::Auto`].
    pub fn kind(&self) -> Kind {
        match self {
            Hooks::Bpf(_) => Kind::Bpf,
            Hooks::Nft(..) => Kind::Nft,
        }
    }

    /// Why packet filters stand in for BPF programs, if these were wanted.
    pub fn without_bpf(&self) -> Option<String> {
        match self {
            Hooks::Nft(_, Some(reason)) => Some(reason.to_string()),
            _ => None,
        }
    }

    /// Where the guard is that outlives this process, or why there is none.
    ///
    /// # Errors
    /// When there is none.
    pub fn guard(&self) -> Result<&Path, String> {
        match self {
            Hooks::Bpf(bpf) => bpf.guard_folder(),
            Hooks::Nft(..) => Err(
                "hooks by nft have none: their rules stay when the holder is gone, and refuse every enrolled pod"
                    .to_owned(),
            ),
        }
    }

    /// The namespaces that the guard of a process before refuses, and that no pod is enrolled in since.
    pub fn guarded(&self) -> Vec<Guarded> {
        match self {
            Hooks::Bpf(bpf) => bpf.guarded(),
            Hooks::Nft(..) => Vec::new(),
        }
    }

    /// How often there was no room for a connection. Packet filters have no such tables.
    pub fn full(&self) -> FullTables {
        match self {
            Hooks::Bpf(bpf) => bpf.full(),
            Hooks::Nft(..) => FullTables::default(),
        }
    }

    /// Steers a pod's connections to its listeners from now on: it is held, or served.
    ///
    /// # Errors
    /// When an address is another pod's, the pod is enrolled already, or the kernel refuses. Nothing is
    /// steered then, and what the guard of another process refused it goes on refusing.
    pub fn enrol(&mut self, pod: &Pod<'_>) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.enrol(pod),
            Hooks::Nft(nft, _) => nft.enrol(pod),
        }
    }

    /// A pod has these addresses from now on, in place of those that it had: none, or up to
    /// [`MAX_ADDRESSES`]. Programs refuse what arrives for others, whatever the pod's fate; rules of the packet
    /// filter take every address that the kernel calls local.
    ///
    /// # Errors
    /// When there is no such pod, an address is another's, or the kernel refuses. What it refused is done when the same
    /// is asked again.
    pub fn readdress(&mut self, pod: PodId, addresses: &[IpAddr]) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.readdress(pod, addresses),
            // The rules ask the kernel which addresses are its own.
            Hooks::Nft(..) => Ok(()),
        }
    }

    /// A proxy serves the pod, and says what is to become of it should the proxy die.
    ///
    /// # Errors
    /// When there is no such pod, or the kernel refuses. A guard that could not be set is tried again when the pod is
    /// served again.
    pub fn serve(&mut self, pod: PodId, fate: Fate) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.serve(pod, fate),
            Hooks::Nft(nft, _) => nft.serve(pod, fate),
        }
    }

    /// The proxy is gone, and none is waited for: every pod meets its fate, until it is served again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn died(&mut self) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.died(),
            Hooks::Nft(nft, _) => nft.died(),
        }
    }

    /// Steers nothing more of a pod. Connections that are there are not touched; those that wait in the
    /// listeners are for the process that holds these.
    ///
    /// # Errors
    /// When there is no such pod, or the kernel refuses.
    pub fn release(&mut self, pod: PodId) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.release(pod),
            Hooks::Nft(nft, _) => nft.release(pod),
        }
    }

    /// Takes leave of a released pod: some milliseconds later at the earliest, which the kernel needs to let go of
    /// its namespace. Before that only the same pod should be enrolled in it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget(&mut self, pod: PodId) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.forget(pod),
            Hooks::Nft(..) => Ok(()),
        }
    }
}

/// Removes the rules of the packet filter that a holder left in a namespace. Returns whether there were any.
///
/// # Errors
/// [`HookError::Lacking`] where there is no `nft` program, or when the kernel refuses.
pub(crate) fn clear_filters(netns: BorrowedFd<'_>) -> Result<bool, HookError> {
    nft::clear(netns)
}

/// Removes the guard that holders left below `bpffs`, and the folder. What it refused goes its way again.
/// Returns how many things were removed.
///
/// # Errors
/// When there is something else in the folder, which is left as it is, or it cannot be removed.
pub fn uninstall(bpffs: &Path) -> Result<usize, HookError> {
    pins::remove_all(bpffs)
}

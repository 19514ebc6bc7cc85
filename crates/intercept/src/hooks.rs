//! Kernel hooks that steer the connections of enrolled pods.
//!
//! ```text
//!             enroll               serve                  died
//!   (none) ──────────▶ held ─────────────────▶ serving ──────────▶ refused, or passed on
//!              queue in the listeners             ▲                        │  its fate
//!                                                 └──────── serve ─────────┘
//!          release, from any of them ──▶ (none)
//! ```
//!
//! Held and serving are the same to the kernel: connections are steered to the pod's listeners. When the proxy dies
//! and the next one starts at once, nothing changes in the kernel either; otherwise one store switches all pods
//! ([`Hooks::died`]).
//!
//! Two kinds do the same work. [`Kind::Bpf`] attaches BPF programs to socket hooks, so that no packet is rewritten;
//! [`Kind::Nft`] installs packet filter rules in each pod's namespace, for kernels without those hooks.

use std::net::{IpAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use heddle_model::Cidr;
use serde::{Deserialize, Serialize};

use crate::{Exclude, Fate, PodId};

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

/// Limit of addresses of one pod.
pub const MAX_ADDRESSES: usize = 32;
/// Limit of address ranges of a mesh.
pub const MAX_RANGES: usize = 32_768;

/// Settings of the hooks.
#[derive(Debug, Clone)]
pub struct Options {
    /// A control group (v2) that contains those of all pods. Not the root group.
    pub pods_cgroup: PathBuf,
    /// The control group of this process, to which its sockets and the connections that it accepts belong. Not
    /// the root group, nor one that contains pods.
    pub own_cgroup: PathBuf,
    /// Folder on a BPF file system, used for nothing else, in which the guard is pinned so that it outlives this
    /// process. It is created if it does not exist. Without it there is no guard, and the log says so.
    pub bpffs: Option<PathBuf>,
    /// The address ranges of the mesh.
    pub ranges: Vec<Range>,
    /// The wanted kind of hooks.
    pub kind: Kind,
}

/// Addresses inside the mesh, or an exception from a wider range. The longest matching prefix decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The addresses.
    pub network: Cidr,
    /// Whether they belong to the mesh.
    pub inside: bool,
}

/// Kind of hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// BPF, or nft where the kernel does not support BPF.
    #[default]
    Auto,
    /// BPF programs.
    Bpf,
    /// Packet filter rules, written with `nft`.
    Nft,
}

impl Kind {
    /// The name, as in `--hooks`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Auto => "auto",
            Kind::Bpf => "bpf",
            Kind::Nft => "nft",
        }
    }
}

/// A pod to be enrolled in the hooks.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// Its number.
    pub id: PodId,
    /// Its network namespace.
    pub netns: BorrowedFd<'a>,
    /// Its addresses, without those of its loopback interface.
    pub addresses: &'a [IpAddr],
    /// Dual-stack listener in its namespace for outbound connections.
    pub outbound: &'a TcpListener,
    /// Dual-stack listener in its namespace for inbound connections.
    pub inbound: &'a TcpListener,
    /// Traffic that is not intercepted.
    pub exclude: &'a Exclude,
    /// What happens to its traffic without a proxy, until [`Hooks::serve`] changes it.
    pub fate: Fate,
}

/// A network namespace that a guard refuses, and whose pod's name is no longer known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// Its inode number (`net:[…]` of a process, namespaces(7)).
    pub inode: u64,
    /// The last addresses of its pod that the earlier holder knew.
    pub addresses: Vec<IpAddr>,
}

/// How often a table of the hooks was full when a connection needed an entry, since the hooks were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullTables {
    /// Outbound connections of pods during their handshake with the pod's listener. Also counts when a pod has used
    /// up its share of the table. The connection is refused.
    pub handshakes: u64,
    /// Connections of the proxy to a pod's program from its client's address, until they are established. Without an
    /// entry such a connection looks like one from the network, and is steered back to the proxy.
    pub visits: u64,
}

/// The hooks of a node. When they are dropped, or the process ends, only the guard remains.
#[derive(Debug)]
pub enum Hooks {
    /// BPF programs.
    Bpf(Box<Bpf>),
    /// Packet filter rules. The error says why BPF cannot be used, unless nft was asked for.
    Nft(Nft, Option<HookError>),
}

impl Hooks {
    /// Installs the hooks, without any pod yet. Pods that the guard of an earlier process refuses stay refused.
    ///
    /// # Errors
    /// When the kernel lacks a feature, or a control group or file system is not as required.
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

    /// The kind of hooks in use, never [`Kind::Auto`].
    pub fn kind(&self) -> Kind {
        match self {
            Hooks::Bpf(_) => Kind::Bpf,
            Hooks::Nft(..) => Kind::Nft,
        }
    }

    /// Why packet filter rules are used in place of BPF programs, if BPF was wanted.
    pub fn without_bpf(&self) -> Option<String> {
        match self {
            Hooks::Nft(_, Some(reason)) => Some(reason.to_string()),
            _ => None,
        }
    }

    /// The folder of the guard that outlives this process.
    ///
    /// # Errors
    /// Why there is no guard.
    pub fn guard(&self) -> Result<&Path, String> {
        match self {
            Hooks::Bpf(bpf) => bpf.guard_folder(),
            Hooks::Nft(..) => Err(
                "hooks by nft have no guard: their rules stay when the holder is gone, and refuse every enrolled pod"
                    .to_owned(),
            ),
        }
    }

    /// Namespaces that the guard of an earlier process refuses, and in which no pod was enrolled since.
    pub fn guarded(&self) -> Vec<Guarded> {
        match self {
            Hooks::Bpf(bpf) => bpf.guarded(),
            Hooks::Nft(..) => Vec::new(),
        }
    }

    /// How often tables were full. Packet filter rules use no tables of ours.
    pub fn full(&self) -> FullTables {
        match self {
            Hooks::Bpf(bpf) => bpf.full(),
            Hooks::Nft(..) => FullTables::default(),
        }
    }

    /// Steers a pod's connections to its listeners from now on, whether it is held or served.
    ///
    /// # Errors
    /// When another pod has one of the addresses, the pod is enrolled already, or the kernel refuses. Nothing is
    /// steered then, and a guard of an earlier process keeps refusing the pod.
    pub fn enroll(&mut self, pod: &Pod<'_>) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.enroll(pod),
            Hooks::Nft(nft, _) => nft.enroll(pod),
        }
    }

    /// Replaces the addresses of a pod by these: none, or up to [`MAX_ADDRESSES`]. BPF programs refuse connections to
    /// other addresses of the namespace, whatever the pod's fate; packet filter rules accept every address that the
    /// kernel calls local.
    ///
    /// # Errors
    /// When there is no such pod, another pod has one of the addresses, or the kernel refuses. After a refusal of the
    /// kernel, the same call can be repeated and does the rest.
    pub fn readdress(&mut self, pod: PodId, addresses: &[IpAddr]) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.readdress(pod, addresses),
            // The rules look up local addresses in the kernel (`fib`).
            Hooks::Nft(..) => Ok(()),
        }
    }

    /// The proxy serves the pod from now on; `fate` applies if the proxy dies.
    ///
    /// # Errors
    /// When there is no such pod, or the kernel refuses. A guard that could not be attached is tried again at the
    /// next call.
    pub fn serve(&mut self, pod: PodId, fate: Fate) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.serve(pod, fate),
            Hooks::Nft(nft, _) => nft.serve(pod, fate),
        }
    }

    /// The proxy is gone, and none is expected soon: the fate of every pod applies until it is served again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn died(&mut self) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.died(),
            Hooks::Nft(nft, _) => nft.died(),
        }
    }

    /// Stops steering a pod's connections. Established connections are not touched; those in the backlog of the
    /// listeners stay there for the process that holds these.
    ///
    /// # Errors
    /// When there is no such pod, or the kernel refuses.
    pub fn release(&mut self, pod: PodId) -> Result<(), HookError> {
        match self {
            Hooks::Bpf(bpf) => bpf.release(pod),
            Hooks::Nft(nft, _) => nft.release(pod),
        }
    }

    /// Removes the last state of a released pod. Call it some milliseconds after [`Hooks::release`], which the kernel
    /// needs to detach the programs from the namespace. Before that, only the same pod should be enrolled there.
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

/// Removes packet filter rules that a holder left in a namespace. Returns whether there were any.
///
/// # Errors
/// [`HookError::Lacking`] when `nft` is not installed; another error when the kernel refuses.
pub(crate) fn clear_filters(netns: BorrowedFd<'_>) -> Result<bool, HookError> {
    nft::clear(netns)
}

/// Removes the guard that holders left in the folder `bpffs`, and the folder itself. Traffic that the guard refused
/// passes again. Returns the number of pinned objects removed.
///
/// # Errors
/// When the folder contains something else, and nothing is removed then; or when the kernel refuses.
pub fn uninstall(bpffs: &Path) -> Result<usize, HookError> {
    pins::remove_all(bpffs)
}

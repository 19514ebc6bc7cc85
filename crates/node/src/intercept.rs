//! Flags for the interception of pods' traffic.

use std::path::PathBuf;

use heddle_intercept::PortRange;
use heddle_intercept::hooks::Kind;
use heddle_model::{Cidr, WorkloadName};

use crate::admin::Location;
use crate::arguments::workload;
use crate::held::HeldBy;
use crate::settings::{GivenSettings, Interception, ProxyTimeout, Text};
use crate::user::{ProxyUser, User};

/// Flags that choose which pods' traffic is intercepted, and how.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Interception")]
pub(crate) struct InterceptFlags {
    /// Carry the traffic of enrolled pods, whose programs need not know of the mesh (heddle enroll). Needs root: a
    /// holder process keeps the privileges, and its child, the proxy, has none
    #[arg(long)]
    intercept: bool,
    /// The cgroup (v2) above all pods of this node, but not above the node itself. Without it, packet filters in each
    /// pod replace BPF programs at the cgroup
    #[arg(long, value_name = "FOLDER")]
    pods_cgroup: Option<PathBuf>,
    /// Addresses of the mesh's pods and Services: connections of pods to other addresses are not intercepted. May be
    /// repeated
    #[arg(long, value_name = "CIDR")]
    mesh_range: Vec<Cidr>,
    /// Addresses within --mesh-range that are not intercepted. May be repeated
    #[arg(long, value_name = "CIDR")]
    exclude_range: Vec<Cidr>,
    /// Where `heddle enroll` and `heddle unenroll` find this node's holder
    /// [default: heddle-holder.sock in /run/heddle]
    #[arg(long, value_name = "PATH")]
    holder_socket: Option<PathBuf>,
    /// Where the guard of pods that refuse without a proxy is kept: a folder of a BPF file system
    /// [default: /sys/fs/bpf/heddle]
    #[arg(long, value_name = "FOLDER")]
    bpffs: Option<PathBuf>,
    /// How to intercept: `bpf`, `nft`, or `auto` for the first of them that this machine offers [default: auto]
    #[arg(long, value_name = "KIND", value_parser = kind)]
    hooks: Option<Kind>,
    /// How long the proxy may leave its holder without an answer before it is killed and another started: 5s or more, 0
    /// for never (while you debug it) [default: 30s]
    #[arg(long, value_name = "DURATION")]
    proxy_timeout: Option<ProxyTimeout>,
    /// Be the proxy of one pod, inside its network namespace: the pod of this workload
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = workload)]
    pod: Option<WorkloadName>,
    /// With --pod: ports of the pod that are not intercepted, such as 22 or 8000-8010. May be repeated
    #[arg(long, value_name = "PORTS")]
    exclude_inbound: Vec<PortRange>,
    /// Which user the proxy runs as: neither root nor of root's group. The node's state folder is given to it
    /// [default: a user heddle of /etc/passwd, else the number 65523; where the holder is not root, its own]
    #[arg(long, value_name = "NAME|UID[:GID]")]
    proxy_user: Option<ProxyUser>,
}

/// Arguments that a holder adds for its proxy.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HeldArguments {
    /// This is a holder's proxy.
    #[arg(long, hide = true)]
    pub(crate) held: bool,
    /// The user that the proxy changes to.
    #[arg(long, hide = true, value_name = "UID:GID", requires = "held")]
    held_as: Option<User>,
}

impl InterceptFlags {
    /// Overrides the file's values by these flags.
    pub(crate) fn over(self, given: &mut GivenSettings) {
        macro_rules! over {
            ($($flag:literal, $said:expr => $field:ident;)*) => {$(
                given.flag($flag, concat!("node.interception.", stringify!($field)), $said, |to, said| {
                    to.node.interception.$field = said;
                });
            )*};
        }
        let some = |list: Vec<Cidr>| Some(list).filter(|list| !list.is_empty());
        let ports = Some(self.exclude_inbound).filter(|ports| !ports.is_empty());
        over! {
            "--intercept", self.intercept.then_some(true) => enabled;
            "--pods-cgroup", self.pods_cgroup.map(Some) => pods_cgroup;
            "--mesh-range", some(self.mesh_range) => mesh_ranges;
            "--exclude-range", some(self.exclude_range) => exclude_ranges;
            "--holder-socket", self.holder_socket.map(Some) => holder_socket;
            "--bpffs", self.bpffs => bpffs;
            "--hooks", self.hooks => hooks;
            "--proxy-timeout", self.proxy_timeout => proxy_timeout_s;
            "--pod", self.pod.map(Some) => pod;
            "--exclude-inbound", ports => exclude_inbound;
            "--proxy-user", self.proxy_user.map(|user| Some(Text(user))) => proxy_user;
        }
    }
}

impl HeldArguments {
    /// The values that a holder passes on to its proxy; `None` for a process that no holder has started.
    pub(crate) fn told(&self, interception: &Interception) -> Option<HeldBy> {
        let inside = interception.mesh_ranges.iter().map(|cidr| (*cidr, true));
        let outside = interception
            .exclude_ranges
            .iter()
            .map(|cidr| (*cidr, false));
        let socket = Location::holder(interception.holder_socket.clone()).path;
        // The path must be absolute: a process that uses it may have another working directory.
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        self.held.then(|| HeldBy {
            ranges: inside.chain(outside).collect(),
            holder_socket: socket,
            user: self.held_as,
        })
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "auto" => Ok(Kind::Auto),
        "bpf" => Ok(Kind::Bpf),
        "nft" => Ok(Kind::Nft),
        _ => Err("expected auto, bpf or nft".to_owned()),
    }
}

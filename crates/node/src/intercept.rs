//! Flags for the interception of pods' traffic.

use std::path::PathBuf;

use heddle_intercept::hooks::Kind;
use heddle_intercept::{Cidr, PortRange};
use heddle_model::WorkloadName;

use crate::admin::Location;
use crate::arguments::workload;
use crate::held::HeldBy;
use crate::user::{ProxyUser, User};

/// Flags that choose which pods' traffic is intercepted, and how.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Interception")]
pub(crate) struct Intercept {
    /// Carry the traffic of enrolled pods, whose programs need not know of the mesh (heddle enroll). Needs root: a
    /// holder process keeps the privileges, and its child, the proxy, has none
    #[arg(long)]
    pub(crate) intercept: bool,
    /// The cgroup (v2) above all pods of this node, but not above the node itself. Without it, packet filters in each
    /// pod replace BPF programs at the cgroup
    #[arg(long, value_name = "FOLDER", requires = "intercept")]
    pub(crate) pods_cgroup: Option<PathBuf>,
    /// Addresses of the mesh's pods and Services: connections of pods to other addresses are not intercepted. May be
    /// repeated
    #[arg(long, value_name = "CIDR", requires = "intercept")]
    pub(crate) mesh_range: Vec<Cidr>,
    /// Addresses within --mesh-range that are not intercepted. May be repeated
    #[arg(long, value_name = "CIDR", requires = "intercept")]
    pub(crate) exclude_range: Vec<Cidr>,
    /// Where `heddle enroll` and `heddle unenroll` find this node's holder
    /// [default: $XDG_RUNTIME_DIR/heddle-holder.sock, else /tmp/heddle-UID/heddle-holder.sock]
    #[arg(long, value_name = "PATH", requires = "intercept")]
    pub(crate) holder_socket: Option<PathBuf>,
    /// Where the guard of pods that refuse without a proxy is kept: a folder of a BPF file system
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf/heddle")]
    pub(crate) bpffs: PathBuf,
    /// How to intercept: `bpf`, `nft`, or `auto` for the first of them that this machine offers
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = kind)]
    pub(crate) hooks: Kind,
    /// After how many seconds without an answer to its holder the proxy is killed and another started: 5 or more, 0 for
    /// never (while you debug it)
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = proxy_timeout)]
    pub(crate) proxy_timeout: u32,
    /// Be the proxy of one pod, inside its network namespace: the pod of this workload
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "intercept", value_parser = workload)]
    pub(crate) pod: Option<WorkloadName>,
    /// With --pod: ports of the pod that are not intercepted, such as 22 or 8000-8010. May be repeated
    #[arg(long, value_name = "PORTS", requires = "pod")]
    pub(crate) exclude_inbound: Vec<PortRange>,
    /// Which user the proxy runs as: neither root nor of root's group. The node's state folder is given to it
    /// [default: a user heddle of /etc/passwd, else the number 65523; where the holder is not root, its own]
    #[arg(long, value_name = "NAME|UID[:GID]", requires = "intercept")]
    pub(crate) proxy_user: Option<ProxyUser>,
    /// Set for the proxy by its holder.
    #[arg(long, hide = true)]
    pub(crate) held: bool,
    /// The user that the proxy changes to, also set by its holder.
    #[arg(long, hide = true, value_name = "UID:GID", requires = "held")]
    pub(crate) held_as: Option<User>,
}

impl Intercept {
    /// The values that a holder passes on to its proxy.
    pub(crate) fn told(&self) -> HeldBy {
        let inside = self.mesh_range.iter().map(|cidr| (*cidr, true));
        let outside = self.exclude_range.iter().map(|cidr| (*cidr, false));
        let socket = Location::holder(self.holder_socket.clone()).path;
        // The path must be absolute: a process that uses it may have another working directory.
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        HeldBy {
            ranges: inside.chain(outside).collect(),
            holder_socket: socket,
            user: self.held_as,
        }
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

fn proxy_timeout(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| *seconds == 0 || (5..=86_400).contains(seconds));
    seconds.ok_or_else(|| "expected 0, or 5 to 86400 seconds".to_owned())
}

//! `heddle qos run`: flags over settings, and the agent.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_model::{ControlGroup, NodeName};
use heddle_node::arguments::node_name;
use heddle_node::exit::{Exit, Failure};
use heddle_node::hygiene;
use heddle_node::settings::{GivenSettings, KubeletUrl, LogFlags, Metrics};

use super::State;
use crate::qos;

/// Run the agent of this machine
///
/// It has the pods from a folder of manifests, from this machine's kubelet, or from both, and follows them. In a folder each
/// LocalWorkload that has the annotation `heddle.dev/cgroup: PATH` is a pod, and PATH its control group. What it changes is
/// put back when it stops, or by the next start after a kill. Values that other programs write stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle qos run DIR --dry-run
  heddle qos run DIR
  heddle qos run DIR --node edge-1 --config /etc/heddle/heddle.yaml
  heddle qos run --kubelet https://127.0.0.1:10250 --kubelet-token /etc/heddle/kubelet.token

Exit codes:
  0  stopped, and everything is as it was
  1  failed, or not everything could be put back
  2  wrong command line
  3  manifests or settings refused
  5  another agent runs")]
pub(super) struct RunArgs {
    /// The folder of manifests; not needed with a kubelet
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only pods of this node (spec.nodeName) [default: all]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<NodeName>,
    /// Change nothing, and say what would be changed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    kubelet: KubeletFlags,
    #[command(flatten)]
    state: State,
    /// Admin socket of this machine's proxy, whose threads for offline callers yield, too [default: as for heddle status]
    #[arg(long, value_name = "PATH")]
    proxy_socket: Option<PathBuf>,
    /// Control group that is made for those threads, beside those of the pods or above [default: heddle-offline]
    #[arg(long, value_name = "PATH", value_parser = ControlGroup::new)]
    proxy_group: Option<ControlGroup>,
    /// Where to serve /metrics and /ready over TCP, or `none` [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Metrics>,
    /// Settings of the process; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    /// The node that has started it, by its process ID: the agent ends with it.
    #[arg(long, hide = true, value_name = "PID")]
    of_node: Option<i32>,
}

/// Flags that say how this machine's kubelet is asked.
#[derive(Debug, clap::Args)]
struct KubeletFlags {
    /// URL of this machine's kubelet, such as https://127.0.0.1:10250: its pods are followed
    #[arg(long, value_name = "URL")]
    kubelet: Option<KubeletUrl>,
    /// The kubelet's own certificate or that of its authority, in PEM [default: /var/lib/kubelet/pki/kubelet.crt]
    #[arg(long, value_name = "FILE")]
    kubelet_ca: Option<PathBuf>,
    /// A bearer token for the kubelet, of an account that may get nodes/pods
    #[arg(long, value_name = "FILE")]
    kubelet_token: Option<PathBuf>,
    /// A client certificate for the kubelet, in PEM, instead of a token
    #[arg(long, value_name = "FILE")]
    kubelet_certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE")]
    kubelet_key: Option<PathBuf>,
    /// The kubelet's --cgroup-root [default: /]
    #[arg(long, value_name = "PATH")]
    kubelet_cgroup_root: Option<String>,
}

impl KubeletFlags {
    fn over(self, given: &mut GivenSettings) {
        given.flag("--kubelet", "qos.kubelet.url", self.kubelet, |to, url| {
            to.qos.kubelet.set_url(url);
        });
        let (flag, field) = ("--kubelet-ca", "qos.kubelet.ca");
        given.flag(flag, field, self.kubelet_ca, |to, file| {
            to.qos.kubelet.ca = Some(file);
        });
        let (flag, field) = ("--kubelet-token", "qos.kubelet.token_file");
        given.flag(flag, field, self.kubelet_token, |to, file| {
            to.qos.kubelet.token_file = Some(file);
        });
        let (flag, field) = ("--kubelet-certificate", "qos.kubelet.certificate");
        given.flag(flag, field, self.kubelet_certificate, |to, file| {
            to.qos.kubelet.certificate = Some(file);
        });
        let (flag, field) = ("--kubelet-key", "qos.kubelet.key");
        given.flag(flag, field, self.kubelet_key, |to, file| {
            to.qos.kubelet.key = Some(file);
        });
        let (flag, field) = ("--kubelet-cgroup-root", "qos.kubelet.cgroup_root");
        given.flag(flag, field, self.kubelet_cgroup_root, |to, path| {
            to.qos.kubelet.cgroup_root = path;
        });
    }
}

pub(super) fn run(args: RunArgs) -> Result<Exit, Failure> {
    if let Some(node) = args.of_node {
        // Its name in ps, beside that of the node.
        let _set = rustix::thread::set_name(c"heddle-qos");
        let is_there = hygiene::stop_with(node).context("cannot end with the node")?;
        if !is_there {
            return Err(anyhow!("the node that has started the agent is gone").into());
        }
    }
    let mut given = GivenSettings::read(args.config.as_deref())?;
    let state = args.state.state;
    given.flag("--state", "qos.state", state, |to, state| {
        to.qos.state = Some(state);
    });
    let socket = args.proxy_socket;
    given.flag("--proxy-socket", "qos.proxy_socket", socket, |to, path| {
        to.qos.proxy_socket = Some(path);
    });
    let group = args.proxy_group;
    given.flag("--proxy-group", "qos.proxy_group", group, |to, group| {
        to.qos.proxy_group = group;
    });
    given.flag("--metrics", "qos.metrics", args.metrics, |to, at| {
        to.qos.metrics = at;
    });
    args.kubelet.over(&mut given);
    args.log.over(&mut given);
    let settings = given.checked()?;
    let dir = args.dir.or_else(|| settings.qos.folder.clone());
    if dir.is_none() && settings.qos.kubelet.url().is_none() {
        let why = "nothing says which pods there are: name a folder of manifests (DIR, qos.folder), or a kubelet (--kubelet URL, qos.kubelet.url)";
        return Err(Failure::new(Exit::Usage, anyhow!("{why}")));
    }
    let plan = qos::AgentPlan {
        dir,
        node: args.node,
        is_rehearsal: args.dry_run,
        state: settings.qos.state_folder().to_owned(),
    };
    qos::run(&plan, &settings)
}

//! `heddle control`.

use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_model::TrustDomain;
use heddle_node::arguments::address_and_port;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::{GivenSettings, LogFlags, Metrics, Settings, SettingsError};

use super::etcd::Etcd;
use crate::control;

/// Run the control plane of a mesh of several nodes
///
/// Reads a folder of manifests and tells every node its part; holds the certificate authority of the mesh,
/// lets nodes join with a token (`heddle token create`), and issues them the identities of the workloads
/// that the manifests place on them (`nodeName`). A change in the folder reaches the nodes within a second;
/// an object with an error is reported, and its last good version stays, or something that opens
/// nothing. Nodes go on without a control plane
/// until their certificates expire. With --etcd, providers that register by themselves (`heddle register
/// --node`) are workloads beside the folder's.
///
/// The state folder holds the key of the root: a process that reads it can take any identity. It is made
/// for its user alone; back it up, and keep the backup secret.
///
/// Signals: SIGTERM or SIGINT ends open calls and stops, a second one stops at once.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  heddle control examples/bookstore
  heddle control DIR --listen 192.0.2.1:15012 --trust-domain prod.example.org
  heddle status --control
  heddle token create edge-1 > edge-1.token

Exit codes:
  0  stopped
  1  failed, or stopped at once by a second signal
  2  wrong command line
  3  manifests or settings refused
  5  another heddle has the admin socket or the state folder")]
pub(crate) struct Args {
    /// The folder of manifests
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The authority's folder [default: $XDG_STATE_HOME/heddle/control, else
    /// ~/.local/state/heddle/control; as root /var/lib/heddle/control]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Where nodes connect to [default: 127.0.0.1:15012]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_and_port)]
    listen: Option<SocketAddr>,
    /// The trust domain, the first part of every identity of the mesh [default: cluster.local]
    #[arg(long, value_name = "NAME", value_parser = trust_domain)]
    trust_domain: Option<TrustDomain>,
    /// The admin socket [default: heddle-control.sock in $XDG_RUNTIME_DIR, else in /tmp/heddle-UID; for root in
    /// /run/heddle]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where to serve /metrics and /ready over TCP, or `none` [default: 127.0.0.1:15014]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Metrics>,
    /// Settings of the process; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    etcd: Etcd,
}

/// Parses the name of a trust domain.
pub(super) fn trust_domain(text: &str) -> Result<TrustDomain, String> {
    TrustDomain::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = settings(args.clone())?;
    let dir = args.dir.clone();
    control::run(&dir, &settings, &|| self::settings(args.clone()))
}

/// The settings file, overridden by flags.
fn settings(args: Args) -> Result<Settings, SettingsError> {
    let mut given = GivenSettings::read(args.config.as_deref())?;
    given.flag("--socket", "admin.socket", args.socket, |to, path| {
        to.admin.socket = Some(path);
    });
    given.flag("--state", "control.state", args.state, |to, folder| {
        to.control.state = Some(folder);
    });
    given.flag("--listen", "control.listen", args.listen, |to, listen| {
        to.control.listen = listen;
    });
    given.flag("--metrics", "control.metrics", args.metrics, |to, at| {
        to.control.metrics = at;
    });
    let domain = args.trust_domain;
    given.flag("--trust-domain", "mesh.trust_domain", domain, |to, name| {
        to.mesh.trust_domain = name;
    });
    args.etcd.over(&mut given);
    args.log.over(&mut given);
    given.checked()
}

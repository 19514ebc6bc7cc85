//! `heddle up`.

use std::path::PathBuf;

use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::{GivenSettings, LogFlags, ServingFlags, Settings, SettingsError};

use super::etcd::Etcd;
use crate::up;

/// Serve a mesh from a folder of manifests
///
/// Control plane and proxy in one process, without root and without a cluster. Every Service gets
/// a loopback address, every LocalWorkload gets addresses of its own and a forward proxy, so that
/// its requests are counted as its own. Commands of LocalWorkloads are started, watched and
/// stopped. A change in the folder takes effect within a second and touches no connection; an
/// object with an error is reported, and its last good version stays, or something that opens nothing. With --etcd, providers that register
/// by themselves (`heddle register`) are endpoints beside the folder's.
///
/// Signals: SIGTERM or SIGINT drains and stops, a second one, half a second later or more, stops at once; SIGHUP
/// reads the settings of the log and the access log again, and reopens the access log.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  PATH=$PWD/target/release:$PATH heddle up examples/bookstore
  heddle up DIR --access-log - --metrics 127.0.0.1:9464
  heddle up DIR --etcd http://127.0.0.1:2379
  heddle up DIR --config heddle.yaml --socket /run/user/1000/second.sock --metrics none

Exit codes:
  0  drained and stopped
  1  failed, or stopped at once by a second signal
  2  wrong command line
  3  manifests or settings refused
  5  another heddle has the admin socket")]
pub(crate) struct Args {
    /// The folder of manifests
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Settings of the process; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    serving: ServingFlags,
    /// Do not run the commands of LocalWorkloads
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    etcd: Etcd,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let settings = settings(args.clone())?;
    let dir = args.dir.clone();
    up::run(
        dir,
        settings,
        Box::new(move || self::settings(args.clone())),
    )
}

/// The settings file, overridden by flags.
fn settings(args: Args) -> Result<Settings, SettingsError> {
    let mut given = GivenSettings::read(args.config.as_deref())?;
    args.serving.over(&mut given);
    let run = args.no_run.then_some(false);
    given.flag("--no-run", "workloads.run", run, |to, run| {
        to.workloads.run = run;
    });
    args.etcd.over(&mut given);
    args.log.over(&mut given);
    given.checked()
}

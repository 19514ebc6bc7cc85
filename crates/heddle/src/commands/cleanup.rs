//! `heddle node cleanup`.

use std::path::PathBuf;

use anyhow::anyhow;
use heddle_intercept::{holder, hooks};
use heddle_node::exit::{Exit, Failure};
use heddle_node::hold;
use heddle_node::settings::BPFFS;
use heddle_node::state_folder;
use heddle_node::table::count;

/// Remove what a node leaves behind in the kernel: the guard, and what is in its pods
///
/// Interception ends with the node's processes. The guard of pods that refuse without a proxy stays, so that a pod that
/// must not speak in the clear never does. So do packet filters (--hooks nft) and routes in the namespaces of the pods
/// when the node was killed. This command removes all of them, for the pods in the holder's file beside the state
/// folder. The file stays: a node that is started again has its pods again. Stop the node first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle node cleanup
  heddle node cleanup --state /var/lib/heddle/edge-1 --bpffs /sys/fs/bpf/heddle

Exit codes:
  0  nothing is left
  1  failed, or the folders that were named hold nothing to remove
  2  wrong command line")]
pub(crate) struct Args {
    /// Where the guard was kept, as for `heddle node --bpffs` [default: /sys/fs/bpf/heddle]
    #[arg(long, value_name = "FOLDER")]
    bpffs: Option<PathBuf>,
    /// The node's state folder, as for `heddle node --state`; the holder's file of pods is beside it [default: as for
    /// `heddle node`]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let is_named = args.bpffs.is_some() || args.state.is_some();
    let bpffs = args.bpffs.unwrap_or_else(|| PathBuf::from(BPFFS));
    let state = state_folder::named(args.state, "node")?;
    let in_pods = holder::uninstall(&hold::memory(&state)).map_err(|error| anyhow!(error))?;
    let pins = hooks::uninstall(&bpffs).map_err(|error| anyhow!(error))?;
    let parts = [
        (pins > 0).then(|| count(pins, "pin")),
        (in_pods.pods > 0).then(|| format!("what was in {}", count(in_pods.pods, "pod"))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        super::print(&format!("removed {}\n", parts.join(" and ")))?;
    }
    match in_pods.failures.as_slice() {
        [] if !parts.is_empty() => Ok(Exit::Ok),
        [] if is_named => Err(anyhow!(
            "there is nothing to remove in {} and for the pods of {}: name the folders that the node had, with --bpffs and \
             --state",
            bpffs.display(),
            hold::memory(&state).display()
        )
        .into()),
        [] => {
            super::print("there is nothing to remove\n")?;
            Ok(Exit::Ok)
        }
        failures => Err(anyhow!("not everything is removed: {}", failures.join("; ")).into()),
    }
}

//! `heddle uninstall`.

use std::path::PathBuf;

use anyhow::anyhow;
use heddle_intercept::hooks;

use crate::exit::{Exit, Failure};
use crate::table::count;

/// Remove what a node leaves behind: the guard of pods that refuse without a proxy
///
/// Interception ends with the node's processes; the guard does not, so that a pod that must not speak in
/// the clear never does. This takes it away. Stop the node first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0  there is nothing any more
  1  failed
  2  wrong command line")]
pub(crate) struct Args {
    /// Where the guard was kept, as for `heddle node --bpffs`
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf/heddle")]
    bpffs: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let removed = hooks::uninstall(&args.bpffs).map_err(|error| anyhow!(error))?;
    super::print(&match removed {
        0 => "there was nothing to remove\n".to_owned(),
        removed => format!("removed {}\n", count(removed, "pin")),
    })?;
    Ok(Exit::Ok)
}
